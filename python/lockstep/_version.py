"""The version of Lockstep: the only place that says it (pyproject.toml and build.sbt read this line)."""

__version__ = "0.1.0"
