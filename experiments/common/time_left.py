"""How many runs of a reproduction are to be made, and how long they take."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from statistics import fmean
from time import monotonic
from typing import Final

from experiments.common.making import Making, Settings
from experiments.common.run_store import RunStore
from experiments.common.runs import Progress
from servetwin.report.number_text import counted

# Those of Paper.run_cpu_s.
_MEASURED_REQUESTS: Final = 10_000
_SAY_EVERY_S: Final = 30.0
_LOOKED_AT: Final = 50  # kept runs of a paper whose times are read


@dataclass(frozen=True, slots=True, kw_only=True)
class HeadCount:
    """The runs of one paper's figures. kept: already in the store. run_s: how long one takes, about.

    missing: cases that cannot run with this version. measured: whether a kept run of the paper says so.
    """

    paper: str
    figures: int
    runs: int
    kept: int
    missing: int
    run_s: float
    measured: bool = True

    @property
    def to_do(self) -> int:
        """Runs that are to be made."""
        return self.runs - self.kept

    def minutes(self, processes: int) -> float:
        """About how long the runs take that are to be made."""
        return self.to_do * self.run_s / processes / 60


def head_count(making: Making, settings: Settings, store: RunStore) -> HeadCount:
    """Count the paper's runs. A run takes as long as kept ones of the paper did; without any, as measured."""
    jobs = making.plan.jobs()
    kept = [job for job in jobs if store.has(*job)]
    step = max(1, len(kept) // _LOOKED_AT)
    took_s = [run.wall_s for job in kept[::step] if (run := store.load(*job)) is not None]
    share = settings.requests / _MEASURED_REQUESTS if making.paper.requests else 1.0
    return HeadCount(
        paper=making.paper.name,
        figures=len(making.recipes),
        runs=len(jobs),
        kept=len(kept),
        missing=len(making.plan.missing),
        run_s=fmean(took_s) if took_s else making.paper.run_cpu_s * share,
        measured=bool(took_s),
    )


def as_lines(heads: Sequence[HeadCount], settings: Settings, store: RunStore) -> Iterator[str]:
    """The sums, then each paper's numbers, before anything runs."""
    runs, kept, to_do = (sum(getattr(head, name) for head in heads) for name in ("runs", "kept", "to_do"))
    yield (
        f"{sum(head.figures for head in heads)} figures of {len(heads)} papers, {runs:,} runs: {kept:,} are "
        f"kept, {to_do:,} to do, {_minutes(heads, settings.processes)} with processes={settings.processes}"
    )
    for head in heads:
        missing = f", {head.missing} cases this version cannot run" if head.missing else ""
        yield (
            f"  {head.paper}: {head.figures} figures, {head.runs:,} runs, {head.kept:,} kept, "
            f"{head.to_do:,} to do, {_minutes([head], settings.processes)}{missing}"
        )
    if settings.sweeps == "missed":
        yield "  not counted: the sweeps of rows that will be out"
    yield f"  finished runs are kept in {store.folder}: after an interruption the same command goes on there"


def _minutes(heads: Sequence[HeadCount], processes: int) -> str:
    """How long the runs take that are to be made; unknown for a paper of which no run is kept."""
    if any(head.to_do and not head.measured for head in heads):
        return "minutes unknown before the first run"
    return f"about {counted(round(sum(head.minutes(processes) for head in heads)), 'minute')}"


class TimeLeft:
    """Reports how long the remaining runs take, from the speed of those made so far.

    A paper's runs count with the time that one of them was expected to take. say: gets a sentence at most
    every 30 s. show: gets the numbers of runs made and to be made after each.
    """

    def __init__(
        self,
        heads: Sequence[HeadCount],
        say: Callable[[str], None],
        show: Progress | None = None,
        now: Callable[[], float] = monotonic,
    ) -> None:
        self._head = {head.paper: head for head in heads}
        self._to_do = {head.paper: head.to_do for head in heads}
        self._made = dict.fromkeys(self._to_do, 0)
        self._say, self._show, self._now = say, show, now
        self._began_s = self._said_s = now()

    def of(self, paper: str) -> Progress:
        """Return the function that is told the paper's (finished, all) runs after each."""
        kept = self._head[paper].kept

        def report(done: int, total: int) -> None:
            # Sweeps of missed rows come late, and broken files are run again.
            self._to_do[paper] = max(total - kept, done - kept)
            self._made[paper] = done - kept
            self._report(paper)

        return report

    def left_s(self) -> float | None:
        """Seconds that the remaining runs take; None before the first."""
        made_s, to_do_s = (
            sum(count * self._head[paper].run_s for paper, count in counts.items())
            for counts in (self._made, self._to_do)
        )
        return (self._now() - self._began_s) * (to_do_s - made_s) / made_s if made_s > 0 else None

    def _report(self, paper: str) -> None:
        made, to_do, left_s = sum(self._made.values()), sum(self._to_do.values()), self.left_s()
        if self._show is not None:
            self._show(made, to_do)
        elif left_s is not None and self._now() - self._said_s >= _SAY_EVERY_S:
            self._said_s = self._now()
            left = counted(round(left_s / 60), "minute")
            self._say(f"{paper}: {made:,} of {to_do:,} runs made, about {left} left")
