"""Lockstep in a world in which one thread runs at a time, and a seed says which: see tests/README.md."""
