"""Encode messages as frames: a NamedTuple's fields in the head, long rows of integers in the payload.

The codec reads once from a field's annotation which values it may hold, and refuses others.
"""

import sys
import types
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from realexec.wire.frames import ProtocolError

TYPE: Final = "type"
FIELDS: Final = "fields"
Read = Callable[[Any], Any]
_INT: Final = frozenset({int})


class Codec:
    """Encodes these messages. ``packed``: fields that go into the payload, each with a code of `array`."""

    def __init__(self, messages: Iterable[type], packed: Mapping[type, Mapping[str, str]]) -> None:
        self._of_type = {message: _Form(message, packed.get(message, {})) for message in messages}
        self._of_name = {message.__name__: form for message, form in self._of_type.items()}

    def encode(self, message: Any) -> tuple[dict[str, Any], bytes]:
        """Return (head, payload)."""
        values = list(message)
        payload = self._of_type[type(message)].pack(values)
        return {TYPE: type(message).__name__, FIELDS: values}, payload

    def decode(self, head: dict[str, Any], payload: bytes) -> Any:
        """Return the message; ProtocolError if its type is unknown or its fields do not fit."""
        try:
            return self._of_name[head[TYPE]].read(head[FIELDS], payload)
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ProtocolError(f"a frame is no message: {type(error).__name__}: {error}"[:500]) from None


class _Form:
    """The form of one kind of message: a reader for each field, and the fields whose rows are in the payload.

    For these fields the head contains the lengths of the rows; the payload contains the rows in order.
    """

    def __init__(self, message: Any, codes: Mapping[str, str]) -> None:
        hints = get_type_hints(message)
        self._message = message
        self._packed = [
            (place, codes[name], _shape_of(hints[name]))
            for place, name in enumerate(message._fields)
            if name in codes
        ]
        self._readers = [
            None if name in codes else _reader(hints[name]) for name in message._fields
        ]  # packed fields are read before

    def pack(self, values: list[Any]) -> bytes:
        """Return the payload; replaces the packed fields in ``values`` by the lengths of their rows."""
        if not self._packed:
            return b""
        parts = []
        for place, code, shape in self._packed:
            value = values[place]
            if shape is dict:
                values[place] = [[key, len(row)] for key, row in value.items()]
                value = value.values()
            elif shape is list:
                values[place] = [len(row) for row in value]
            else:
                values[place] = len(value)
                value = (value,)
            parts += [_of_this_machine(array(code, row)).tobytes() for row in value]
        return b"".join(parts)

    def read(self, values: list[Any], payload: bytes) -> Any:
        """Build the message from these fields and the payload."""
        if type(values) is not list or len(values) != len(self._readers):
            raise ValueError(f"{self._message.__name__} has {len(self._readers)} fields")
        self._unpack(values, payload)
        return self._message(*[read(value) if read else value for read, value in zip(self._readers, values)])

    def _unpack(self, values: list[Any], payload: bytes) -> None:
        rows = _Rows(payload)
        for place, code, shape in self._packed:
            value = values[place]
            if shape is dict:
                values[place] = {_key(key): rows.take(code, length) for key, length in value}
            elif shape is list:
                values[place] = tuple([rows.take(code, length) for length in value])
            else:
                values[place] = rows.take(code, value)
        rows.check_empty()


class _Rows:
    """The part of a payload that has not been read yet."""

    def __init__(self, payload: bytes) -> None:
        self._left = memoryview(payload)

    def take(self, code: str, length: Any) -> tuple[int, ...]:
        row = array(code)
        if type(length) is not int or not 0 <= length * row.itemsize <= len(self._left):
            raise ValueError(f"a row of {length!r:.20} numbers is longer than the payload")
        row.frombytes(self._left[: length * row.itemsize])
        self._left = self._left[length * row.itemsize :]
        return tuple(_of_this_machine(row))

    def check_empty(self) -> None:
        if len(self._left):
            raise ValueError("the payload is longer than its rows")


def _shape_of(hint: Any) -> type:
    """Return dict for a row per key, list for several rows, int for one row."""
    if get_origin(hint) is dict:
        return dict
    return list if get_origin(get_args(hint)[0]) is tuple else int


def _of_this_machine(row: "array[int]") -> "array[int]":
    """Swap bytes on big-endian machines: payloads are little-endian."""
    if sys.byteorder == "big":
        row.byteswap()
    return row


def _key(value: Any) -> int:
    if type(value) is not int:
        raise TypeError(f"{value!r:.40} is no int")
    return value


def _reader(hint: Any) -> Read:
    """Make a function that turns a JSON value into a value of the annotated type."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in (int, str, bool):
        return _exactly(hint)
    if hint is float:
        return _number
    if hint is Any:
        return _in_tuples
    if hint is type(None):
        return _nothing
    if origin is tuple and set(inner) <= {int, ...}:
        return _integers(None if ... in inner else len(inner))
    if origin is tuple:
        return _row_of(_reader(inner[0])) if inner[1:] == (...,) else _tuple_of([*map(_reader, inner)])
    if origin is dict and inner[0] is int:
        return _dict_of(_reader(inner[1]))
    if origin in (types.UnionType, Union):
        return _one_of([*map(_reader, inner)])
    raise TypeError(f"no message may have a field of {hint}")


def _exactly(kind: type) -> Read:
    def read(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{value!r:.40} is no {kind.__name__}")
        return value

    return read


def _number(value: Any) -> float:
    if type(value) not in (int, float):
        raise TypeError(f"{value!r:.40} is no number")
    return float(value)


def _nothing(value: Any) -> None:
    if value is not None:
        raise TypeError(f"{value!r:.40} is not null")


def _in_tuples(value: Any) -> Any:
    """Turn JSON lists back into tuples, which messages use."""
    if isinstance(value, list):
        return tuple(_in_tuples(part) for part in value)
    if isinstance(value, dict):
        return {key: _in_tuples(part) for key, part in value.items()}
    return value


def _integers(count: int | None) -> Read:
    """Make a reader of integer rows, the most common fields; ``count`` None: of any length."""

    def read(value: Any) -> Any:
        if type(value) is not list or not _INT.issuperset(map(type, value)):
            raise TypeError(f"{value!r:.40} is no list of integers")
        if count is not None and len(value) != count:
            raise TypeError(f"{value!r:.40} is no list of {count}")
        return tuple(value)

    return read


def _row_of(part: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list):
            raise TypeError(f"{value!r:.40} is no list")
        return tuple([part(one) for one in value])

    return read


def _tuple_of(parts: list[Read]) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, list) or len(value) != len(parts):
            raise TypeError(f"{value!r:.40} is no list of {len(parts)}")
        return tuple([part(one) for part, one in zip(parts, value)])

    return read


def _dict_of(part: Read) -> Read:
    def read(value: Any) -> Any:
        if not isinstance(value, dict):
            raise TypeError(f"{value!r:.40} is no object")
        return {int(key): part(one) for key, one in value.items()}

    return read


def _one_of(kinds: list[Read]) -> Read:
    def read(value: Any) -> Any:
        for kind in kinds:
            try:
                return kind(value)
            except TypeError:
                continue
        raise TypeError(f"{value!r:.40} is not allowed here")

    return read
