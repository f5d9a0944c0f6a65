"""Requests about the procedures of a catalog, `CALL lake.system.<procedure>(…)`, and their answers."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from lockstep.spark.host.protocol.base import AboutCatalog, Answer, Options, Parts
from lockstep.spark.host.protocol.transactions import DueCheckpoint
from lockstep.timeline.entry import ViewDefinition
from lockstep.timeline.functions import FunctionDefinition

Value: TypeAlias = bool | int | str | list[str | None] | None
"""What is given to a procedure, or what one gives: a time as microseconds since 1970, UTC."""


Arguments: TypeAlias = dict[str, Value]
"""What is given to a procedure, by the names of parameters; null is as if nothing was given."""

Row: TypeAlias = list[Value]
"""A value for each column of what a procedure gives."""


class Typed(msgspec.Struct, frozen=True, kw_only=True):
    """A parameter, or a column of what a procedure gives."""

    name: str
    """What it is called."""

    type: str
    """Its type, as Spark's SQL writes it."""


class Procedures(AboutCatalog, frozen=True, kw_only=True, tag="procedures"):
    """Ask which procedures there are."""


class ProceduresAnswer(Answer, frozen=True, kw_only=True):
    """All of them: they are in the namespace `system`."""

    names: list[str]
    """Sorted."""


class DescribeProcedure(AboutCatalog, frozen=True, kw_only=True, tag="procedure"):
    """Ask how a procedure is called, and what it gives."""

    procedure: str
    """Its name, in whatever case."""


class ProcedureAnswer(Answer, frozen=True, kw_only=True):
    """How a procedure is called."""

    name: str
    """Its name."""

    says: str
    """What it does, in a sentence."""

    parameters: list[Typed]
    """What may be given to it, in order."""

    required: int
    """So many of them, the first, must be given."""

    columns: list[Typed]
    """The columns of the rows that it gives."""


class BindProcedure(AboutCatalog, frozen=True, kw_only=True, tag="bind_procedure"):
    """Ask what a call means, before anything of it is computed."""

    procedure: str
    """The procedure's name, in whatever case."""

    positional: int
    """How many arguments are given by their places."""

    named: list[str]
    """The names of the others, as they were said."""


class BindAnswer(Answer, frozen=True, kw_only=True):
    """What a call means."""

    name: str
    """The procedure's name."""

    arguments: list[Typed]
    """The parameters that the arguments are for, in the order of the call."""

    columns: list[Typed]
    """The columns of the rows that it gives."""

    changes: bool
    """Whether it may change something: then a failure of it is one of a write."""

    needs_transaction: bool
    """Whether it is only done inside a transaction: outside of one, one of its own is to be begun for it."""


class ListedTable(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A table or a view, as Spark's session catalog tells it."""

    name: str
    """The last part of its name."""

    kind: str
    """`MANAGED`, `EXTERNAL`, `VIEW` or what else Spark calls it; `TEMPORARY VIEW` of one that only the session has."""

    provider: str | None
    """Its format, in whatever case; null if the catalog does not say."""

    location: str | None
    """A whole URL of its folder, in which nothing is escaped; null if the catalog does not say."""


class ListedName(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A name in the text of a view or a function."""

    written: Parts
    """Its parts, as the text has them."""

    meaning: Parts
    """The whole name that this is where the text was made."""


class ListedDefinition(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A view or a function of Spark's session catalog; where the lake is to look for its names is still to be said."""

    name: str
    """The last part of its name."""

    is_function: bool
    """Whether it is a function: a view may have the same name."""

    view: ViewDefinition | None = None
    """What it says, if it is a view that can be looked at."""

    function: FunctionDefinition | None = None
    """What it says, if it is a function in SQL that can be looked at."""

    problem: str | None = None
    """What keeps it from being a lake's, whatever it names; it begins with a verb. Null if nothing does."""

    reads: list[ListedName] = []
    """The tables and views that it names."""

    calls: list[ListedName] = []
    """The functions that it names and that are not Spark's own."""


class ListedSchema(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What Spark's session catalog has in a schema, all of it that the session may see."""

    implementation: str
    """The class of what the session calls `spark_catalog`."""

    name: str | None
    """The schema's name as the catalog has it; null if it has none of that name."""

    tables: list[ListedTable]
    """What `SHOW TABLES` lists in it, and is still there."""

    definitions: list[ListedDefinition] = []
    """Its views and functions; none before Spark 4.2, where a lake can have neither."""


class CallProcedure(AboutCatalog, frozen=True, kw_only=True, tag="call"):
    """Call a procedure, in the open transaction or on its own."""

    procedure: str
    """Its name, as `BindAnswer` has it."""

    arguments: dict[str, Value]
    """What was given, by the names of parameters; null is as if nothing was given."""

    text: str
    """The statement, for the timeline."""

    catalogs: dict[str, Options]
    """What is set for each Lockstep catalog of the session, by its name: nothing of it may be logged or shown."""

    listed: ListedSchema | None = None
    """What the session catalog has in the schema that the first answer to this call named in `lists`."""


class Restore(msgspec.Struct, frozen=True, kw_only=True):
    """A table whose log is to be restored by Delta, inside the transaction."""

    table: list[str]
    """Its name in parts, without the catalog."""

    version: int
    """The table version."""


class CallAnswer(Answer, frozen=True, kw_only=True):
    """What a procedure gives."""

    rows: list[list[Value]]
    """A value for each column. Of `database_version`, null is that which the transaction will make, if it makes any."""

    restores: list[Restore]
    """What is left to do, before the transaction may commit."""

    compacts: list[list[str]]
    """The tables that Delta is to compact, each in a commit of its own, by their names in parts without the catalog."""

    looks: list[list[str]]
    """The tables that come back as they were last, by name: their files are to be looked for before that."""

    checkpoints: list[DueCheckpoint]
    """What Delta is to write, of tables that the procedure has committed; they may be another lake's."""

    nothing: bool
    """Whether the call, which has a transaction of its own, leaves that with nothing to commit: no version is made."""

    lists: str | None
    """The schema of Spark's session catalog that is to be listed: nothing was done, and the call is to be sent once
    more, with `listed`. Null of every other answer."""


Request: TypeAlias = Procedures | DescribeProcedure | BindProcedure | CallProcedure
