"""Both sides prove that they know the secret of the run, without saying it.

Each side draws a nonce; each proof is an HMAC over its side's name, both nonces and what the client says it
is. A proof that was overheard is of no use for other nonces, nor the other way round. Frames that follow
carry no proof of their own: who can write into an open TCP connection is not kept out.
"""

import hashlib
import hmac
import json
import secrets
import time
from typing import Any, Final

from realexec.wire.channel import Channel
from realexec.wire.frames import STRANGER, VERSION, ProtocolError

SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 32
HANDSHAKE_S: Final = 5.0  # for all of it: four short frames


def new_secret() -> bytes:
    """For one run; it reaches its processes through a pipe that they inherit, never by argument or file."""
    return secrets.token_bytes(SECRET_BYTES)


def join(channel: Channel, secret: bytes, identity: dict[str, Any], timeout_s: float = HANDSHAKE_S) -> None:
    """The side that connects: prove the secret, say who this is, and demand the same proof of the listener.

    Raises ProtocolError, ChannelClosed or TimeoutError; the channel is then closed.
    """
    with _AmongStrangers(channel, timeout_s) as receive:
        mine = secrets.token_hex(NONCE_BYTES)
        channel.send({"type": "hello", "nonce": mine, "identity": identity})
        challenge = receive("challenge")
        theirs = _text(challenge, "nonce")
        if not _equal(_proof(secret, "listener", mine, theirs, identity), challenge):
            raise ProtocolError("the listener does not know the secret of this run")
        channel.send({"type": "proof", "proof": _proof(secret, "client", mine, theirs, identity)})
        receive("welcome")


def admit(channel: Channel, secret: bytes, timeout_s: float = HANDSHAKE_S) -> dict[str, Any]:
    """The side that listens: returns what the client says it is, once it has proved the secret.

    Raises ProtocolError, ChannelClosed or TimeoutError; the channel is then closed.
    """
    with _AmongStrangers(channel, timeout_s) as receive:
        hello = receive("hello")
        theirs, identity = _text(hello, "nonce"), hello.get("identity")
        if not isinstance(identity, dict) or len(theirs) != 2 * NONCE_BYTES:
            raise ProtocolError("a peer's hello has no nonce or no identity")
        mine = secrets.token_hex(NONCE_BYTES)
        proof = _proof(secret, "listener", theirs, mine, identity)
        channel.send({"type": "challenge", "nonce": mine, "proof": proof})
        if not _equal(_proof(secret, "client", theirs, mine, identity), receive("proof")):
            raise ProtocolError("a peer does not know the secret of this run")
        channel.send({"type": "welcome"})
        return identity


class _AmongStrangers:
    """Short frames and a deadline for all of them together; a failure closes the channel."""

    def __init__(self, channel: Channel, timeout_s: float) -> None:
        self._channel = channel
        self._deadline_s = time.monotonic() + timeout_s

    def __enter__(self) -> Any:
        self._limits, self._channel.limits = self._channel.limits, STRANGER
        return self._receive

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        self._channel.limits = self._limits
        if failure is not None:
            self._channel.close()

    def _receive(self, expected: str) -> dict[str, Any]:
        head, _ = self._channel.receive(self._deadline_s)
        if head.get("type") != expected:
            raise ProtocolError(f"a peer sent {str(head.get('type'))[:40]!r} in place of {expected!r}")
        return head


def _proof(secret: bytes, side: str, client: str, listener: str, identity: dict[str, Any]) -> str:
    said = json.dumps([VERSION, side, client, listener, identity], sort_keys=True)
    return hmac.new(secret, said.encode(), hashlib.sha256).hexdigest()


def _equal(expected: str, head: dict[str, Any]) -> bool:
    """In constant time."""
    return hmac.compare_digest(expected.encode(), _text(head, "proof").encode(errors="replace"))


def _text(head: dict[str, Any], key: str) -> str:
    value = head.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"a peer's {head['type']} has no {key}")
    return value
