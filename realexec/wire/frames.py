"""Frames: a fixed header, a head in JSON, raw bytes. Lengths are checked before memory is allocated."""

import json
import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

MAGIC: Final = b"SvTw"
VERSION: Final = 2
# Magic, version, length of the head, length of the payload.
_HEADER: Final = struct.Struct("!4sIIQ")
HEADER_BYTES: Final = _HEADER.size


class ChannelClosed(ConnectionError):
    """The peer ended the connection, or this side closed it."""


class ProtocolError(ConnectionError):
    """The peer sent data that no peer of this version sends; the connection cannot be used any more."""


@dataclass(frozen=True, slots=True)
class FrameLimits:
    """The longest head and payload of a frame that a receiver accepts."""

    head_bytes: int = 1 << 20
    payload_bytes: int = 64 << 20


# Limits for a peer that has not yet proved that it belongs to the run.
STRANGER: Final = FrameLimits(head_bytes=4096, payload_bytes=0)

_decode = json.JSONDecoder().raw_decode
_encode = json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


@lru_cache(64)
def _text_of(key: str, value: str) -> bytes:
    """A head of one text, in JSON: that of every message, so of few kinds."""
    return _encode({key: value}).encode()


def encoded(head: dict[str, Any], payload_bytes: int) -> bytes:
    """Encode header and head; the payload follows them unchanged."""
    items = [*head.items()]
    text = _text_of(*items[0]) if len(items) == 1 and type(items[0][1]) is str else _encode(head).encode()
    return _HEADER.pack(MAGIC, VERSION, len(text), payload_bytes) + text


def lengths(header: bytes | bytearray | memoryview, limits: FrameLimits) -> tuple[int, int]:
    """Return the bytes (of the head, of the payload) that follow; ProtocolError if the header is refused."""
    magic, version, head_bytes, payload_bytes = _HEADER.unpack(header)
    if magic != MAGIC:
        raise ProtocolError("the received bytes are not a frame of this program")
    if version != VERSION:
        raise ProtocolError(f"the peer speaks version {version}, and this is version {VERSION}")
    if head_bytes > limits.head_bytes or payload_bytes > limits.payload_bytes:
        raise ProtocolError(
            f"a frame of {head_bytes} and {payload_bytes} bytes is longer than the {limits.head_bytes} and "
            f"{limits.payload_bytes} that are taken"
        )
    return head_bytes, payload_bytes


def head_of(text: bytes | bytearray) -> dict[str, Any]:
    """Decode the head that was given to `encoded`."""
    try:
        decoded = text.decode()
        head, end = _decode(decoded)
    except (ValueError, RecursionError) as error:
        raise ProtocolError(f"the head of a frame is no JSON: {error}") from None
    if not isinstance(head, dict) or end != len(decoded):
        raise ProtocolError("the head of a frame is no JSON object")
    return head
