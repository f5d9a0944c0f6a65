"""Delta tables without Spark: read at a version, written in transactions, by Arrow, DuckDB and `lockstep.catalog`.

    opened        a lake, as `lockstep.open` returns it; `transaction`, `at`, `run`
    transaction   a transaction, for one `with` block
    table         one table of it: append, overwrite, delete, update; merge (`merging`), alter (`altering`)
    version       all tables of one database version, for Arrow, DuckDB and Polars

What these are made of:

    schema        Delta's types as Arrow's and DuckDB's           conform     values as a table's columns take them
    layout        what a table is, and what is refused of it      statistics  what a log says of a data file's rows
    state         a table as a transaction sees it                partitions  partition values, and folders
    conditions    which rows a predicate can be about             writing     data files, from rows
    queries       DuckDB, over tables of a lake                   reading     rows, from data files
    changes       rows that go and come, as a commit              commits     a commit, staged for a transaction
    evolving      what a table becomes by a change of it          mapping     columns with other names in files
    spark_sql     Spark's SQL that DuckDB judges alike            checks      constraints and defaults, of rows
    spark_grammar its grammar, as far as that goes                spark_tokens its words and signs
    spark_texts   texts that sqlglot takes as Spark does          statement   what a statement that fails leaves
    properties    which properties a table may have              restoring   RESTORE DATABASE, and reverts
    views         a view, as Spark records it                     row_ids     ids of rows, where those are tracked
    generated     generated columns, of what both compute alike
    select_types  which columns a query of Spark's SQL gives      spark_types of which types
    coming_back   whether the files of what comes back are there

Nothing here imports Spark; pyarrow, duckdb, deltalake and polars are imported where they are used
(`pip install 'lockstep-delta[python]'`).
"""

from lockstep.errors import UnsupportedError

try:
    import pyarrow as pa  # noqa: F401
except ImportError as error:
    raise UnsupportedError(
        "tables without Spark take pyarrow and others: pip install 'lockstep-delta[python]'"
    ) from error
