"""Every setting of Lockstep: its name, where it is set, its type and default, and what it means.

docs/settings.md is made of this list, and the code that reads a setting takes the setting's name and default from it.
`tests/unit/test_settings.py` says that no source reads a setting that is not here, and that each one here is read.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, TypeAlias

Place: TypeAlias = Literal["session", "catalog", "driver", "environment"]
"""Where a setting is set.

    session      `SET lockstep.<name> = …`, `spark.conf.set`, or `config` of a builder for all sessions of a driver
    catalog      `spark.sql.catalog.<catalog>.<name>`, before the session first uses the catalog
    driver       a setting of Spark's that is read once, when the driver starts
    environment  a variable of the environment of the process that Lockstep's Python runs in
"""

Kind: TypeAlias = Literal["text", "choice", "true or false", "whole number", "seconds", "duration", "path", "class"]

PREFIX_OF_CATALOG = "spark.sql.catalog."


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting.

    Attributes:
        name: as the place has it: of a catalog what follows `spark.sql.catalog.<catalog>.`, else the whole name.
        place: where it is set.
        kind: what a value is. A duration is `500ms`, `30s`, `10min`, `1h`, `7d`, or a plain number of seconds.
        meaning: what it does, as Markdown.
        default: the value where nothing is said; None where there is none.
        otherwise: what happens without a value, where that is more than a default, as Markdown.
        choices: the values of a choice.
        is_secret: whether its value is shown nowhere.
        since: the first version that has it.
    """

    name: str
    place: Place
    kind: Kind
    meaning: str
    default: str | None = None
    otherwise: str = ""
    choices: tuple[str, ...] = ()
    is_secret: bool = False
    since: str = "0.1"

    @property
    def key(self) -> str:
        """The name under which the shim hands the setting to Python: without the prefix of its place."""
        return self.name.removeprefix("lockstep.") if self.place == "session" else self.name

    def value_in(self, options: Mapping[str, str]) -> str | None:
        """Return the value among a catalog's options, or a session's settings by their keys, else the default."""
        return options.get(self.key, self.default)

    def of(self, catalog: str) -> str:
        """Return the whole name in Spark of a catalog's setting."""
        return f"{PREFIX_OF_CATALOG}{catalog}.{self.name}"


LEVELS = ("SERIALIZABLE", "SNAPSHOT")

# --- of a session -----------------------------------------------------------------------------------------------------

SESSION_ISOLATION = Setting(
    "lockstep.isolation",
    "session",
    "choice",
    "The [isolation level](isolation.md#the-levels) of transactions that do not ask for one, and of statements on "
    "their own.",
    otherwise="the catalog's `isolation`",
    choices=LEVELS,
)
SESSION_RECORD_READS = Setting(
    "lockstep.record_reads",
    "session",
    "true or false",
    "Whether a `SERIALIZABLE` transaction that only read is checked and recorded like one that wrote, which excludes "
    "the [read-only anomaly](isolation.md#read-only-transactions). It costs one write of the timeline for each.",
    otherwise="the catalog's `record-reads`",
)
ON_STATEMENT_ERROR = Setting(
    "lockstep.on_statement_error",
    "session",
    "choice",
    "What `COMMIT` does after a write that failed: roll back and say so (25P02), or commit what did not fail. What it "
    "is at `BEGIN` counts ([grammar](../sql/grammar.md#when-a-statement-fails)).",
    default="fail",
    choices=("fail", "continue"),
)
SHARED_TRANSACTION = Setting(
    "lockstep.shared_transaction",
    "session",
    "text",
    "A name. Sessions of one driver that set the same name share "
    "[their transactions](hosts.md#connections-that-share-a-transaction).",
    otherwise="each session has transactions of its own",
)
SHARED_TRANSACTION_TIMEOUT = Setting(
    "lockstep.shared_transaction_timeout",
    "session",
    "seconds",
    "How long a shared transaction whose connections are all closed waits for another one, before it is rolled back. "
    "What it is at `BEGIN` counts.",
    default="60",
)

TRANSACTION_TIMEOUT = Setting(
    "lockstep.transaction_timeout",
    "session",
    "duration",
    "How long a transaction may be open, whatever it does, before it is rolled back (25P04); `0` is for ever. What it "
    "is at `BEGIN` counts.",
    otherwise="the catalog's `transaction-timeout`",
)
IDLE_TIMEOUT = Setting(
    "lockstep.idle_in_transaction_timeout",
    "session",
    "duration",
    "How long a transaction may be open without executing a statement, before it is rolled back (25P03); "
    "`0` is for ever. A block of `BEGIN ATOMIC` is never idle. What it is at `BEGIN` counts.",
    otherwise="the catalog's `idle-in-transaction-timeout`",
)
STATEMENT_TIMEOUT = Setting(
    "lockstep.statement_timeout",
    "session",
    "duration",
    "How long a statement of a transaction may run before it is cancelled (57014), and counts as [one that "
    "failed](../sql/grammar.md#when-a-statement-fails); `0` is for ever. It does not apply to `COMMIT` and `ROLLBACK`, "
    "nor to statements on their own. What it is at `BEGIN` counts.",
    otherwise="the catalog's `statement-timeout`",
)
DRIVER_STATE_FILES = Setting(
    "lockstep.driver_state_files",
    "session",
    "whole number",
    "If a table has at most so many files and tombstones, the driver keeps in its memory which files the table has, "
    "once for all sessions and transactions ([how](design.md#which-uri-which-version)). For a larger table, or with "
    "`0`, Spark's executors find them, once for each transaction.",
    default="10000",
)

# --- of a catalog -----------------------------------------------------------------------------------------------------

ROOT = Setting(
    "root",
    "catalog",
    "path",
    "Where the lake is: a local path, `file://…`, `s3://bucket/prefix`, `gs://bucket/prefix`, "
    "`abfss://container@account…/prefix` or `hdfs://nameservice/path` ([storage](storage.md)).",
    otherwise="required",
)
CREATE = Setting(
    "create",
    "catalog",
    "true or false",
    "Whether to make an empty lake where there is none. `lockstep.configure` and `lockstep conf` say `true` for local "
    "paths unless told otherwise.",
    default="false",
)
ISOLATION = Setting(
    "isolation",
    "catalog",
    "choice",
    "The [isolation level](isolation.md#the-levels) of transactions that do not ask for one, in sessions that do not "
    "either.",
    default="SERIALIZABLE",
    choices=LEVELS,
)
RECORD_READS = Setting(
    "record-reads",
    "catalog",
    "true or false",
    "As `lockstep.record_reads`, for all sessions that do not say it themselves.",
    default="false",
)
OUTSIDE_WRITES = Setting(
    "outside-writes",
    "catalog",
    "choice",
    "What happens inside a transaction to a write that `ROLLBACK` could not undo, for example one to another catalog: "
    "it is refused (25001), or it takes effect at once, whatever becomes of the transaction "
    "([limits](limits.md#writing)).",
    default="refuse",
    choices=("refuse", "allow"),
)
RESOLUTION = Setting(
    "resolution",
    "catalog",
    "choice",
    "When two open transactions that collide are told: at `COMMIT`, or at the "
    "[statement](isolation.md#conflicts-at-the-statement). All transactions on a table must use the same value.",
    default="first-committer-wins",
    choices=("first-committer-wins", "wait-die", "wound-wait"),
)
LOCK_TIMEOUT = Setting(
    "lock-timeout",
    "catalog",
    "duration",
    "How long a statement waits for another transaction, in all. Only for `wait-die` and `wound-wait`.",
    default="30s",
)
ANNOUNCEMENT_EXPIRY = Setting(
    "announcement-expiry",
    "catalog",
    "duration",
    "How long others respect what a transaction has announced, if no statement renews it. Only for `wait-die` and "
    "`wound-wait`. At least a second, at most a hundred years.",
    default="10min",
)
CATALOG_TRANSACTION_TIMEOUT = Setting(
    "transaction-timeout",
    "catalog",
    "duration",
    "As `lockstep.transaction_timeout`, for all sessions that do not say it themselves.",
    default="0",
)
CATALOG_IDLE_TIMEOUT = Setting(
    "idle-in-transaction-timeout",
    "catalog",
    "duration",
    "As `lockstep.idle_in_transaction_timeout`, for all sessions that do not say it themselves.",
    default="0",
)
CATALOG_STATEMENT_TIMEOUT = Setting(
    "statement-timeout",
    "catalog",
    "duration",
    "As `lockstep.statement_timeout`, for all sessions that do not say it themselves.",
    default="0",
)
COMMIT_ATTEMPTS = Setting(
    "commit-attempts",
    "catalog",
    "whole number",
    "How often a commit tries to put its entry into the timeline, if others with which it does not conflict are "
    "faster. 1 or more.",
    default="1000",
)
COMMIT_TIMEOUT = Setting(
    "commit-timeout",
    "catalog",
    "duration",
    "For how long a commit keeps trying to do so.",
    default="60s",
)
CHECKPOINT_INTERVAL = Setting(
    "checkpoint-interval",
    "catalog",
    "whole number",
    "Each time that so many database versions were made, a commit writes a [checkpoint](timeline.md#checkpoints), "
    "after its answer. Opening the lake then reads this instead of all entries before it. `0` writes none. Catalogs of "
    "one driver share a lake, and the setting of the first of them counts.",
    default="100",
)
FSYNC_DATA = Setting(
    "fsync-data",
    "catalog",
    "true or false",
    "For a lake on a local disk: whether `COMMIT` syncs the files that the transaction wrote to the disk before it "
    "answers, so that they [survive a power cut](operating.md#power-cuts-and-local-disks), too. "
    "[What it costs](benchmarks.md#fsync-data) depends on the disk and on how much was written.",
    default="false",
)
RETENTION_AGE = Setting(
    "retention-age",
    "catalog",
    "duration",
    "`expire_snapshots` and `maintain` keep each [database version](operating.md#what-stays-behind) that was the "
    "newest at some time within this period, so that each moment of it can be read. They also keep what is known of "
    "transactions that were rolled back within it, at most the last 1,000. If that is more than [the lake "
    "keeps](operating.md#how-much-is-kept), the lake keeps as much from then on, and if it is less, what the lake "
    "keeps applies; so with the next three.",
    default="30d",
)
RETENTION_VERSIONS = Setting(
    "retention-versions",
    "catalog",
    "whole number",
    "`expire_snapshots` and `maintain` also keep so many of the newest versions, however old they are; versions that "
    "changed nothing, as expiry makes them, do not count. 1 or more.",
    default="100",
)
DELETION_GRACE = Setting(
    "deletion-grace",
    "catalog",
    "duration",
    "How long a file that nobody needs is marked before a later run deletes it, for the sake of readers that began "
    "before that. Also how long a version stays at which a reader may have begun. Make it longer than the longest "
    "query.",
    default="24h",
)
ORPHAN_AGE = Setting(
    "orphan-age",
    "catalog",
    "duration",
    "How old litter must be before it is deleted: files that no version names, and what dead transactions staged. At "
    "least an hour. Make it longer than the longest statement.",
    default="7d",
)
MAINTAIN_OPTIMIZE = Setting(
    "maintain-optimize",
    "catalog",
    "true or false",
    "Whether `CALL lake.system.maintain()` has Delta compact the tables (`OPTIMIZE`) as well, unless the call says it "
    "itself (`optimize => false`). A compaction can make an `UPDATE`, `DELETE` or `MERGE` beside it run again.",
    default="true",
)
STORE = Setting(
    "store.*",
    "catalog",
    "text",
    "How an object store is reached, by Lockstep's requests and by Spark's: `store.endpoint`, `store.region`, "
    "`store.access_key_id`, … ([all of them](storage.md#options)). `options=` of `lockstep.configure` sets them. "
    "HDFS has none.",
    otherwise="the `AWS_*`, `GOOGLE_*` and `AZURE_*` variables",
)
LOCATIONS = Setting(
    "locations.*",
    "catalog",
    "text",
    "[Places beside the root](storage.md#locations) in which tables may lie, each by a name: "
    "`locations.<name>.url` says the folder, and `locations.<name>.store.*`, by the options of `store.*`, how it is "
    "reached. `locations=` of `lockstep.configure` sets them.",
    otherwise="each place is reached as the root is",
)
LOCATIONS_ONLY = Setting(
    "locations-only",
    "catalog",
    "true or false",
    "Whether tables below the root and in `locations.*` are all that is read, written and adopted, so that [who may "
    "write the root leads nobody elsewhere](security.md#locations): any other is refused (42501).",
    default="false",
)
SESSION_NAMES = Setting(
    "session-names",
    "catalog",
    "true or false",
    "Whether a name of Spark's session catalog (`shop.orders`, `spark_catalog.shop.orders`) [means this lake's table]"
    "(migration.md#old-names) where the lake has one of that name. At most one catalog of a session says "
    "so, and before the session first uses it.",
    default="false",
)
ARBITER = Setting(
    "arbiter",
    "catalog",
    "text",
    "Who decides which entry a database version is, of a lake whose store cannot "
    "([arbiters](storage.md#arbiters)): `valkey://host:6379/0?prefix=lockstep`, `dynamodb://table?region=…`. With "
    "`create`, a new lake is made with it, for ever; for one that is there it must be the lake's own.",
    otherwise="`LOCKSTEP_ARBITER`, for those lakes that have it",
)

# --- of a driver ------------------------------------------------------------------------------------------------------

EXTENSIONS = Setting(
    "spark.sql.extensions",
    "driver",
    "class",
    "Must contain `lockstep.spark.Extensions`; others may stand beside it.",
    otherwise="required",
)
CATALOG = Setting(
    "spark.sql.catalog.<catalog>",
    "driver",
    "class",
    "`lockstep.spark.LockstepCatalog`, for each name that a lake has in SQL. A session may set it too.",
    otherwise="required",
)
SPARK_CATALOG = Setting(
    "spark.sql.catalog.spark_catalog",
    "driver",
    "class",
    "Must be Delta's catalog, or Delta refuses to work (F0000). "
    "`lockstep.spark.LockstepCatalog` is refused (F0000): see [old names](migration.md#old-names).",
    default="org.apache.spark.sql.delta.catalog.DeltaCatalog",
)
LOG_STORE = Setting(
    "spark.delta.logStore.lockstep.impl",
    "driver",
    "class",
    "How Delta commits under Lockstep's URIs. Filled in; leave it alone.",
    default="lockstep.spark.LockstepLogStore",
)
REDACTION = Setting(
    "spark.redaction.regex",
    "driver",
    "text",
    "Names of settings whose values Spark hides: its own default, and what stores have for keys. Filled in, beside "
    "what is said; see docs/security.md.",
    otherwise="Spark's",
)
FILE_SYSTEM = Setting(
    "spark.hadoop.fs.lockstep.impl",
    "driver",
    "class",
    "What opens Lockstep's URIs. Filled in; leave it alone.",
    default="lockstep.spark.LockstepFileSystem",
)
FILE_CONTEXT = Setting(
    "spark.hadoop.fs.AbstractFileSystem.lockstep.impl",
    "driver",
    "class",
    "The same for what asks Hadoop for a `FileContext`. Filled in; leave it alone.",
    default="lockstep.spark.LockstepFileContext",
)
FILE_SYSTEM_CACHE = Setting(
    "spark.hadoop.fs.lockstep.impl.disable.cache",
    "driver",
    "true or false",
    "Keeps Hadoop from remembering a file system for each transaction for ever. Filled in; leave it alone.",
    default="true",
)
HOST_PYTHON = Setting(
    "spark.lockstep.python",
    "driver",
    "path",
    "The Python that a driver without one starts Lockstep with ([which Python](hosts.md#settings)).",
    otherwise="`spark.pyspark.driver.python`, `spark.pyspark.python`, `PYSPARK_DRIVER_PYTHON`, `PYSPARK_PYTHON`, "
    "`python3`, the first of them that there is",
)

# --- of the environment -----------------------------------------------------------------------------------------------

JARS = Setting(
    "LOCKSTEP_JARS",
    "environment",
    "path",
    "A folder with Delta's two jars, which is looked into before anything is fetched.",
    otherwise="Spark's own `jars` folder, then the cache, then Maven Central",
)
CACHE_HOME = Setting(
    "XDG_CACHE_HOME",
    "environment",
    "path",
    "Fetched jars are kept in its `lockstep/jars`.",
    default="~/.cache",
)
SPARK_HOME = Setting(
    "SPARK_HOME",
    "environment",
    "path",
    "The Spark that is used, if it is not the one that `pip` installed with pyspark.",
    otherwise="pyspark's own folder",
)
JAVA_HOME = Setting(
    "JAVA_HOME",
    "environment",
    "path",
    "The Java that fetches jars, as Spark would take it.",
    otherwise="the first `java` of the `PATH`",
)
DRIVER_PYTHON = Setting(
    "PYSPARK_DRIVER_PYTHON",
    "environment",
    "path",
    "As `spark.lockstep.python`, where no setting of Spark's says one.",
)
WORKER_PYTHON = Setting(
    "PYSPARK_PYTHON",
    "environment",
    "path",
    "As `PYSPARK_DRIVER_PYTHON`, after it.",
)
LOCATIONS_FILE = Setting(
    "LOCKSTEP_LOCATIONS",
    "environment",
    "path",
    "A file that registers [locations](storage.md#locations) for the command line, and for programs without Spark that "
    'say none, in TOML, by the names of a catalog\'s settings: `locations.<name>.url = "…"`, `locations-only = true`.',
    otherwise="none",
)
DEFAULT_ARBITER = Setting(
    "LOCKSTEP_ARBITER",
    "environment",
    "text",
    "As a catalog's `arbiter`, for new lakes and for all that have this arbiter; others go on without. The command "
    "line takes it from here.",
    otherwise="none",
)
ARBITER_USERNAME = Setting(
    "LOCKSTEP_ARBITER_USERNAME",
    "environment",
    "text",
    "The user at an arbiter in Valkey or Redis. DynamoDB's credentials come from the standard `AWS_*` variables, "
    "profiles and roles.",
    otherwise="its default user",
)
ARBITER_PASSWORD = Setting(
    "LOCKSTEP_ARBITER_PASSWORD",
    "environment",
    "text",
    "The password there. It is neither stored nor shown.",
    otherwise="none",
    is_secret=True,
)
ENDPOINT_OF_S3 = Setting(
    "AWS_ENDPOINT_URL_S3",
    "environment",
    "text",
    "The address of an S3 server that is not Amazon's, for Lockstep's own requests.",
    otherwise="`AWS_ENDPOINT_URL`",
)
ENDPOINT = Setting(
    "AWS_ENDPOINT_URL",
    "environment",
    "text",
    "As `AWS_ENDPOINT_URL_S3`, after it. `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY`, `AWS_SESSION_TOKEN` and the "
    "other standard variables are read by obstore.",
    otherwise="`AWS_ENDPOINT`",
)
OLD_ENDPOINT = Setting("AWS_ENDPOINT", "environment", "text", "As `AWS_ENDPOINT_URL`, after it.", otherwise="Amazon's")
ENDPOINT_OF_GS = Setting(
    "GOOGLE_BASE_URL",
    "environment",
    "text",
    "The address of a server of Google Cloud Storage's protocol, for Lockstep's own requests.",
    otherwise="Google's",
)
ENDPOINT_OF_AZURE_STORAGE = Setting(
    "AZURE_STORAGE_ENDPOINT",
    "environment",
    "text",
    "The address of a server of Azure's protocol for blobs, for Lockstep's own requests.",
    otherwise="`AZURE_ENDPOINT`",
)
ENDPOINT_OF_AZURE = Setting(
    "AZURE_ENDPOINT",
    "environment",
    "text",
    "As `AZURE_STORAGE_ENDPOINT`, after it. `AZURE_STORAGE_USE_EMULATOR` is not heeded.",
    otherwise="the account's",
)
REGION = Setting("AWS_REGION", "environment", "text", "The region of an S3 server.", otherwise="`AWS_DEFAULT_REGION`")
DEFAULT_REGION = Setting("AWS_DEFAULT_REGION", "environment", "text", "As `AWS_REGION`, after it.")
VIRTUAL_HOSTS = Setting(
    "AWS_VIRTUAL_HOSTED_STYLE_REQUEST",
    "environment",
    "true or false",
    "Whether requests of S3 name the bucket in the host's name and not in the path, where the option of that name does "
    "not say it.",
    otherwise="in the path",
)

SETTINGS: tuple[Setting, ...] = tuple(value for value in list(vars().values()) if isinstance(value, Setting))
"""All of them, in the order of this module."""


OF_RETENTION = (RETENTION_AGE, RETENTION_VERSIONS, DELETION_GRACE, ORPHAN_AGE)
"""Those of a catalog of which the lake itself may say more."""


def at(place: Place) -> list[Setting]:
    """Return the settings of one place, in the order of the list."""
    return [setting for setting in SETTINGS if setting.place == place]


def store_options(settings: Mapping[str, str]) -> dict[str, str]:
    """Return the options of a catalog's store, by their own names."""
    prefix = STORE.key.removesuffix("*")
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}


def location_settings(settings: Mapping[str, str]) -> dict[str, str]:
    """Return what is set of a catalog's locations: `<name>.url` and `<name>.store.<option>`."""
    prefix = LOCATIONS.key.removesuffix("*")
    return {key.removeprefix(prefix): value for key, value in settings.items() if key.startswith(prefix)}
