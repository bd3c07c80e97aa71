"""A sweep: one thing of a set-up is changed step by step, everything else stays."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from experiments.common.set_up import Case, SetUp, Words


@dataclass(frozen=True, slots=True)
class SetUpSweep:
    """kind: what is changed; subject: the name of the set-up; about: values and seeds, in a sentence.

    points: (value, cases of the systems there). A system has the same label in every point as in the set-up.
    """

    kind: str
    subject: str
    about: str
    points: tuple[tuple[str, tuple[Case, ...]], ...]

    def cases(self) -> Iterator[Case]:
        """Return the cases of all points, point by point."""
        for _, cases in self.points:
            yield from cases

    @property
    def seeded(self) -> bool:
        """Whether every point is run under every seed, not under the first alone."""
        return not any(case.once for case in self.cases())


def sweep_of_words(
    kind: str,
    set_up: SetUp,
    about: str,
    systems: Sequence[Case],
    values: Mapping[str, Words],
    *,
    words_of: Callable[[Case, Words], Words | None] = lambda _, words: words,
) -> SetUpSweep:
    """Return the sweep of the systems, under the first seed, with the words of each value.

    words_of: returns the words that this system gets; None if its runs in the set-up are used again.
    """
    points = []
    for value, words in values.items():
        own_words = [(case, words_of(case, words)) for case in systems]
        cases = [
            case if own is None else replace(case, words=(*case.words, *own), once=True)
            for case, own in own_words
        ]
        points.append((value, tuple(cases)))
    return SetUpSweep(kind, set_up.name, about, tuple(points))


def systems_by_set_up(cases: Sequence[Case], swept: Callable[[Case], bool]) -> dict[SetUp, list[Case]]:
    """The cases that are to be swept, each once, under their set-up."""
    by_set_up: dict[SetUp, list[Case]] = {}
    for case in filter(swept, dict.fromkeys(cases)):
        by_set_up.setdefault(case.set_up, []).append(case)
    return by_set_up
