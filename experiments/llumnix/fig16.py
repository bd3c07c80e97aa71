"""Figure 16, the scheduler: what a decision costs by the number of instances and of running requests.

Two designs are timed on this machine, both with the policies of the runs:

* two levels, as Llumnix: an instance tells its load, one report whatever it runs; the global scheduler
  dispatches and pairs by reports (`policies.llumnix`).
* centralised: one scheduler is told of every running request at every step, keeps their lengths, and makes
  an instance's report from them before it decides by the same rule.

Queues, processes and networks between them are not modelled: this is CPU time of the deciding alone.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from time import process_time
from typing import Final, Literal

from experiments.common.compare import pointed
from experiments.common.figure import Figure, FigureRow, Key, MeasuredPoint
from experiments.common.panels import panels_of
from experiments.common.verdict import Claim, at_most, judged
from experiments.llumnix.judge import PointJudge
from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from serving.protocols.load_report import LoadReport
from serving.vocabulary.request import Request

# A global scheduler without a cluster: it gets reports of steps, made up here, and decides by them.

_MODEL: Final = "llama_7b"
_BLOCK_TOKENS: Final = 16
_LONGEST: Final = 512  # tokens at which a request of the bench begins anew
_STEPS_PER_REQUEST: Final = 8  # steps of instances between two arrivals
_ROUND: Final = 4  # reports of every instance between two pairings, as the artefact has it


class ReportView:
    """What dispatch and migration see: the last report of every instance, and which reports are new."""

    model = _MODEL
    now_ns = 0
    round = 0  # each pairs: rounds=1
    head_tokens = 0  # instances do both roles
    nearly_full: Sequence[int] = ()  # only the periods of a monitor name one
    leaving: Sequence[int] = ()
    loading: Sequence[int] = ()

    def __init__(self, instances: int, beside: "ReportView | None" = None) -> None:
        """``beside``: another view that shares the reports."""
        self.replicas = instances
        self.taking: Sequence[int] = range(instances)
        self._reports: dict[int, LoadReport] = {} if beside is None else beside._reports
        self._changed: dict[int, None] = {}
        self._readers: list[dict[int, None]] = [self._changed] if beside is None else beside._readers
        if beside is not None:
            self._readers.append(self._changed)

    def tell(self, replica: int, report: LoadReport) -> None:
        """A new report."""
        self._reports[replica] = report
        for unread in self._readers:
            unread[replica] = None

    def report(self, replica: int) -> LoadReport | None:
        """The last one."""
        return self._reports.get(replica)

    def newly_reported(self) -> Sequence[int]:
        """Since this was last asked."""
        changed = list(self._changed)
        self._changed.clear()
        return changed

    def short(self) -> Sequence[int]:
        """All instances: this benchmark does not track which of them have enough memory."""
        return self.taking

    def engaged(self, replica: int) -> bool:
        """False: pairs are discarded here, so no instance migrates."""
        return False

    def load(self, replica: int, signal: Literal["outstanding", "kv_demand"]) -> int:
        """0: policies that read reports do not use it."""
        return 0

    def free_blocks(self, replica: int) -> int | None:
        """As ``load``."""
        return None

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        """As ``load``."""
        return {}

    def prompt_tokens(self, replica: int) -> int:
        """As ``load``."""
        return 0

    def kv_tokens(self, replica: int) -> int:
        """As ``load``."""
        return 0


class TwoLevel:
    """Instances send finished reports; the scheduler dispatches and pairs by them.

    ``running`` requests of each instance grow by a token a step and begin anew when they are long.
    """

    def __init__(self, instances: int, running: int) -> None:
        self._instances, self._running = instances, running
        self._view = ReportView(instances)
        self._to_pair = ReportView(instances, self._view)
        self._dispatch, self._migration = Freeness(), Llumnix(rounds=1)
        self._step = 0
        for replica in range(instances):
            self.report_step(replica)

    def run(self, steps: int) -> None:
        """So many steps, by one instance after the other."""
        for _ in range(steps):
            self._step += 1
            self.report_step(self._step % self._instances)
            if not self._step % _STEPS_PER_REQUEST:
                self._dispatch.dispatch(Request(self._step, 0, 64, 64, _MODEL), self._view)  # type: ignore[arg-type]
            if not self._step % (_ROUND * self._instances):
                self._migration.pair(self._to_pair)

    def report_step(self, replica: int) -> None:
        """One report, whose size does not depend on what runs."""
        blocks = self._running * (1 + (self._step + 7 * replica) % _LONGEST // _BLOCK_TOKENS)
        self._view.tell(replica, self._report(blocks))

    def _report(self, used_blocks: int) -> LoadReport:
        total = self._running * _LONGEST // _BLOCK_TOKENS
        return LoadReport(
            total_blocks=total,
            watermark_blocks=total // 100,
            block_tokens=_BLOCK_TOKENS,
            free_blocks=total - used_blocks,
            running=self._running,
            waiting=0,
            preempted=0,
            first_waiting_tokens=0,
            waiting_tokens=0,
        )


class Central(TwoLevel):
    """Instances send every running request at every step; the scheduler keeps lengths and adds up blocks."""

    def __init__(self, instances: int, running: int) -> None:
        self._tokens = [
            {request: request * _LONGEST // running for request in range(running)} for _ in range(instances)
        ]
        super().__init__(instances, running)

    def report_step(self, replica: int) -> None:
        """A new token of each."""
        tokens, used_blocks = self._tokens[replica], 0
        for request, length in tokens.items():
            length = 1 if length >= _LONGEST else length + 1
            tokens[request] = length
            used_blocks += -(-length // _BLOCK_TOKENS)
        self._view.tell(replica, self._report(used_blocks))


INSTANCES: Final = (16, 64, 256, 1024)
RUNNING: Final = (8, 64, 256)
KEY: Final[Key] = ("CPU us", "Figure 16")
_STEPS: Final = 2048  # reports, of all instances in turn
_REPEATS: Final = 3
_FLAT: Final = 2.0
_STEP_S: Final = 0.045  # a decode step of LLaMA-7B on an A10 (Figure 10)


def fig16(_: PointJudge) -> Figure:
    """CPU time per report: what one step of one instance costs the scheduler."""
    us = dict(_measure())
    numbers = tuple(point for name in _DRAWN for point in _numbers(name, us))
    rows = [
        _row("two levels: 1,024 instances over 16", us["two levels", 1024, 64], us["two levels", 16, 64]),
        _row("two levels: 256 running requests over 8", us["two levels", 256, 256], us["two levels", 256, 8]),
        _order(us),
    ]
    data = {
        "told": "CPU us per step of an instance, by design, instances and running requests of each",
        "points": {
            f"{panel}, {instances} instances, {running} running": value
            for (panel, instances, running), value in us.items()
        },
    }
    inputs = (
        "CPU times of the machine this ran on, the best of several; interpreted Python, as the runs are",
        "two levels: the global scheduler is told one load report per step of an instance, whatever it runs; "
        "centralised: it is told of every running request at every step and sums them up itself. The rule of "
        "the decision is the same",
        f"busy share: of one scheduler, all instances take steps of {_STEP_S * 1e3:g} ms; above 1 they wait",
        "processes, networks and queues between scheduler and instances are not modelled",
    )
    return Figure(
        "fig16", "Figure 16: cost of scheduling", tuple(pointed(row, KEY) for row in rows),
        panels=panels_of(numbers, "instances"), inputs=inputs, sweeps={KEY: data}, numbers=numbers,
    )  # fmt: skip


def _messages(name: str, running: int) -> float:
    """Return how many messages an instance sends per step: one report, or one for each request."""
    return 1.0 if name == "two levels" else float(running)


# Metric -> its value from (design, instances, running requests of each, CPU us per step of an instance).
_DRAWN: Final[Mapping[str, Callable[[str, int, int, float], float]]] = {
    "told_per_step_of_an_instance": lambda name, _instances, running, _us: _messages(name, running),
    "scheduler_us_per_step_of_an_instance": lambda _name, _instances, _running, us: us,
    "scheduler_busy_share": lambda _name, instances, _running, us: us * 1e-6 * instances / _STEP_S,
}


def _numbers(metric: str, us: Mapping[tuple[str, int, int], float]) -> Iterator[MeasuredPoint]:
    for (name, instances, running), value in us.items():
        drawn = (_DRAWN[metric](name, instances, running, value),)
        yield MeasuredPoint(name, metric, f"{running} running each", instances, drawn)


def _measure() -> Iterator[tuple[tuple[str, int, int], float]]:
    designs: dict[str, Callable[[int, int], TwoLevel | Central]] = {
        "two levels": TwoLevel,
        "centralised": Central,
    }
    for name, design in designs.items():
        for instances in INSTANCES:
            for running in RUNNING:
                yield (name, instances, running), _us(design, instances, running)


def _us(design: Callable[[int, int], "TwoLevel | Central"], instances: int, running: int) -> float:
    """CPU microseconds per step of an instance, decisions included."""
    best_s, steps = float("inf"), max(_STEPS, 8 * instances)
    for _ in range(_REPEATS):
        scheduler = design(instances, running)
        scheduler.run(4 * instances)  # what grows until it is full has grown
        started = process_time()
        scheduler.run(steps)
        best_s = min(best_s, process_time() - started)
    return best_s / steps * 1e6


def _row(name: str, large_us: float, small_us: float) -> FigureRow:
    claim: Claim = at_most(_FLAT, f"flat (read as at most {_FLAT:g} times)")
    ratio = large_us / small_us
    return judged(name, claim, ratio, f"{ratio:.2f}", why=f"{large_us:.2f} against {small_us:.2f} us")


def _order(us: dict[tuple[str, int, int], float]) -> FigureRow:
    """A centralised scheduler pays for every running request."""
    ratio = us["centralised", 64, 256] / us["two levels", 64, 256]
    claim = Claim("more than two levels", 1.0, float("inf"), slack=1.0, strict=True, kind="paper_direction")
    why = f"{us['centralised', 64, 256]:.1f} against {us['two levels', 64, 256]:.1f} us per step"
    return judged(
        "centralised over two levels, 64 instances with 256 running each",
        claim,
        ratio,
        f"{ratio:.1f}",
        why=why,
    )
