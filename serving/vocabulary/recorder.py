"""The metrics sink that both drivers feed, because only a world has the true times of tokens."""

from typing import Protocol

from serving.vocabulary.request import Request


class Recorder(Protocol):
    """Receives facts about requests; keeps columns and sketches, never the objects."""

    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        """A request produced its last token at ``finish_ns`` (run-relative ns)."""

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        """The controller rejected a request."""

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        """A request was lost with the component that served it."""

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        """Inter-token gaps, ``sequences`` of each: ``first + slope * i`` for i in 0..steps-1.

        Fixed-point ns (``serving.vocabulary.units``).
        """

    def busy(self, replica: int, busy_ns: int) -> None:
        """At the end of a run: how long the replica executed steps."""
