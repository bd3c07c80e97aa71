"""A sweep: one thing of a set-up is changed step by step, everything else stays."""

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.common.set_up import Case


@dataclass(frozen=True, slots=True)
class Sweep:
    """kind: what is changed; subject: the name of the set-up it is changed in; told: how, in a sentence.

    points: (value, cases of the systems there). A system has the same label in every point as in the set-up.
    """

    kind: str
    subject: str
    told: str
    points: tuple[tuple[str, tuple[Case, ...]], ...]

    def cases(self) -> Iterator[Case]:
        """All of them, point by point."""
        for _, cases in self.points:
            yield from cases

    @property
    def seeded(self) -> bool:
        """Whether every point is run under every seed, not under the first alone."""
        return not any(case.once for case in self.cases())
