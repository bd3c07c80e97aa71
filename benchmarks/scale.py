"""How the cost of a request grows with a cluster and the models on it (see benchmarks/README.md).

python -m benchmarks.scale [SYSTEM ...]            blitzscale and serverlessllm if left out
python -m benchmarks.scale --check [SYSTEM ...]    hold the exponents against benchmarks/baseline.json
python -m benchmarks.scale --record [SYSTEM ...]   write them there

An exponent is the slope of raw per request over GPUs (at 100 models), or over models (on 1,024 GPUs), both on
logarithmic scales: 0 for a cost that does not grow, 1 for one that doubles with the cluster. The runs are
cells of servetwin reproduce scale, with the same number of requests each. A check ends with exit status 1
when an exponent is more than 0.1 above what is recorded, twice in a row.
"""

import math
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

from benchmarks import baseline
from benchmarks.baseline import Entries, Verdict
from benchmarks.command import among, command
from benchmarks.modes import ran
from benchmarks.raw import measured
from experiments.common.rates import NOWHERE
from experiments.scale.cells import SYSTEMS, case_of
from servetwin.config.compose.compose import load_config
from servetwin.config.version import code_version
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.errors import UserError

OPTIONS: Final = ("--check", "--record")
GROWING: Final = ("blitzscale", "serverlessllm")
REQUESTS: Final = 2000
REPEATS: Final = 3
TOLERANCE: Final = 0.1
AXES: Final[Mapping[str, tuple[tuple[int, int], ...]]] = {
    "GPUs": ((256, 100), (1024, 100), (8192, 100)),
    "models": ((1024, 10), (1024, 100), (1024, 1000)),
}
"""What grows -> (GPUs, models) of each run."""

Cost = Callable[[str, int, int], float]
"""Raw per request of a system on so many GPUs with so many models."""


@dataclass(frozen=True, slots=True)
class Growth:
    """raw per request at each size of what grows."""

    sizes: tuple[int, ...]
    raw: tuple[float, ...]

    @property
    def exponent(self) -> float:
        """The slope of the straight line through the points on logarithmic scales."""
        x, y = [math.log(size) for size in self.sizes], [math.log(raw) for raw in self.raw]
        x_mean, y_mean = sum(x) / len(x), sum(y) / len(y)
        products = sum((one - x_mean) * (other - y_mean) for one, other in zip(x, y, strict=True))
        return products / sum((one - x_mean) ** 2 for one in x)

    def text(self, axis: str) -> str:
        """``raw per request 512 at 256, 700 at 1,024 GPUs: exponent 0.23``."""
        points = ", ".join(f"{raw:,.0f} at {size:,}" for size, raw in zip(self.sizes, self.raw, strict=True))
        return f"raw per request {points} {axis}: exponent {self.exponent:.2f}"


def main(words: list[str]) -> int:
    """Print one line per system and axis; record or compare."""
    options = [word for word in words if word.startswith("-")]
    among(options, OPTIONS, "option")
    if len(options) > 1:
        raise UserError("it takes --check or --record, once: leave one out")
    systems = [word for word in words if word not in options]
    among(systems, SYSTEMS, "system")
    if options == ["--check"]:
        return check(systems or GROWING, baseline.read(), raw_per_request)
    for system in systems or GROWING:
        costs = dict[tuple[int, int], float]()
        for axis in AXES:
            growth = growth_of(system, axis, raw_per_request, costs)
            print(f"{system}: {growth.text(axis)}", flush=True)
            if options == ["--record"]:
                record(system, axis, growth)
    return 0


def raw_per_request(system: str, gpus: int, models: int) -> float:
    """The least CPU time over the least raw; the first run of a process imports what summaries need."""
    words = case_of(gpus, models, system).all_words("models.duration_s=null", f"models.requests={REQUESTS}")
    prepared = prepare(load_config((*words, NOWHERE), "simulate"))
    return measured(lambda: execute(prepared).cpu_s / len(prepared.workload), REPEATS).best


def growth_of(system: str, axis: str, cost: Cost, costs: dict[tuple[int, int], float]) -> Growth:
    """Measure the runs of an axis; ``costs`` keeps them for the other axis."""
    for cell in AXES[axis]:
        if cell not in costs:
            costs[cell] = cost(system, *cell)
    place = list(AXES).index(axis)
    return Growth(tuple(cell[place] for cell in AXES[axis]), tuple(costs[cell] for cell in AXES[axis]))


def record(system: str, axis: str, growth: Growth) -> None:
    """Put the exponent and its points into the file."""
    entries = baseline.read()
    entries.setdefault(_scenario(system, axis), {})[ran()] = {
        "exponent": round(growth.exponent, 3),
        "raw": {str(size): round(raw, 1) for size, raw in zip(growth.sizes, growth.raw, strict=True)},
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "commit": code_version()["commit"],
    }
    baseline.write(entries)


def check(systems: Sequence[str], entries: Entries, cost: Cost) -> int:
    """Print one line per system and axis; 1 when an exponent is higher than recorded."""
    verdicts = list[Verdict]()
    for system in systems:
        costs = dict[tuple[int, int], float]()
        for axis in AXES:
            verdicts.append(_judged(system, axis, entries, cost, costs))
            print(verdicts[-1].line(), flush=True)
    higher = [f"{verdict.scenario}" for verdict in verdicts if verdict.slower]
    print(f"exponents more than {TOLERANCE} higher than recorded: {', '.join(higher) or 'none'}")
    return int(bool(higher))


def _judged(
    system: str, axis: str, entries: Entries, cost: Cost, costs: dict[tuple[int, int], float]
) -> Verdict:
    """Hold an exponent against the recorded one; one that is too high is measured again, once."""
    scenario, mode = _scenario(system, axis), ran()
    entry: Mapping[str, Any] | None = entries.get(scenario, {}).get(mode)
    if entry is None:
        sentence = f"left out: nothing is recorded: write python -m benchmarks.scale {system} --record"
        return Verdict(scenario, mode, sentence, compared=False)
    growth, most = growth_of(system, axis, cost, costs), float(entry["exponent"]) + TOLERANCE
    if growth.exponent > most:
        again = growth_of(system, axis, cost, {})
        growth = min(growth, again, key=lambda one: one.exponent)
    higher = growth.exponent > most
    sentence = f"{growth.text(axis)}, recorded {entry['exponent']:.2f}{': higher' if higher else ''}"
    return Verdict(scenario, mode, sentence, higher)


def _scenario(system: str, axis: str) -> str:
    return f"growth_{system}_{axis.lower()}"


if __name__ == "__main__":
    command("benchmarks.scale", __doc__, main)
