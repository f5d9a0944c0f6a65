"""What a lake keeps at least, whoever looks after it: said once, in its root, and obeyed by every maintainer.

    <root>/_lockstep/retention/<number, 8 digits>-<id>.json      one `Record`

A catalog of Spark's has settings, the command line has options, and neither knows the other's. So that a night's
`lockstep maintain` does not let expire what a catalog is set to keep for a year, the lake itself knows:

    a catalog that says longer than the lake raises it, when a session first uses it      (`raise_floor`)
    only who asks for it by name lowers it: `lockstep retention`, `CALL system.retention`  (`set_floor`)
    who says nothing keeps what the lake says; who says less is refused                    (`asked`, `check`)

The records with the greatest number count, and of those the longest of each setting. Who raises writes one more record
with that number, who sets writes one with the next, which says all. So nobody writes over another's record, no store
needs conditional writes for it, and of what two say at once the longer holds. Older records say who said what before.

Who writes looks again behind his write, so that neither hides what the other did, in whichever order they come:

    raise writes N, set writes N+1, set looks at N     set had not read it, sees it now, and raises it in N+1
    set writes N+1, raise writes N, raise reads back   raise had read N before, sees N+1 without it, and raises it there

One of the two looks always comes behind both writes; where both do, both write the same once more, which is no harm.

Nothing is here until somebody says something: then the defaults of the settings hold. A Lockstep from before there
were records neither reads nor removes them.
"""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime

import msgspec

from lockstep.conflict.lock_policy import Time
from lockstep.errors import (
    CorruptTimelineError,
    InvalidError,
    LockstepError,
    StoreRefusedError,
    UnavailableError,
)
from lockstep.lake.lake import Lake
from lockstep.retention.ages import Retention
from lockstep.retry import seconds
from lockstep.settings import DELETION_GRACE, OF_RETENTION, ORPHAN_AGE, RETENTION_AGE, RETENTION_VERSIONS, Setting
from lockstep.storage import Storage
from lockstep.timeline.entry import Value
from lockstep.timeline.files import UNREADABLE

FOLDER = "_lockstep/retention"
FORMAT = 1
NAMES = frozenset(setting.name for setting in OF_RETENTION)

OPTIONS = {
    RETENTION_AGE.name: "age",
    RETENTION_VERSIONS.name: "versions",
    DELETION_GRACE.name: "grace",
    ORPHAN_AGE.name: "orphan-age",
}
"""How `lockstep retention` calls the settings; `system.retention` too, with an underscore for the hyphen."""

MOST_TRIES = 10

_log = logging.getLogger(__name__)
_NAME = re.compile(r"(\d{8})-[A-Za-z0-9_-]{1,64}\.json")


class Said(Value, frozen=True):
    """What somebody said of one setting.

    Attributes:
        value: as the setting of a catalog is written, `365d` say.
        at: when, UTC.
        author: who.
        statement: in which words.
    """

    value: str
    at: Time
    author: str = ""
    statement: str = ""


class Record(Value, frozen=True):
    """What one process wrote down.

    Attributes:
        format: 1.
        settings: by the name of the setting.
    """

    format: int
    settings: dict[str, Said]


@dataclass(frozen=True, slots=True)
class Floor:
    """What a lake keeps at least.

    Attributes:
        number: of the records that count; 0 where there is none.
        said: by the name of the setting; nothing of those that nobody has said.
    """

    number: int
    said: Mapping[str, Said]


@dataclass(frozen=True, slots=True)
class Change:
    """What a lake keeps at least by one setting, and what somebody wants it to keep.

    Attributes:
        name: of the setting.
        value: what is kept by who says nothing: the lake's, else the default.
        wanted: what it is to be; None where that is not asked for.
        is_lower: whether that is less.
        author, at, statement: who said the value, when and in which words; nothing of a default.
    """

    name: str
    value: str
    wanted: str | None
    is_lower: bool
    author: str = ""
    at: datetime | None = None
    statement: str = ""

    @property
    def is_change(self) -> bool:
        """Whether something else is wanted."""
        return self.wanted not in (None, self.value)


_decode = msgspec.json.Decoder(Record).decode


# --- reading ----------------------------------------------------------------------------------------------------------


def read_floor(storage: Storage) -> Floor:
    """Return what a lake keeps at least; one listing where nobody has said anything.

    Raises:
        UnavailableError: the store failed.
        CorruptTimelineError: a record cannot be read, so nobody knows.
    """
    names = storage.list(FOLDER)
    number = max((int(match[1]) for name in names if (match := _NAME.fullmatch(name)) is not None), default=0)
    return Floor(number, _said_in(storage, names, number))


def _said_in(storage: Storage, names: Iterable[str], number: int) -> dict[str, Said]:
    """Return what the records of a number say, of each setting the longest."""
    of_number = [name for name in names if (match := _NAME.fullmatch(name)) is not None and int(match[1]) == number]
    return _longest(_read(storage, f"{FOLDER}/{name}") for name in of_number)


def look(storage: Storage, wanted: Mapping[str, str]) -> list[Change]:
    """Return what a lake keeps at least by each setting, and what would become of that.

    Raises:
        InvalidError: what is wanted is not what it must be.
        UnavailableError, CorruptTimelineError: see `read_floor`.
    """
    Retention.of(wanted)
    floor, found = read_floor(storage), list[Change]()
    for setting in OF_RETENTION:
        name, value, new = setting.name, _kept(floor, setting), wanted.get(setting.name)
        is_lower = new is not None and is_longer(setting, value, new)
        said = floor.said.get(name)
        by = () if said is None else (said.author, said.at, said.statement)
        found.append(Change(name, value, new, is_lower, *by))
    return found


def retention_of(storage: Storage, said: Mapping[str, str]) -> Retention:
    """Return what is kept by a catalog with these settings, or by who says nothing: what the lake says, or longer.

    Raises:
        InvalidError: one of the settings is not what it must be.
        UnavailableError, CorruptTimelineError: see `read_floor`.
    """
    return kept_by(read_floor(storage), said)


def asked(storage: Storage, said: Mapping[str, str]) -> Retention:
    """Return what is kept by who asks for so much: what he does not say is as the lake says.

    Raises:
        InvalidError: it is less than the lake keeps, or not what it must be.
        UnavailableError, CorruptTimelineError: see `read_floor`.
    """
    floor = read_floor(storage)
    Retention.of(said)
    check(floor, said)
    return kept_by(floor, said)


def kept_by(floor: Floor, said: Mapping[str, str]) -> Retention:
    """Return what is kept of a lake by who says so much: what the lake says, or longer.

    Raises:
        InvalidError: one of the settings is not what it must be.
    """
    Retention.of(said)  # what is less than the lake keeps, or is no amount at all, would not be seen behind it
    return Retention.of(at_least(floor, said))


def at_least(floor: Floor, said: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of retention by which a lake is looked after: of each the longer that somebody says."""
    longest = {name: each.value for name, each in floor.said.items()}
    for setting in OF_RETENTION:
        name, value = setting.name, said.get(setting.name)
        if value is not None and (name not in longest or is_longer(setting, value, longest[name])):
            longest[name] = value
    return longest


def of_lake(floor: Floor, said: Mapping[str, str]) -> dict[str, str]:
    """Return the settings of retention in which a lake keeps more than a catalog with such settings says, if it does.

    Where the catalog says nothing of one, that is whatever the lake says.
    """
    return {
        setting.name: kept.value
        for setting in OF_RETENTION
        if (kept := floor.said.get(setting.name)) is not None
        and (setting.name not in said or is_longer(setting, kept.value, said[setting.name]))
    }


def check(floor: Floor, said: Mapping[str, str]) -> None:
    """Refuse what somebody asks for if it is less than the lake keeps.

    Raises:
        InvalidError: it is.
    """
    for setting in OF_RETENTION:
        kept, value = floor.said.get(setting.name), said.get(setting.name)
        if kept is None or value is None or not is_longer(setting, kept.value, value):
            continue
        who = f"{kept.author or 'somebody'} said so at {kept.at.isoformat(timespec='seconds')}"
        raise InvalidError(
            f"{setting.name} of {value} is asked for, and this lake keeps {kept.value} ({who}: {kept.statement}). "
            "Nothing was deleted. Ask for that or for more, or lower it for all who look after the lake: "
            f"lockstep retention ROOT --{OPTIONS[setting.name]} {value}, or CALL system.retention"
        )


def check_since(floor: Floor, setting: Setting, since: datetime, now: datetime) -> None:
    """Refuse a time since when something stays, if that is less long ago than the lake keeps.

    Raises:
        InvalidError: it is.
    """
    check(floor, {setting.name: f"{max(math.ceil((now - since).total_seconds()), 0)}s"})


def is_longer(setting: Setting, value: str, other: str) -> bool:
    """Tell whether one value of a setting keeps more than another."""
    return _amount(setting, value) > _amount(setting, other)


# --- writing ----------------------------------------------------------------------------------------------------------


def tell(lake: Lake, said: Mapping[str, str], *, author: str, statement: str) -> bool:
    """Have a lake keep what a catalog is set to keep, where that is more than it keeps.

    Whoever only reads tables needs none of this, so it is never refused: the log says what the lake could not be told.
    Upkeep reads what the lake keeps by itself, and is refused where that cannot be read.

    Returns:
        Whether it is worth no other try: the lake knows, or this process may only read it, and whoever may write it
        tells it then.
    """
    if not said:
        return True
    try:
        if not lake.refusal:
            raise_floor(lake, said, author=author, statement=statement)
            return True
        if not higher(read_floor(lake.storage), said):
            return True
        why, is_over = lake.refusal, True
    except LockstepError as error:
        why, is_over = error.message, isinstance(error, StoreRefusedError)
    then = "Say it with lockstep retention where the lake may be written" if is_over else "The next session tries again"
    _log.warning(
        "the lake %s does not know of %s, and who looks after it from elsewhere may keep less. %s. %s",
        *(lake.storage.url, statement, then, why),
    )
    return is_over


def raise_floor(lake: Lake, said: Mapping[str, str], *, author: str, statement: str) -> dict[str, str]:
    """Have a lake keep what is said where that is more than it keeps; return what was raised.

    Raises:
        UnavailableError: the store failed; calling again is safe.
        CorruptTimelineError: see `read_floor`.
    """
    at = lake.clock()
    wanted = {key: Said(value=value, at=at, author=author, statement=statement) for key, value in said.items()}
    return _raise(lake, wanted)


def _raise(lake: Lake, said: Mapping[str, Said]) -> dict[str, str]:
    raised: dict[str, str] = {}
    more: dict[str, str] = {}
    for _ in range(MOST_TRIES):
        # Somebody may have set all of it meanwhile: what was said beside that does not count.
        floor = read_floor(lake.storage)
        more = higher(floor, {name: each.value for name, each in said.items()})
        if not more:
            return raised
        _write(lake, max(floor.number, 1), {name: said[name] for name in more})
        raised |= more
    raise UnavailableError(
        f"{FOLDER} in {lake.storage.url} does not have what was written there, {', '.join(sorted(more))}, or somebody "
        "lowers it all the time: see who runs lockstep retention, and run this again"
    )


def higher(floor: Floor, said: Mapping[str, str]) -> dict[str, str]:
    """Return what of it is more than the lake keeps, or than the default of what nobody has said."""
    return {
        setting.name: said[setting.name]
        for setting in OF_RETENTION
        if setting.name in said and is_longer(setting, said[setting.name], _kept(floor, setting))
    }


def set_floor(lake: Lake, said: Mapping[str, str], *, author: str, statement: str) -> Floor:
    """Have a lake keep so much from now on, be it more or less than before; what is not said stays as it is.

    What somebody raised between the look at what is kept and the write has the number that this write hides. So the
    records of that number are looked at again behind the write, and what of them is not said here, and is longer than
    what was written, is raised once more. A raise that is written later than that look reads back later, too, and finds
    this write itself: see the orders above. Who is killed, or loses the store, between his write and that look may have
    hidden a raise, until the next driver raises it again.

    Raises:
        InvalidError: a value is not what it must be.
        UnavailableError: the store failed, or somebody said something longer at the same time: look at what is kept.
        CorruptTimelineError: see `read_floor`.
    """
    Retention.of(said)
    floor = read_floor(lake.storage)
    new = {
        name: Said(value=value, at=lake.clock(), author=author, statement=statement)
        for name, value in said.items()
        if name not in floor.said or floor.said[name].value != value
    }
    if not new:
        return floor
    _write(lake, floor.number + 1, {**floor.said, **new})
    if hidden := _hidden(lake.storage, floor, said):
        _raise(lake, hidden)
    after = read_floor(lake.storage)
    for name, each in new.items():
        now = after.said.get(name)
        if now is None or now.value != each.value:
            what = "not set" if now is None else f"{now.value}, which {now.author or 'somebody'} said"
            raise UnavailableError(
                f"{name} is {what}: somebody else said what is kept at the same time as {each.value} was said. Look at "
                "lockstep retention, and say it again if it is still to be so"
            )
    return after


def _hidden(storage: Storage, floor: Floor, said: Mapping[str, str]) -> dict[str, Said]:
    """Return what has been raised since somebody read what is kept, and is not among what he has said himself."""
    since = _said_in(storage, storage.list(FOLDER), floor.number)
    others = {name: each.value for name, each in since.items() if name not in said}
    return {name: since[name] for name in higher(floor, others)}


def _write(lake: Lake, number: int, settings: dict[str, Said]) -> None:
    record = msgspec.json.encode(Record(format=FORMAT, settings=settings))
    lake.storage.put_once(f"{FOLDER}/{number:08d}-{lake.new_id()}.json", record)


def _read(storage: Storage, path: str) -> Record:
    data = storage.get(path)
    try:
        record = _decode(data or b"")
        if record.format == FORMAT:
            Retention.of({name: each.value for name, each in record.settings.items()})
    except (*UNREADABLE, InvalidError) as error:
        raise CorruptTimelineError(
            f"{path}: expected what the lake keeps at least: {error}. Nothing was deleted. Restore it from a backup, "
            "or delete it and say with lockstep retention how much is to be kept"
        ) from error
    if record.format != FORMAT or not record.settings.keys() <= NAMES:
        raise CorruptTimelineError(
            f"{path}: format {record.format} with {', '.join(sorted(record.settings))}, expected {FORMAT}. If a newer "
            "Lockstep wrote it, upgrade this one"
        )
    return record


def _longest(records: Iterable[Record]) -> dict[str, Said]:
    longest: dict[str, Said] = {}
    for record in records:
        for setting in OF_RETENTION:
            if (each := record.settings.get(setting.name)) is None:
                continue
            before = longest.get(setting.name)
            if before is None or is_longer(setting, each.value, before.value):
                longest[setting.name] = each
    return longest


def _kept(floor: Floor, setting: Setting) -> str:
    """Return what is kept where nobody says anything."""
    said = floor.said.get(setting.name)
    return (setting.default or "0") if said is None else said.value


def _amount(setting: Setting, value: str) -> float:
    return int(value) if setting is RETENTION_VERSIONS else seconds(setting, {setting.name: value})
