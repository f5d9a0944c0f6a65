"""Exports: a database version as a lake of its own, with or without the data, or as one file."""
