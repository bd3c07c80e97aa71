"""A policy that one migration is watched with."""

from collections.abc import Sequence

from serving.protocols.migration import InstancesView, Pair, SourceView


class Once:
    """At the first look from ``after_s`` on the first request leaves instance 0 for instance 1."""

    def __init__(self, after_s: float = 5.0) -> None:
        self._after_ns = round(after_s * 1e9)
        self._done = False

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """Once."""
        if self._done or view.now_ns < self._after_ns:
            return ()
        self._done = True
        return [Pair(0, 1, "told to")]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The oldest that decodes."""
        decoding = sorted(view.decoding())
        return (decoding[0], "the first") if decoding else None
