"""Messages as frames: the fields of a NamedTuple in the head, long rows of integers in the payload.

What a field may hold is read from its annotation once; what does not fit it is refused.
"""

import sys
import types
from array import array
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, Union, get_args, get_origin, get_type_hints

from realexec.wire.frames import ProtocolError

TYPE: Final = "type"
Read = Callable[[Any], Any]


class Codec:
    """For these messages. ``packed`` names the fields that go into the payload, with a code of `array`."""

    def __init__(self, messages: Iterable[type], packed: Mapping[type, Mapping[str, str]]) -> None:
        self._rows = {message: _Packed(message, packed.get(message, {})) for message in messages}
        self._known = {
            message.__name__: (message, _fields(message), rows) for message, rows in self._rows.items()
        }

    def encode(self, message: Any) -> tuple[dict[str, Any], bytes]:
        """(head, payload)."""
        rows = self._rows[type(message)]
        head = dict(zip(message._fields, message))
        head[TYPE] = type(message).__name__
        return head, rows.pack(head)

    def decode(self, head: dict[str, Any], payload: bytes) -> Any:
        """The message; ProtocolError for one that nobody here knows, or whose fields do not fit."""
        try:
            message, fields, rows = self._known[head.pop(TYPE)]
            rows.unpack(head, payload)
            return message(**{name: fields[name](value) for name, value in head.items()})
        except (KeyError, TypeError, ValueError, RecursionError) as error:
            raise ProtocolError(f"a frame is no message: {type(error).__name__}: {error}"[:500]) from None


class _Packed:
    """Rows of integers: the head keeps how long they are, the payload has them one behind the other."""

    def __init__(self, message: type, codes: Mapping[str, str]) -> None:
        hints = get_type_hints(message)
        self._fields = [(name, code, _shape_of(hints[name])) for name, code in codes.items()]

    def pack(self, head: dict[str, Any]) -> bytes:
        parts = []
        for name, code, shape in self._fields:
            value = head[name]
            if shape is dict:
                head[name] = [[key, len(row)] for key, row in value.items()]
                value = value.values()
            elif shape is list:
                head[name] = [len(row) for row in value]
            else:
                head[name] = len(value)
                value = (value,)
            parts += [_of_this_machine(array(code, row)).tobytes() for row in value]
        return b"".join(parts)

    def unpack(self, head: dict[str, Any], payload: bytes) -> None:
        rows = _Rows(payload)
        for name, code, shape in self._fields:
            value = head[name]
            if shape is dict:
                head[name] = {key: rows.take(code, length) for key, length in value}
            elif shape is list:
                head[name] = [rows.take(code, length) for length in value]
            else:
                head[name] = rows.take(code, value)
        rows.check_empty()


class _Rows:
    """What is left of a payload."""

    def __init__(self, payload: bytes) -> None:
        self._left = memoryview(payload)

    def take(self, code: str, length: Any) -> list[int]:
        row = array(code)
        if type(length) is not int or not 0 <= length * row.itemsize <= len(self._left):
            raise ValueError(f"a row of {length!r:.20} numbers is longer than the payload")
        row.frombytes(self._left[: length * row.itemsize])
        self._left = self._left[length * row.itemsize :]
        return _of_this_machine(row).tolist()

    def check_empty(self) -> None:
        if len(self._left):
            raise ValueError("the payload is longer than its rows")


def _shape_of(hint: Any) -> type:
    """dict: a row for each key; list: several rows; int: one row."""
    if get_origin(hint) is dict:
        return dict
    return list if get_origin(get_args(hint)[0]) is tuple else int


def _of_this_machine(row: "array[int]") -> "array[int]":
    """Payloads are little-endian."""
    if sys.byteorder == "big":
        row.byteswap()
    return row


def _fields(message: type) -> dict[str, Read]:
    return {name: _reader(hint) for name, hint in get_type_hints(message).items()}


def _reader(hint: Any) -> Read:
    """A function from what JSON gives to what the annotation says."""
    origin, inner = get_origin(hint), get_args(hint)
    if hint in (int, str, bool):
        return _exactly(hint)
    if hint is float:
        return _number
    if hint is Any:
        return _in_tuples
    if hint is type(None):
        return _nothing
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
    """JSON has lists for the tuples of messages."""
    if isinstance(value, list):
        return tuple(_in_tuples(part) for part in value)
    if isinstance(value, dict):
        return {key: _in_tuples(part) for key, part in value.items()}
    return value


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
        raise TypeError(f"{value!r:.40} is none of what may stand here")

    return read
