"""Hadoop's FileSystem as its callers may use it: each public method changes nothing, or is one that is tried."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

Try: TypeAlias = "Callable[[Caller, Any], None]"
"""Tries to change the file at a Hadoop path."""

HARMLESS = frozenset(
    """
    access addDelegationTokens areSymlinksEnabled cancelDeleteOnExit clearStatistics close closeAll closeAllForUGI
    enableSymlinks exists get getAclStatus getAdditionalTokenIssuers getAllStatistics getAllStoragePolicies
    getBlockSize getCanonicalServiceName getChildFileSystems getConf getContentSummary getDefaultBlockSize
    getDefaultReplication getDefaultUri getDelegationToken getEnclosingRoot getFSofPath getFileBlockLocations
    getFileChecksum getFileLinkStatus getFileStatus getFileSystemClass getGlobalStorageStatistics getHomeDirectory
    getLength getLinkTarget getLocal getName getNamed getPathHandle getQuotaUsage getReplication getScheme
    getServerDefaults getStatistics getStatus getStoragePolicy getStorageStatistics getTrashRoot getTrashRoots
    getUri getUsed getWorkingDirectory getXAttr getXAttrs globStatus hasPathCapability initialize isDirectory isFile
    listCorruptFileBlocks listFiles listLocatedStatus listStatus listStatusIterator listXAttrs makeQualified msync
    newInstance newInstanceLocal open openFile printStatistics resolvePath setConf setDefaultUri setVerifyChecksum
    setWorkingDirectory setWriteChecksum startLocalOutput supportsSymlinks
    """.split()  # noqa: SIM905 (one name a line would fill a page)
)
"""Methods that change nothing in a file system, whatever they are given."""


class Caller:
    """One file system of the JVM, and what its methods take."""

    def __init__(self, spark: Any, uri: str, local: Path) -> None:
        self.jvm = spark._jvm
        self.gateway = spark.sparkContext._gateway
        self._uri = uri
        self._configuration = spark._jsparkSession.sessionState().newHadoopConf()
        self._local = local
        self.fs: Any = None

    def path(self, path: Path | str) -> Any:
        """Return a path of this file system."""
        return self.jvm.org.apache.hadoop.fs.Path(f"{self._uri}{path}")

    def attempt(self, change: Try, path: Any) -> str:
        """Try a change on a file system of its own, as Delta gets one for each use; return what it was told."""
        self.fs = path.getFileSystem(self._configuration)
        try:
            change(self, path)
        except Exception as error:  # noqa: BLE001 (whatever a file system answers: what matters is what it did)
            return type(error).__name__
        finally:
            self.fs.close()  # carries out deleteOnExit
        return ""

    # --- arguments ----------------------------------------------------------------------------------------------------

    @property
    def permission(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.permission.FsPermission("777")

    @property
    def source(self) -> Any:
        """A local file; made anew, for some methods move it."""
        self._local.write_text("other content")
        return self.jvm.org.apache.hadoop.fs.Path(str(self._local))

    @property
    def target(self) -> Any:
        return self.jvm.org.apache.hadoop.fs.Path(f"{self._local}.taken")

    def beside(self, path: Any) -> Any:
        """A new name in the same folder."""
        return self.jvm.org.apache.hadoop.fs.Path(path.getParent(), f".{path.getName()}.moved.tmp")

    def flags(self, *names: str) -> Any:
        values = [self.jvm.org.apache.hadoop.fs.CreateFlag.valueOf(name) for name in names]
        return self.jvm.java.util.EnumSet.copyOf(self.gateway.jvm.java.util.ArrayList(_java_list(self.jvm, values)))

    def paths(self, *paths: Any) -> Any:
        array = self.gateway.new_array(self.jvm.org.apache.hadoop.fs.Path, len(paths))
        for index, path in enumerate(paths):
            array[index] = path
        return array

    def write(self, stream: Any) -> None:
        stream.writeBytes("other content")
        stream.close()

    def hidden(self, name: str, *arguments: tuple[str, Any]) -> None:
        """Call a protected method, as FileContext does."""
        kinds = self.gateway.new_array(self.jvm.java.lang.Class, len(arguments))
        values = self.gateway.new_array(self.jvm.java.lang.Object, len(arguments))
        for index, (kind, value) in enumerate(arguments):
            kinds[index] = self.jvm.java.lang.Class.forName(kind)
            values[index] = value
        method = self.jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getDeclaredMethod(name, kinds)
        method.setAccessible(True)
        method.invoke(self.fs, values)


def _java_list(jvm: Any, values: list[Any]) -> Any:
    found = jvm.java.util.ArrayList()
    for value in values:
        found.add(value)
    return found


def _overwriting_rename(call: Caller, source: Any, target: Any) -> None:
    options = call.gateway.new_array(getattr(call.jvm.org.apache.hadoop.fs, "Options$Rename"), 1)
    options[0] = getattr(call.jvm.org.apache.hadoop.fs, "Options$Rename").OVERWRITE
    path = "org.apache.hadoop.fs.Path"
    call.hidden("rename", (path, source), (path, target), ("[Lorg.apache.hadoop.fs.Options$Rename;", options))


def _new(call: Caller, path: Any) -> Any:
    """Make a temporary file beside a path, where that is allowed."""
    source = call.beside(path)
    call.write(call.fs.create(source, True))
    return source


CHANGES: dict[str, Try] = {
    "create(Path)": lambda c, p: c.write(c.fs.create(p)),
    "create(Path,boolean)": lambda c, p: c.write(c.fs.create(p, True)),
    "create(Path,Progressable)": lambda c, p: c.write(c.fs.create(p, None)),
    "create(Path,short)": lambda c, p: c.write(c.fs.create(p, 1)),
    "create(Path,short,Progressable)": lambda c, p: c.write(c.fs.create(p, 1, None)),
    "create(Path,boolean,int)": lambda c, p: c.write(c.fs.create(p, True, 4096)),
    "create(Path,boolean,int,Progressable)": lambda c, p: c.write(c.fs.create(p, True, 4096, None)),
    "create(Path,boolean,int,short,long)": lambda c, p: c.write(c.fs.create(p, True, 4096, 1, 1 << 20)),
    "create(Path,boolean,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.create(p, True, 4096, 1, 1 << 20, None)
    ),
    "create(Path,FsPermission,boolean,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.create(p, c.permission, True, 4096, 1, 1 << 20, None)
    ),
    "create(Path,FsPermission,EnumSet,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.create(p, c.permission, c.flags("CREATE", "OVERWRITE"), 4096, 1, 1 << 20, None)
    ),
    "create(Path,FsPermission,EnumSet,int,short,long,Progressable,ChecksumOpt)": lambda c, p: c.write(
        c.fs.create(p, c.permission, c.flags("CREATE", "OVERWRITE"), 4096, 1, 1 << 20, None, None)
    ),
    "create(FileSystem,Path,FsPermission)": lambda c, p: c.write(
        c.jvm.org.apache.hadoop.fs.FileSystem.create(c.fs, p, c.permission)
    ),
    "createNonRecursive(Path,boolean,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.createNonRecursive(p, True, 4096, 1, 1 << 20, None)
    ),
    "createNonRecursive(Path,FsPermission,boolean,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.createNonRecursive(p, c.permission, True, 4096, 1, 1 << 20, None)
    ),
    "createNonRecursive(Path,FsPermission,EnumSet,int,short,long,Progressable)": lambda c, p: c.write(
        c.fs.createNonRecursive(p, c.permission, c.flags("CREATE", "OVERWRITE"), 4096, 1, 1 << 20, None)
    ),
    "createNewFile(Path)": lambda c, p: c.fs.createNewFile(p),
    "createFile(Path)": lambda c, p: c.write(c.fs.createFile(p).overwrite(True).recursive().build()),
    "appendFile(Path)": lambda c, p: c.write(c.fs.appendFile(p).build()),
    "append(Path)": lambda c, p: c.write(c.fs.append(p)),
    "append(Path,int)": lambda c, p: c.write(c.fs.append(p, 4096)),
    "append(Path,int,Progressable)": lambda c, p: c.write(c.fs.append(p, 4096, None)),
    "append(Path,boolean)": lambda c, p: c.write(c.fs.append(p, True)),
    "append(Path,int,Progressable,boolean)": lambda c, p: c.write(c.fs.append(p, 4096, None, True)),
    "concat(Path,Path[])": lambda c, p: c.fs.concat(p, c.paths(_new(c, p))),
    "truncate(Path,long)": lambda c, p: c.fs.truncate(p, 0),
    "rename(Path,Path)": lambda c, p: c.fs.rename(p, c.beside(p)),
    "rename onto": lambda c, p: c.fs.rename(_new(c, p), p),
    "rename with options": lambda c, p: _overwriting_rename(c, p, c.beside(p)),
    "rename onto with options": lambda c, p: _overwriting_rename(c, _new(c, p), p),
    "delete(Path)": lambda c, p: c.fs.delete(p),
    "delete(Path,boolean)": lambda c, p: c.fs.delete(p, True),
    "delete one": lambda c, p: c.fs.delete(p, False),
    "deleteOnExit(Path)": lambda c, p: c.fs.deleteOnExit(p),
    "mkdirs(Path)": lambda c, p: c.fs.mkdirs(p),
    "mkdirs(Path,FsPermission)": lambda c, p: c.fs.mkdirs(p, c.permission),
    "mkdirs(FileSystem,Path,FsPermission)": lambda c, p: c.jvm.org.apache.hadoop.fs.FileSystem.mkdirs(
        c.fs, p, c.permission
    ),
    "copyFromLocalFile(Path,Path)": lambda c, p: c.fs.copyFromLocalFile(c.source, p),
    "copyFromLocalFile(boolean,Path,Path)": lambda c, p: c.fs.copyFromLocalFile(True, c.source, p),
    "copyFromLocalFile(boolean,boolean,Path,Path)": lambda c, p: c.fs.copyFromLocalFile(True, True, c.source, p),
    "copyFromLocalFile(boolean,boolean,Path[],Path)": lambda c, p: c.fs.copyFromLocalFile(
        True, True, c.paths(c.source), p
    ),
    "moveFromLocalFile(Path,Path)": lambda c, p: c.fs.moveFromLocalFile(c.source, p),
    "moveFromLocalFile(Path[],Path)": lambda c, p: c.fs.moveFromLocalFile(c.paths(c.source), p),
    "completeLocalOutput(Path,Path)": lambda c, p: c.fs.completeLocalOutput(p, c.source),
    "copyToLocalFile(Path,Path)": lambda c, p: c.fs.copyToLocalFile(p, c.target),
    "copyToLocalFile(boolean,Path,Path)": lambda c, p: c.fs.copyToLocalFile(True, p, c.target),
    "copyToLocalFile(boolean,Path,Path,boolean)": lambda c, p: c.fs.copyToLocalFile(True, p, c.target, True),
    "moveToLocalFile(Path,Path)": lambda c, p: c.fs.moveToLocalFile(p, c.target),
    "setPermission(Path,FsPermission)": lambda c, p: c.fs.setPermission(p, c.permission),
    "setOwner(Path,String,String)": lambda c, p: c.fs.setOwner(p, "nobody", "nogroup"),
    "setTimes(Path,long,long)": lambda c, p: c.fs.setTimes(p, 0, 0),
    "setReplication(Path,short)": lambda c, p: c.fs.setReplication(p, 3),
    "setQuota(Path,long,long)": lambda c, p: c.fs.setQuota(p, 1, 1),
    "setQuotaByStorageType(Path,StorageType,long)": lambda c, p: c.fs.setQuotaByStorageType(
        p, c.jvm.org.apache.hadoop.fs.StorageType.DISK, 1
    ),
    "setXAttr(Path,String,byte[])": lambda c, p: c.fs.setXAttr(p, "user.a", bytearray(b"1")),
    "setXAttr(Path,String,byte[],EnumSet)": lambda c, p: c.fs.setXAttr(p, "user.a", bytearray(b"1"), None),
    "removeXAttr(Path,String)": lambda c, p: c.fs.removeXAttr(p, "user.a"),
    "setAcl(Path,List)": lambda c, p: c.fs.setAcl(p, c.jvm.java.util.ArrayList()),
    "modifyAclEntries(Path,List)": lambda c, p: c.fs.modifyAclEntries(p, c.jvm.java.util.ArrayList()),
    "removeAclEntries(Path,List)": lambda c, p: c.fs.removeAclEntries(p, c.jvm.java.util.ArrayList()),
    "removeDefaultAcl(Path)": lambda c, p: c.fs.removeDefaultAcl(p),
    "removeAcl(Path)": lambda c, p: c.fs.removeAcl(p),
    "satisfyStoragePolicy(Path)": lambda c, p: c.fs.satisfyStoragePolicy(p),
    "setStoragePolicy(Path,String)": lambda c, p: c.fs.setStoragePolicy(p, "COLD"),
    "unsetStoragePolicy(Path)": lambda c, p: c.fs.unsetStoragePolicy(p),
    "createSymlink(Path,Path,boolean)": lambda c, p: c.fs.createSymlink(c.source, p, True),
    "createSnapshot(Path)": lambda c, p: c.fs.createSnapshot(p),
    "createSnapshot(Path,String)": lambda c, p: c.fs.createSnapshot(p, "s"),
    "renameSnapshot(Path,String,String)": lambda c, p: c.fs.renameSnapshot(p, "s", "t"),
    "deleteSnapshot(Path,String)": lambda c, p: c.fs.deleteSnapshot(p, "s"),
    "createMultipartUploader(Path)": lambda c, p: c.fs.createMultipartUploader(p).build().startUpload(p).get(),
    "createBulkDelete(Path)": lambda c, p: c.fs.createBulkDelete(p.getParent()).bulkDelete(_java_list(c.jvm, [p])),
}
"""What tries to change a file, by the method's signature; those without one are further ways to use one."""


def unknown_methods(spark: Any) -> list[str]:
    """Return the public methods of Hadoop's FileSystem that are neither harmless nor tried."""
    methods = spark._jvm.java.lang.Class.forName("org.apache.hadoop.fs.FileSystem").getMethods()
    found = {
        f"{method.getName()}({','.join(kind.getSimpleName() for kind in method.getParameterTypes())})"
        for method in methods
        if method.getDeclaringClass().getName() != "java.lang.Object" and method.getName() not in HARMLESS
    }
    return sorted(found - set(CHANGES))
