"""Delta's side of Lockstep: the actions of a commit, and what COMMIT does to them before they are ratified.

    actions     what a commit says: parse, render, its footprint for the conflict check, its counts, its real paths
    collapse    the staged commits of one transaction become one commit
    rebase      a commit checked against others is given the version, row ids and timestamps it lands with

Nothing in these three does I/O or reads a clock. "Protocol" in their docstrings is Delta's PROTOCOL.md.
"""
