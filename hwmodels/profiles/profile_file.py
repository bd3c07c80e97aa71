"""Profiles on disk: one JSON document, the same bytes for the same profile, with a digest of its content."""

import hashlib
import json
import math
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from itertools import pairwise
from pathlib import Path
from typing import Any, Final, NoReturn, TypeVar

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Floats, Lattice, OpTables, Profile, Stamp
from hwmodels.reading import read_limited

# Reads a profile's stamp and tables from parsed JSON; checks every rule and names the key in errors.

# Least value of each axis, in the order of OpTables' docstring.
_AXES: Final[Mapping[str, tuple[int, ...]]] = {
    "decode": (1, 1),
    "prefill": (1, 0),
    "mixed": (1, 0, 1, 1),
    "skew": (0, 1),
    "experts": (1, 1),
}
# Tables that a profile of a dense model lacks; older files without them can still be read.
OF_MIXTURES: Final = ("experts", "exchange")
Member = TypeVar("Member")
_LARGEST_COUNT: Final = 2**53  # JSON readers in any language keep these exact
_LONGEST_ECHO: Final = 60  # characters of a wrong value


@dataclass(frozen=True, slots=True)
class FieldPath:
    """The place of a value in a file, for error messages."""

    file: str
    key: str = ""

    def inside(self, key: str | int) -> "FieldPath":
        """The place of a member of this value."""
        step = f"[{key}]" if isinstance(key, int) else f".{key}" if self.key else key
        return FieldPath(self.file, self.key + step)

    def refuse(self, reason: str) -> NoReturn:
        """Raise the error about this place."""
        raise HardwareError(f"{self.file}: {f'{self.key} ' if self.key else ''}{reason}")

    def keys(self, value: Any, wanted: Sequence[str], optional: Sequence[str] = ()) -> Mapping[str, Any]:
        """``value`` as an object with exactly these keys, and possibly ``optional`` ones."""
        if not isinstance(value, dict):
            self.refuse(f"must be an object with the keys {', '.join(wanted)}")
        if missing := [key for key in wanted if key not in value]:
            self.refuse(f"lacks the key {missing[0]!r}; it needs {', '.join(wanted)}")
        if unknown := [key for key in value if key not in (*wanted, *optional)]:
            self.refuse(f"has an unknown key {unknown[0]!r}; write only {', '.join(wanted)}")
        return value

    def items(self, value: Any) -> list[Any]:
        """``value`` as a list."""
        if not isinstance(value, list):
            self.refuse("must be a list")
        return value

    def text(self, value: Any) -> str:
        """``value`` as a non-empty text."""
        if not isinstance(value, str) or not value.strip():
            self.refuse(f"is {_shown(value)}; write a text that is not empty")
        return value

    def count(self, value: Any, least: int) -> int:
        """``value`` as a whole number of at least ``least``."""
        if type(value) is not int or not least <= value <= _LARGEST_COUNT:
            self.refuse(f"is {_shown(value)}; write a whole number of at least {least}")
        return value

    def increasing(self, value: Any, least: int) -> tuple[int, ...]:
        """``value`` as at least one count, each above the one before."""
        counts = [self.inside(at).count(item, least) for at, item in enumerate(self.items(value))]
        if not counts or any(later <= earlier for earlier, later in pairwise(counts)):
            self.refuse("must be at least one number, each above the one before")
        return tuple(counts)


def parse_stamp(value: Any, place: FieldPath) -> Stamp:
    """The stamp; HardwareError names the wrong key."""
    entries = dict(place.keys(value, [field.name for field in fields(Stamp)]))
    files = [
        place.inside("files").inside(at).items(pair)
        for at, pair in enumerate(place.inside("files").items(entries.pop("files")))
    ]
    for at, pair in enumerate(files):
        if len(pair) != 2 or not all(isinstance(part, str) for part in pair):
            place.inside("files").inside(at).refuse("must be a file name and its sha256, two texts")
    notes = place.inside("notes")
    texts = tuple(notes.inside(at).text(note) for at, note in enumerate(notes.items(entries.pop("notes"))))
    tp = place.inside("tp").count(entries.pop("tp"), 1)
    words = {key: place.inside(key).text(word) for key, word in entries.items()}
    return Stamp(tp=tp, files=tuple((name, sha256) for name, sha256 in files), notes=texts, **words)


def parse_tables(value: Any, place: FieldPath) -> OpTables:
    """The tables; HardwareError names the wrong key."""
    wanted = [field.name for field in fields(OpTables) if field.name not in OF_MIXTURES]
    entries = place.keys(value, wanted, OF_MIXTURES)
    all_reduce, skew = entries["all_reduce"], entries["skew"]
    lattices = {
        key: _lattices(entries[key], place.inside(key), key) for key in ("decode", "prefill", "mixed")
    }
    return OpTables(
        dense=_curve(entries["dense"], place.inside("dense")),
        head=_curve(entries["head"], place.inside("head")),
        all_reduce=None if all_reduce is None else _curve(all_reduce, place.inside("all_reduce")),
        skew=None if skew is None else _lattice(skew, place.inside("skew"), "skew"),
        decode=lattices["decode"],
        prefill=lattices["prefill"],
        mixed=lattices["mixed"],
        experts=_members(entries, "experts", _expert_table, place),
        exchange=_members(entries, "exchange", _exchange, place),
    )


def _members(
    entries: Mapping[str, Any], key: str, read: Callable[[Any, FieldPath], Member], place: FieldPath
) -> tuple[Member, ...]:
    """Each item of a list that may be missing."""
    at = place.inside(key)
    return tuple(read(item, at.inside(i)) for i, item in enumerate(at.items(entries.get(key, []))))


def _expert_table(value: Any, place: FieldPath) -> ExpertTable:
    entries = place.keys(value, [field.name for field in fields(ExpertTable)])
    parts = {key: place.inside(key).count(entries[key], 1) for key in ("expert_tp", "expert_ep")}
    return ExpertTable(lattice=_lattice(entries["lattice"], place.inside("lattice"), "experts"), **parts)


def _exchange(value: Any, place: FieldPath) -> Exchange:
    entries = place.keys(value, [field.name for field in fields(Exchange)])
    return Exchange(
        place.inside("ranks").count(entries["ranks"], 2),
        _curve(entries["curve"], place.inside("curve")),
        place.inside("source").text(entries["source"]),
    )


def _curve(value: Any, place: FieldPath) -> Curve:
    entries = place.keys(value, ("counts", "seconds"))
    counts = place.inside("counts").increasing(entries["counts"], 1)
    at = place.inside("seconds")
    seconds = [_number(second) for second in at.items(entries["seconds"])]
    if len(seconds) != len(counts):
        at.refuse(f"has {len(seconds)} numbers for {len(counts)} counts; write one for each")
    for number, second in enumerate(seconds):
        if not 0.0 < second < math.inf:
            at.inside(number).refuse(
                f"is {_shown(entries['seconds'][number])}; write a positive finite number of seconds"
            )
    return Curve(counts, tuple(seconds))


def _lattices(value: Any, place: FieldPath, kind: str) -> tuple[Lattice, ...]:
    lattices = tuple(_lattice(item, place.inside(at), kind) for at, item in enumerate(place.items(value)))
    if not lattices and kind != "mixed":
        place.refuse("is empty; write at least one lattice")
    return lattices


def _lattice(value: Any, place: FieldPath, kind: str) -> Lattice:
    entries = place.keys(value, ("axes", "values"))
    least = _AXES[kind]
    at = place.inside("axes")
    axes_in = at.items(entries["axes"])
    if len(axes_in) != len(least):
        at.refuse(f"has {len(axes_in)} axes; a lattice of {kind} has {len(least)}")
    axes = tuple(at.inside(i).increasing(axis, low) for i, (axis, low) in enumerate(zip(axes_in, least)))
    shape = tuple(len(axis) for axis in axes)
    flat = _flattened(entries["values"], shape, place.inside("values"))
    values = np.array([math.nan if number is None else _number(number) for number in flat], dtype=np.float64)
    nulls = np.array([number is None for number in flat])
    good = (values >= 0.0) & (values <= 1.0) if kind == "skew" else (values > 0.0) & (values < math.inf)
    wanted = "a share from 0 to 1" if kind == "skew" else "a positive finite number of seconds"
    for position in np.flatnonzero(~(good | nulls))[:1]:
        where = place.inside("values")
        for index in np.unravel_index(position, shape):
            where = where.inside(int(index))
        where.refuse(f"is {_shown(flat[position])}; write {wanted}, or null for not measured")
    if nulls.all():
        place.inside("values").refuse("holds only null; leave the lattice out")
    measured: Floats = values.reshape(shape)
    return Lattice(axes, measured)


def _flattened(value: Any, shape: tuple[int, ...], place: FieldPath) -> list[Any]:
    """Nested lists of this shape, row by row."""
    rows = [value]
    for depth, length in enumerate(shape):
        if any(not isinstance(row, list) or len(row) != length for row in rows):
            place.refuse(
                f"must be nested lists of shape {'x'.join(map(str, shape))}, the lengths of the axes "
                f"(level {depth + 1} differs)"
            )
        rows = [item for row in rows for item in row]
    return rows


def _shown(value: Any) -> str:
    """The value for a sentence, shortened."""
    text = repr(value)
    return text if len(text) <= _LONGEST_ECHO else f"{text[:_LONGEST_ECHO]}..."


def _number(value: Any) -> float:
    """The number, or infinity (which no rule allows) if it is none."""
    if type(value) not in (int, float):
        return math.inf
    try:
        return float(value)
    except OverflowError:
        return math.inf


FORMAT: Final = "servetwin-profile"
SCHEMA: Final = 1
_MOST_BYTES: Final = 64 << 20  # a hundred times the profile of the largest published tables
_KEYS: Final = ("format", "schema", "stamp", "tables", "digest")


@dataclass(frozen=True, slots=True)
class LoadedProfile:
    """A profile from a file: ``digest`` is that of its content, ``problems`` those accepted by force."""

    profile: Profile
    digest: str
    problems: tuple[str, ...] = ()


def save_profile(profile: Profile, path: Path) -> str:
    """Write ``profile`` to ``path`` atomically; returns its digest.

    HardwareError if the profile breaks a rule that ``load_profile`` enforces, or the file cannot be written.
    """
    document = _document(profile)
    place = FieldPath(str(path))
    parse_stamp(document["stamp"], place.inside("stamp"))
    parse_tables(document["tables"], place.inside("tables"))
    digest = _digest(document)
    _replace(path, f"{_canonical({**document, 'format': FORMAT, 'digest': digest})}\n")
    return digest


def load_profile(path: Path, force: bool = False) -> LoadedProfile:
    """The profile in ``path``, with everything in it checked.

    A wrong digest is refused, or with ``force`` noted in ``problems``; a broken document is always refused.
    HardwareError names the file and the key.
    """
    document = _read(path)
    place = FieldPath(str(path))
    stamp = parse_stamp(document["stamp"], place.inside("stamp"))
    tables = parse_tables(document["tables"], place.inside("tables"))
    digest = _digest({key: document[key] for key in ("schema", "stamp", "tables")})
    stale = f"{path} is stale: its content does not match its digest, so it was changed after it was imported"
    if digest == document["digest"]:
        return LoadedProfile(Profile(stamp, tables), digest)
    if not force:
        raise HardwareError(f"{stale}; import it again from the measured tables")
    return LoadedProfile(Profile(stamp, tables), digest, (stale,))


def _document(profile: Profile) -> dict[str, Any]:
    stamp, tables = profile.stamp, profile.tables
    return {
        "schema": SCHEMA,
        "stamp": {field.name: _plain(getattr(stamp, field.name)) for field in fields(Stamp)},
        "tables": {
            field.name: _plain(getattr(tables, field.name))
            for field in fields(OpTables)
            if field.name not in OF_MIXTURES or getattr(tables, field.name)
        },
    }


def _plain(value: Any) -> Any:
    """The value in JSON's form: NaN is null, tuples are lists, curves and lattices are objects."""
    match value:
        case Curve():
            return {"counts": _plain(value.counts), "seconds": _plain(value.seconds)}
        case ExpertTable() | Exchange():
            return {field.name: _plain(getattr(value, field.name)) for field in fields(value)}
        case Lattice():
            return {"axes": _plain(value.axes), "values": _plain(value.values.tolist())}
        case tuple() | list():
            return [_plain(item) for item in value]
        case np.integer():
            return int(value)
        case float() | np.floating():
            return None if value != value else float(value)
    return value


def _canonical(document: Mapping[str, Any]) -> str:
    return json.dumps(document, sort_keys=True, separators=(",", ":"), ensure_ascii=True)


def _digest(content: Mapping[str, Any]) -> str:
    return hashlib.sha256(_canonical(content).encode("ascii")).hexdigest()


def _replace(path: Path, text: str) -> None:
    """Write through a temporary file in the same folder, which is always removed."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        try:
            with temporary.open("w", encoding="ascii") as file:
                file.write(text)
                file.flush()
                os.fsync(file.fileno())
            temporary.replace(path)
        finally:
            temporary.unlink(missing_ok=True)
    except OSError as error:
        raise HardwareError(
            f"cannot write {path} ({os.strerror(error.errno or 0)}); name a file in a folder that exists "
            "and can be written to"
        ) from error


def _read(path: Path) -> dict[str, Any]:
    """The document, with its outermost keys checked."""
    document = _json(path)
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise HardwareError(
            f"{path} is not a profile (its key 'format' is not '{FORMAT}'); name a file that "
            "'servetwin profile import' wrote"
        )
    schema = document.get("schema")
    if type(schema) is not int or schema != SCHEMA:
        raise HardwareError(
            f"{path}: schema is {schema!r} and this program reads {SCHEMA}; import the profile again"
        )
    FieldPath(str(path)).keys(document, _KEYS)
    if not isinstance(document["digest"], str):
        raise HardwareError(f"{path}: digest is not a text; import the profile again")
    return document


def _json(path: Path) -> Any:
    try:
        if path.exists() and not path.is_file():
            raise HardwareError(f"{path} is not a file; name one that 'servetwin profile import' wrote")
        text = read_limited(path, _MOST_BYTES).decode("utf-8")
        return json.loads(text, parse_constant=_refuse_constant, object_pairs_hook=_once)
    except OSError as error:
        raise HardwareError(
            f"cannot read {path} ({os.strerror(error.errno or 0)}); name a file that 'servetwin profile "
            "import' wrote"
        ) from error
    except (ValueError, RecursionError) as error:
        raise HardwareError(f"{path} is not plain JSON ({error}); import the profile again") from error


def _refuse_constant(word: str) -> NoReturn:
    raise ValueError(f"{word} is not a JSON number, write null for what was not measured")


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    entries = dict(pairs)
    if len(entries) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return entries
