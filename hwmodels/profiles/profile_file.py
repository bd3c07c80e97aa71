"""Profiles on disk: one JSON document, the same bytes for the same profile, with a digest of its content."""

import hashlib
import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any, Final, NoReturn

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Lattice, OpTables, Profile, Stamp
from hwmodels.profiles.profile_parse import OF_MIXTURES, FieldPath, parse_stamp, parse_tables
from hwmodels.reading import read_limited

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


def profile_digest(profile: Profile) -> str:
    """The sha256, in hexadecimal, of the profile's content: equal for equal profiles on every machine."""
    return _digest(_document(profile))


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
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key occurs twice in one object")
    return found
