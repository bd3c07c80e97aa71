"""Frames: a fixed header, a head in JSON, raw bytes. Lengths are checked before anything is allocated."""

import json
import struct
from dataclasses import dataclass
from typing import Any, Final

MAGIC: Final = b"SvTw"
VERSION: Final = 1
# Magic, version, length of the head, length of the payload.
_HEADER: Final = struct.Struct("!4sIIQ")
HEADER_BYTES: Final = _HEADER.size


class ChannelClosed(ConnectionError):
    """The peer ended the connection, or it was closed here."""


class ProtocolError(ConnectionError):
    """What came is not what a peer of this version sends; the connection is of no more use."""


@dataclass(frozen=True, slots=True)
class Limits:
    """The longest parts of a frame that a receiver takes."""

    head_bytes: int = 1 << 20
    payload_bytes: int = 64 << 20


# Of a peer that has not proved yet that it belongs to the run.
STRANGER: Final = Limits(head_bytes=4096, payload_bytes=0)

_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def encoded(head: dict[str, Any], payload_bytes: int) -> bytes:
    """Header and head; the payload follows them as it is."""
    text = _encode(head).encode()
    return _HEADER.pack(MAGIC, VERSION, len(text), payload_bytes) + text


def lengths(header: bytes | bytearray | memoryview, limits: Limits) -> tuple[int, int]:
    """(bytes of the head, bytes of the payload) that follow; ProtocolError for what is refused."""
    magic, version, head_bytes, payload_bytes = _HEADER.unpack(header)
    if magic != MAGIC:
        raise ProtocolError("what came is no frame of this program")
    if version != VERSION:
        raise ProtocolError(f"the peer speaks version {version}, and this is version {VERSION}")
    if head_bytes > limits.head_bytes or payload_bytes > limits.payload_bytes:
        raise ProtocolError(
            f"a frame of {head_bytes} and {payload_bytes} bytes is longer than the {limits.head_bytes} and "
            f"{limits.payload_bytes} that are taken"
        )
    return head_bytes, payload_bytes


def head_of(text: bytes | bytearray) -> dict[str, Any]:
    """The head as it was given to `encoded`."""
    try:
        decoded = text.decode()
        head, end = _decode(decoded)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the head of a frame is no JSON: {error}") from None
    if not isinstance(head, dict) or end != len(decoded):
        raise ProtocolError("the head of a frame is no JSON object")
    return head
