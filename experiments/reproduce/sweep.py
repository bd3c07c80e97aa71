"""A sweep: one thing of a set-up is changed step by step, everything else stays."""

from collections.abc import Iterator
from dataclasses import dataclass

from experiments.reproduce.set_ups import Case


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

    def pairs(self, ours: str, other: str) -> Iterator[tuple[str, Case, Case]]:
        """(value, case of one label, case of another) of the points that have both."""
        for value, cases in self.points:
            found = {case.label: case for case in cases}
            if ours in found and other in found:
                yield value, found[ours], found[other]
