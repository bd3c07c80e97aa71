"""One instance between two steps, as a policy sees it that chooses which request leaves."""

from collections.abc import Callable, Iterable, Mapping

from serving.engine.engine import Engine
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request


class Decoding:
    """What a policy sees when it chooses (``serving.protocols.migration.SourceView``)."""

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
        """Those that decode there and could leave, in the order in which they were admitted."""
        if self._decoding is None:  # asked for twice: by the policy, and by who checks its answer
            decodes = self._engine.ledger.decodes
            self._decoding = tuple([request for request in self._engine.running if decodes(request)])
        return self._decoding

    def context_tokens(self, request: int) -> int:
        """Prompt and what it has generated."""
        return self._engine.ledger.context_tokens(request)

    def priority(self, request: int) -> int:
        """Of the request."""
        return self._requests[request].priority

    def arrival_ns(self, request: int) -> int:
        """Of the request."""
        return self._requests[request].arrival_ns

    def report(self, replica: int) -> LoadReport | None:
        """As of the instances that are paired."""
        return self._report(replica)
