"""Java classes that a test makes, in the driver's JVM, by the compiler that Spark has for its generated code."""

from __future__ import annotations

from typing import Any


def compiled(jvm: Any, name: str, source: str) -> Any:
    """Compile a class and return it, as a `java.lang.Class`."""
    compiler = jvm.org.codehaus.janino.SimpleCompiler()
    compiler.setParentClassLoader(jvm.java.lang.Thread.currentThread().getContextClassLoader())
    compiler.cook(source)
    return compiler.getClassLoader().loadClass(name)
