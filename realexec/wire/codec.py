"""Encode messages as frames: the head names the type, the payload has a NamedTuple's fields in MessagePack.

A field's annotation says which values it may hold; others are refused.
"""

from collections.abc import Callable, Iterable
from functools import cached_property
from typing import Any, Final

from realexec.wire.frames import ProtocolError

TYPE: Final = "type"


class Codec:
    """Encodes these messages. msgspec is imported with the first one: plans and servers need none."""

    def __init__(self, messages: Iterable[type]) -> None:
        self._types = {message.__name__: message for message in messages}

    def encode(self, message: Any) -> tuple[dict[str, Any], bytes]:
        """Return (head, payload)."""
        return {TYPE: type(message).__name__}, self._encode(message)

    def decode(self, head: dict[str, Any], payload: bytes) -> Any:
        """Return the message; ProtocolError if its type is unknown or its fields do not fit."""
        try:
            return self._decoders[head[TYPE]](payload)
        except (KeyError, TypeError, ValueError, RecursionError) as error:  # msgspec's are ValueErrors
            raise ProtocolError(f"a frame is no message: {type(error).__name__}: {error}"[:500]) from None

    @cached_property
    def _encode(self) -> Callable[[Any], bytes]:
        from msgspec.msgpack import Encoder

        return Encoder().encode

    @cached_property
    def _decoders(self) -> dict[str, Callable[[bytes], Any]]:
        from msgspec.msgpack import Decoder

        return {name: Decoder(message).decode for name, message in self._types.items()}
