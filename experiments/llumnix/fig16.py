"""Figure 16, the scheduler: what a decision costs by the number of instances and of running requests.

Two designs are timed on this machine, both with the policies of the runs:

* two levels, as Llumnix: an instance tells its load, one report whatever it runs; the global scheduler
  dispatches and pairs by reports (`policies.llumnix`).
* centralised: one scheduler is told of every running request at every step, keeps their lengths, and makes
  an instance's report from them before it decides by the same rule.

Queues, processes and networks between them are not modelled: this is CPU time of the deciding alone.
"""

from collections.abc import Callable, Iterator, Mapping
from time import process_time
from typing import Final

from experiments.common.compare import pointed
from experiments.common.figure import Figure, Key, Measured, Row
from experiments.common.verdict import Claim, at_most, judged
from experiments.llumnix.draw import panels_of
from experiments.llumnix.judge import Judge
from experiments.llumnix.scheduler_bench import Central, TwoLevel

INSTANCES: Final = (16, 64, 256, 1024)
RUNNING: Final = (8, 64, 256)
KEY: Final[Key] = ("CPU us", "Figure 16")
_STEPS: Final = 2048  # reports, of all instances in turn
_REPEATS: Final = 3
_FLAT: Final = 2.0
_STEP_S: Final = 0.045  # a decode step of LLaMA-7B on an A10 (Figure 10)


def fig16(_: Judge) -> Figure:
    """CPU time per report: what one step of one instance costs the scheduler."""
    us = dict(_measured())
    numbers = tuple(one for name in _DRAWN for one in _numbers(name, us))
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
        "fig16", "Figure 16: cost of scheduling", tuple(pointed(one, KEY) for one in rows),
        panels_of(numbers, "instances"), inputs, sweeps={KEY: data}, numbers=numbers,
    )  # fmt: skip


def _told(name: str, running: int) -> float:
    """What one step of an instance tells the scheduler: one report, or a token of each request."""
    return 1.0 if name == "two levels" else float(running)


# Metric -> its value from (design, instances, running requests of each, CPU us per step of an instance).
_DRAWN: Final[Mapping[str, Callable[[str, int, int, float], float]]] = {
    "told_per_step_of_an_instance": lambda name, _instances, running, _us: _told(name, running),
    "scheduler_us_per_step_of_an_instance": lambda _name, _instances, _running, us: us,
    "scheduler_busy_share": lambda _name, instances, _running, us: us * 1e-6 * instances / _STEP_S,
}


def _numbers(metric: str, us: Mapping[tuple[str, int, int], float]) -> Iterator[Measured]:
    for (name, instances, running), value in us.items():
        drawn = (_DRAWN[metric](name, instances, running, value),)
        yield Measured(name, metric, f"{running} running each", instances, drawn)


def _measured() -> Iterator[tuple[tuple[str, int, int], float]]:
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


def _row(name: str, large_us: float, small_us: float) -> Row:
    claim: Claim = at_most(_FLAT, f"flat (read as at most {_FLAT:g} times)")
    ratio = large_us / small_us
    return judged(name, claim, ratio, f"{ratio:.2f}", "", f"{large_us:.2f} against {small_us:.2f} us")


def _order(us: dict[tuple[str, int, int], float]) -> Row:
    """A centralised scheduler pays for every running request."""
    ratio = us["centralised", 64, 256] / us["two levels", 64, 256]
    claim = Claim("more than two levels", 1.0, float("inf"), slack=1.0, strict=True, kind="paper_direction")
    why = f"{us['centralised', 64, 256]:.1f} against {us['two levels', 64, 256]:.1f} us per step"
    return judged(
        "centralised over two levels, 64 instances with 256 running each",
        claim,
        ratio,
        f"{ratio:.1f}",
        "",
        why,
    )
