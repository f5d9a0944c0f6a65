"""How many requests for the logs of tables a driver makes, counted below all that Delta and Lockstep put on top.

A file system of Hadoop's that counts takes the place of the one for `file:`, in the driver's JVM. Where the executors
are threads of the driver, what they read is counted too; elsewhere it is not. What Lockstep's Python asks of its store
is in docs/requests.md.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any, Self
from uuid import uuid4

from tests.support.java import compiled

SOURCE = """
package test;

import org.apache.hadoop.conf.Configuration;
import org.apache.hadoop.fs.FSDataInputStream;
import org.apache.hadoop.fs.FileStatus;
import org.apache.hadoop.fs.FileSystem;
import org.apache.hadoop.fs.LocalFileSystem;
import org.apache.hadoop.fs.Path;

public class NAME extends LocalFileSystem {
  private final java.util.List requests = new java.util.Vector();

  public void install(Configuration conf) throws Exception {
    initialize(java.net.URI.create("file:///"), conf);
    inCache("addFileSystemForTesting", conf);
  }

  public void uninstall(Configuration conf) throws Exception {
    inCache("removeFileSystemForTesting", conf);
  }

  private void inCache(String name, Configuration conf) throws Exception {
    Class[] parameters = new Class[] {java.net.URI.class, Configuration.class, FileSystem.class};
    java.lang.reflect.Method method = FileSystem.class.getDeclaredMethod(name, parameters);
    method.setAccessible(true);
    method.invoke(null, new Object[] {java.net.URI.create("file:///"), conf, this});
  }

  public String taken() {
    synchronized (requests) {
      StringBuilder all = new StringBuilder();
      for (int i = 0; i < requests.size(); i++) all.append(requests.get(i)).append("\\n");
      requests.clear();
      return all.toString();
    }
  }

  private void count(String kind, Path path) {
    String name = path.toUri().getPath();
    if (name.indexOf("/_delta_log") >= 0) requests.add(kind + " " + name);
  }

  public FileStatus[] listStatus(Path path) throws java.io.IOException {
    count("list", path);
    return super.listStatus(path);
  }

  public FSDataInputStream open(Path path, int bufferSize) throws java.io.IOException {
    count("read", path);
    return super.open(path, bufferSize);
  }

  public FileStatus getFileStatus(Path path) throws java.io.IOException {
    count("look", path);
    return super.getFileStatus(path);
  }
}
"""


class LogRequests:
    """Counts what a driver asks of the logs of tables on a local disk, in a `with` block: others use it, too."""

    def __init__(self, session: Any) -> None:
        name = f"Counting{uuid4().hex}"  # Py4J takes two classes of one name for one
        self._files = compiled(session._jvm, f"test.{name}", SOURCE.replace("NAME", name)).newInstance()
        self._conf = session._jsc.hadoopConfiguration()

    def __enter__(self) -> Self:
        self._files.install(self._conf)
        return self

    def __exit__(self, *_: object) -> None:
        self._files.uninstall(self._conf)

    def of(self, work: Callable[[], object]) -> Counter[str]:
        """Do something, and return what it asked for: how often it listed a log, read a file, or looked for one."""
        self._files.taken()
        work()
        return Counter(line.split()[0] for line in self._files.taken().splitlines())
