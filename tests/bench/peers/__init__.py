"""Lockstep beside other systems with transactions over several tables, in one run; see `tests.bench.peers.__main__`."""
