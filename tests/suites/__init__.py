"""Suites that others wrote, run on a catalog of Lockstep's: see docs/suites.md."""
