"""What happened when servers started and ended, for summary.json."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

_MOST_FAILURES: Final = 3
COLD, WARM = "cold", "warm"


@dataclass(slots=True)
class StartBook:
    """The starts of all servers, and how they ended."""

    _starts: list[dict[str, Any]] = field(default_factory=list)
    _stop_s: list[float] = field(default_factory=list)
    _failed: int = 0
    _failed_in_a_row: int = 0
    _killed: int = 0

    def started(self, number: int, found: Mapping[str, Any], kind: str | None = None) -> None:
        """A server answers. ``found``: what is reported of its start; ``kind``: None for cold or warm."""
        here = (number, found.get("node"))
        later = any((start["server"], start.get("node")) == here for start in self._starts)
        self._failed_in_a_row = 0
        self._starts.append(
            {"server": number, **found, "kind": kind if kind is not None else WARM if later else COLD}
        )

    def failed(self) -> None:
        """A server did not start."""
        self._failed += 1
        self._failed_in_a_row += 1

    def ended(self, killed: bool, seconds: float) -> None:
        """A server was stopped. ``killed``: it had to be."""
        self._killed += killed
        self._stop_s.append(seconds)

    @property
    def gives_up(self) -> bool:
        """Whether starts have failed so often that another would fail too."""
        return self._failed_in_a_row >= _MOST_FAILURES

    def report(self) -> dict[str, Any]:
        """What summary.json says in ``real.starts``; ``cold``: the first of each server on a host."""
        return {
            "servers": self._starts,
            "cold": _means([start for start in self._starts if start["kind"] == COLD]),
            "warm": _means([start for start in self._starts if start["kind"] == WARM]),
            "failed": self._failed,
            "stopped": {"by_sigterm": len(self._stop_s) - self._killed, "by_sigkill": self._killed},
            "stop_s": sum(self._stop_s) / len(self._stop_s) if self._stop_s else None,
        }


def _means(starts: Sequence[dict[str, Any]]) -> dict[str, float]:
    """The means over starts of each phase that all of them have."""
    return {
        name: sum([start[name] for start in starts]) / len(starts)
        for name in (starts[0] if starts else ())
        if name.endswith("_s") and all(name in start for start in starts)
    }
