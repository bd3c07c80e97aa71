"""Translate times of another host's clock: each host's ``time.monotonic`` starts when the host boots."""

from typing import Any

from realexec.wire.messages import RoundsDone, StepsDone


class RemoteClock:
    """Learns the clock difference from heartbeats, which carry their send time: the fastest one is used.

    Translated times are late by that heartbeat's delay, no more than any message takes. From the first step
    on the difference stays fixed, so that steps stay in order; later clock drift is not corrected.
    """

    def __init__(self) -> None:
        self._ahead_ns: int | None = None  # this host's clock minus the other's
        self._settled = False

    def beat(self, sent_ns: int, now_ns: int) -> int:
        """Translate the send time of a heartbeat that arrived at ``now_ns``."""
        ahead_ns = now_ns - sent_ns
        if self._ahead_ns is None or (not self._settled and ahead_ns < self._ahead_ns):
            self._ahead_ns = ahead_ns
        return sent_ns + self._ahead_ns

    def here(self, message: Any) -> Any:
        """Return the message with its times translated to this host's clock."""
        if not isinstance(message, StepsDone | RoundsDone) or not message.ends_ns:
            return message
        self._settled, ahead_ns = True, self._ahead_ns or 0
        message = message._replace(ends_ns=tuple([end_ns + ahead_ns for end_ns in message.ends_ns]))
        if isinstance(message, RoundsDone):
            return message
        return message._replace(started_ns=message.started_ns + ahead_ns)
