"""INFless (ASPLOS '22), approximated: scales whole models by their request rate, each with its own batch.

The paper serves every function by instances of different batch sizes ("non-uniform batching"). An instance of
batch b absorbs at most b / t(b) requests per second. It needs at least b / (SLO - t(b)), or its batch would
not be full in time. b is above 1 only if t(b) is at most half of the SLO. The largest batch that the
remaining rate fills is chosen first. The paper's shares of CPU and GPU, profiles of operators and prediction
of idle times are not implemented.
"""

from typing import Literal

from policies.quart.demand import History, Periods, Sizing, by_rate, stop, targets_s
from policies.quart.free_room import FreeRoom, spread
from policies.quart.queueing import fewest_within
from serving.protocols.stages import PipelineView, SetBatch, StageDecision, StageView, StartReplicas

Batching = Literal["non_uniform", "uniform"]


class Infless:
    """Scales in units: a unit is one replica of every stage.

    All replicas of a unit start together, from SSD. They stop together once fewer units have been enough for
    ``keep_alive_s``. If one stage finds no room, no unit starts. ``sizing``: with ``utilization`` a unit is
    busy for at most that share of the time; with ``slo`` there are the fewest units that keep the SLO, and a
    unit of a batch of its own absorbs all that it serves, b / t(b), as in INFless's paper. ``batching``:
    ``non_uniform``: each unit has its own batch, at most the pipeline's; ``uniform``: all use the pipeline's
    batch, whose rate is measured.
    """

    def __init__(
        self,
        utilization: float = 0.8,
        keep_alive_s: float = 60.0,
        period_s: float = 1.0,
        batching: Batching = "non_uniform",
        *,
        sizing: Sizing = "utilization",
    ) -> None:
        self._utilization, self._sizing = utilization, sizing
        self._wanted = History(keep_alive_s)
        self._periods = Periods(period_s)
        self._batching = batching

    def scale(self, view: PipelineView) -> tuple[StageDecision, ...]:
        """Set batches of units, and start or stop units."""
        if not self._periods.due(view.now_ns):
            return ()
        rate = view.stages[0].arrival_per_s
        if self._batching == "uniform" or view.batch == 1:
            wanted, batches = self._units(view, rate), list[int]()
        else:
            batches = planned(view, rate, 1.0 if self._sizing == "slo" else self._utilization)
            wanted = len(batches)
        self._wanted.add(view.now_ns, wanted)
        units = min(stage.supply for stage in view.stages)
        why = f"{rate:.1f} requests/s are {wanted} models, {units} in supply"
        if batches:
            why = f"{why}, batches of {' '.join(map(str, batches))}"
        changed = [size for stage in view.stages for size in _batched(stage, batches, why)]
        if wanted > units:
            return (*changed, *self._start(view, wanted, why))
        keep = int(self._wanted.most)
        if units > keep:
            stops = [stop(stage, stage.supply - keep, why) for stage in view.stages]
            return (*changed, *[size for some in stops for size in some])
        return tuple(changed)

    def _units(self, view: PipelineView, rate: float) -> int:
        """How many units the rate needs, all with the same batch."""
        if self._sizing == "slo":
            goals_s = targets_s(view)
            return max(
                [fewest_within(goals_s[stage.index], rate, stage.replica_per_s) for stage in view.stages]
            )
        return by_rate(rate, min(stage.replica_per_s for stage in view.stages), self._utilization)

    def _start(self, view: PipelineView, wanted: int, why: str) -> tuple[StageDecision, ...]:
        room, budget = FreeRoom(view), view.max_replicas - view.supply
        hosts: dict[int, list[int]] = {stage.index: [] for stage in view.stages}
        for unit in range(min(stage.supply for stage in view.stages) + 1, wanted + 1):
            lacking = [stage for stage in view.stages if stage.supply + len(hosts[stage.index]) < unit]
            if budget < len(lacking) or any(stage.maximum < unit for stage in lacking):
                break
            gpus = {stage.index: spread(room, stage, 1) for stage in lacking}
            if not all(gpus.values()):
                break
            budget -= len(lacking)
            for index, gpu in gpus.items():
                hosts[index] += gpu
        return tuple(
            [
                StartReplicas(stage, len(gpus), why, gpus=tuple(gpus), source="ssd")
                for stage, gpus in hosts.items()
                if gpus
            ]
        )


def planned(view: PipelineView, rate: float, utilization: float) -> list[int]:
    """The batch of every unit needed for this rate, largest first; at least one unit."""
    counts, left = list[int](), rate
    for batch in range(view.batch, 1, -1):
        seconds = [_pass_s(stage, batch, view.batch_cost) for stage in view.stages]
        whole_s = sum(seconds)
        if view.slo_s and 2 * whole_s > view.slo_s:
            continue
        least_per_s = batch / (view.slo_s - whole_s) if view.slo_s else 0.0
        unit_per_s = utilization * batch / max(seconds)
        while left > 0 and left >= least_per_s:
            counts.append(batch)
            left -= unit_per_s
    if left > 0 or not counts:
        slowest = max(_pass_s(stage, 1, view.batch_cost) for stage in view.stages)
        counts += [1] * by_rate(left, 1.0 / slowest, utilization)
    return counts


def _pass_s(stage: StageView, batch: int, cost: float) -> float:
    """Duration of a pass of ``batch`` requests: the expected one, scaled by how slow measured passes are."""
    measured = stage.service_s / (stage.exec_s * (1.0 + cost * (stage.batch - 1.0)))
    return measured * stage.exec_s * (1.0 + cost * (batch - 1))


def _batched(stage: StageView, batches: list[int], why: str) -> list[SetBatch]:
    """Give replica n the batch of unit n; replicas beyond the plan take one request at a time."""
    if not batches:
        return []
    changed: dict[int, list[int]] = {}
    there = [replica for replica in stage.replicas if replica.state != "draining"]
    for unit, one in enumerate(there):
        most = batches[unit] if unit < len(batches) else 1
        if most != one.most:
            changed.setdefault(most, []).append(one.id)
    return [SetBatch(stage.index, tuple(ids), most, why) for most, ids in changed.items()]
