"""Delta's side of Lockstep: the actions of a commit, and what COMMIT does to them before they are ratified.

    actions     what a commit says: its lines, parsed and rendered, and what is said of one file
    footprint   what commits touched: all that the conflict check and a rebase need to know of them
    counts      how many files and rows a commit adds and removes
    real_paths  where its paths lead, without a transaction's overlay
    collapse    the staged commits of one transaction become one commit
    rebase      a commit checked against others is given the version, row ids and timestamps it lands with
    predicates  whether a data file may hold a row that satisfies a condition, whether a row may satisfy two; made of
                conditions (three-valued logic), statistics (what a log says of a file) and ranges (sets of values)

Nothing in these does I/O or reads a clock. "Protocol" in their docstrings is Delta's PROTOCOL.md.
"""
