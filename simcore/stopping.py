"""Ends a run before its last request: a rule is asked whenever a request ends."""

from typing import Final, Protocol

from serving.vocabulary.recorder import Recorder
from serving.vocabulary.request import Request

GO_ON: Final = ""


class StopRule(Protocol):
    """Asked at the end of every request. Each answer says why the run need not go on, or is ``GO_ON``."""

    def finished(self, request: Request, output_tokens: int, first_token_ns: int, finish_ns: int) -> str:
        """A request produced its last token."""

    def refused(self, request: Request, reason: str) -> str:
        """A request was rejected."""

    def failed(self, request: Request, reason: str) -> str:
        """A request was lost."""


class RunStopped(Exception):
    """Raised by a recorder at the end of a request, with the reason; ``Simulation.run`` then returns."""


class StoppingRecorder:
    """Implements serving.vocabulary.recorder.Recorder: records as ``recorder`` does, then asks ``rule``."""

    def __init__(self, recorder: Recorder, rule: StopRule) -> None:
        self._recorder, self._rule = recorder, rule
        self.gaps = recorder.gaps  # the many calls between ends cost nothing more

    # Positional, like that of a Recorder.
    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """Record a finished request."""
        self._recorder.finished(request, output_tokens, first_token_ns, finish_ns, replica, preemptions)
        if why := self._rule.finished(request, output_tokens, first_token_ns, finish_ns):
            raise RunStopped(why)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a rejected request."""
        self._recorder.refused(request, now_ns, reason)
        if why := self._rule.refused(request, reason):
            raise RunStopped(why)

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """Record a lost request."""
        self._recorder.failed(request, now_ns, reason)
        if why := self._rule.failed(request, reason):
            raise RunStopped(why)

    def busy(self, replica: int, busy_ns: int) -> None:
        """Set how long a replica executed steps."""
        self._recorder.busy(replica, busy_ns)
