"""Puts DuckDB's extensions, which came as packages, where DuckDB looks for them; run in .venv-peers, by its target."""

from __future__ import annotations

from duckdb_extensions import import_extension  # type: ignore[import-not-found]  # in .venv-peers alone

from tests.bench.peers.ducklake import EXTENSIONS

if __name__ == "__main__":
    for extension in EXTENSIONS:
        import_extension(extension)
