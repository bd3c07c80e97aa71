"""The clock of another host, told in this one's: each host's ``time.monotonic`` begins when it was booted."""

from typing import Any

from realexec.messages import RoundsDone, StepsDone


class FarClock:
    """From heart-beats, each of which says when it was sent: the one that came fastest tells the difference.

    So times are late by what that one took on its way, and by no more than any message takes. From the first
    step on the difference stays, so that steps stay in order; what clocks drift apart then is not followed.
    """

    def __init__(self) -> None:
        self._ahead_ns: int | None = None  # what this host's clock shows more
        self._settled = False

    def beat(self, sent_ns: int, now_ns: int) -> int:
        """When a heart-beat was sent that came now."""
        ahead_ns = now_ns - sent_ns
        if self._ahead_ns is None or (not self._settled and ahead_ns < self._ahead_ns):
            self._ahead_ns = ahead_ns
        return sent_ns + self._ahead_ns

    def here(self, message: Any) -> Any:
        """The message, its times by this host's clock."""
        if not isinstance(message, StepsDone | RoundsDone) or not message.ends_ns:
            return message
        self._settled, ahead_ns = True, self._ahead_ns or 0
        message = message._replace(ends_ns=tuple([end_ns + ahead_ns for end_ns in message.ends_ns]))
        if isinstance(message, RoundsDone):
            return message
        return message._replace(started_ns=message.started_ns + ahead_ns)
