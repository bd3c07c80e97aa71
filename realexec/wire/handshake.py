"""Both sides prove that they know the run's secret, without sending it.

Each side draws a nonce; each proof is an HMAC over that side's name, both nonces and the client's identity.
An overheard proof is useless for other nonces, or as the other side's proof. Later frames carry no proof of
their own: an attacker who can write into an open TCP connection is not kept out.
"""

import hashlib
import hmac
import json
import secrets
import time
from collections.abc import Callable
from typing import Any, Final

from realexec.wire.channel import Channel
from realexec.wire.frames import STRANGER, VERSION, ProtocolError

SECRET_BYTES: Final = 32
NONCE_BYTES: Final = 32
HANDSHAKE_S: Final = 5.0  # for all four short frames together


def new_secret() -> bytes:
    """Make a run's secret; processes receive it through an inherited pipe, never by argument or file."""
    return secrets.token_bytes(SECRET_BYTES)


def join(channel: Channel, secret: bytes, identity: dict[str, Any], timeout_s: float = HANDSHAKE_S) -> None:
    """On the connecting side: prove the secret, send an identity, and check the listener's proof.

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


def admit(
    channel: Channel,
    secret: bytes,
    timeout_s: float = HANDSHAKE_S,
    proved: Callable[[], None] = lambda: None,
) -> dict[str, Any]:
    """On the listening side: check the client's proof of the secret; returns the client's identity.

    ``proved`` is called before the client is told; it may raise ChannelClosed if it is too late.

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
        proved()
        channel.send({"type": "welcome"})
        return identity


class _AmongStrangers:
    """Limits a handshake to short frames and one deadline for all of them; a failure closes the channel."""

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
    message = json.dumps([VERSION, side, client, listener, identity], sort_keys=True)
    return hmac.new(secret, message.encode(), hashlib.sha256).hexdigest()


def _equal(expected: str, head: dict[str, Any]) -> bool:
    """Compare proofs in constant time."""
    return hmac.compare_digest(expected.encode(), _text(head, "proof").encode(errors="replace"))


def _text(head: dict[str, Any], key: str) -> str:
    value = head.get(key)
    if not isinstance(value, str):
        raise ProtocolError(f"a peer's {head['type']} has no {key}")
    return value
