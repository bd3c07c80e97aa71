"""The view of one instance between two steps, for a policy that chooses the request that leaves."""

from collections.abc import Callable, Iterable, Mapping

from serving.engine.engine import Engine
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request


class Decoding:
    """The view of a policy that chooses a request (``serving.protocols.migration.SourceView``)."""

    __slots__ = ("_decoding", "_engine", "_report", "_requests", "destination", "replica")

    def __init__(
        self,
        engine: Engine,
        destination: int,
        requests: Mapping[int, Request],
        report: Callable[[int], LoadReport | None],
    ) -> None:
        self._engine, self._requests, self._report = engine, requests, report
        self.replica, self.destination = engine.id, destination
        self._decoding: tuple[int, ...] | None = None

    def decoding(self) -> Iterable[int]:
        """The requests that decode there and could leave, in order of admission."""
        if self._decoding is None:  # called twice: by the policy, and by the check of its answer
            decodes = self._engine.ledger.decodes
            self._decoding = tuple([request for request in self._engine.running if decodes(request)])
        return self._decoding

    def context_tokens(self, request: int) -> int:
        """The request's prompt tokens and generated tokens."""
        return self._engine.ledger.context_tokens(request)

    def priority(self, request: int) -> int:
        """The request's priority."""
        return self._requests[request].priority

    def arrival_ns(self, request: int) -> int:
        """The request's arrival time."""
        return self._requests[request].arrival_ns

    def report(self, replica: int) -> LoadReport | None:
        """The instance's load report, as in the view of the pairing."""
        return self._report(replica)
