"""A migration policy for figures that measure a single migration."""

from collections.abc import Sequence

from serving.protocols.migration import InstancesView, Pair, SourceView


class Once:
    """From ``after_s`` on, the oldest decoding request of instance 0 migrates to instance 1, once."""

    def __init__(self, after_s: float = 5.0) -> None:
        self._after_ns = round(after_s * 1e9)
        self._done = False

    def pair(self, view: InstancesView) -> Sequence[Pair]:
        """(0, 1), the first time at or after ``after_s``."""
        if self._done or view.now_ns < self._after_ns:
            return ()
        self._done = True
        return [Pair(0, 1, "told to")]

    def choose(self, view: SourceView) -> tuple[int, str] | None:
        """The oldest decoding request."""
        decoding = sorted(view.decoding())
        return (decoding[0], "the first") if decoding else None
