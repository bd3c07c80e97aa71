"""Stage passes before the GPU runs them: waiting for inputs, CPU preparation, a busy GPU.

A GPU runs one pass at a time, in the order in which the passes become ready.
"""

from collections import deque
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from heapq import heappop, heappush
from typing import Final

from simpy import Environment

from serving.vocabulary.actions import Interrupt, Run, Send, Span
from serving.vocabulary.events import Event, Ran, Sent
from serving.vocabulary.recorder import Recorder
from simcore.data_plane.data_plane import DataPlane
from simcore.loading_replicas import RunHooks
from simcore.pipeline.circuits import Circuits, PathCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.replica.stage_times import StageTimes
from simcore.timers import Timer

# After arrivals on links and after passes that end at that moment.
READY_RANK: Final = 1 << 33
# After all others: a round that ends is handled after all other events of the same moment.
CIRCUIT_RANK: Final = 1 << 34


@dataclass(frozen=True, slots=True)
class StagePlan:
    """``times``: step times of each model. ``cores``: number of CPU cores of a replica.

    ``paths``: for each language model, the costs of its steps.
    """

    times: Mapping[str, StageTimes]
    cores: int
    paths: Mapping[str, PathCosts] = field(default_factory=dict)


@dataclass(slots=True)
class _Held:
    """A pass that no GPU runs yet. ``missing``: inputs in transit; ``lost``: some will not arrive."""

    run: Run
    missing: int
    lost: bool = False


class StagePasses:
    """``replicas``: the replicas that are placed and not lost. ``tell``: called with each report."""

    __slots__ = (
        "_circuits", "_data_plane", "_held", "_inputs", "_machines", "_of_input", "_on_paths", "_plan",
        "_preparing", "_queues", "_running", "_tell", "_timer", "_timers", "replicas",
    )  # fmt: skip

    def __init__(
        self,
        plan: StagePlan,
        *,
        env: Environment,
        machines: dict[int, Machine],
        timers: dict[int, Timer],
        data_plane: DataPlane | None,
        tell: Callable[[int, Event], None],
        lives: dict[int, Lifetime],
        recorder: Recorder,
    ) -> None:
        assert data_plane is not None, "stages send their activations over links"
        self._plan = plan
        self._machines, self._timers, self._data_plane, self._tell = machines, timers, data_plane, tell
        self.replicas: set[int] = set()
        self._held: dict[int, _Held] = {}  # by replica
        self._of_input: dict[int, int] = {}  # transfer -> replica
        self._on_paths: dict[int, str] = {}  # replica -> its model
        self._inputs = 0
        self._preparing: list[tuple[int, int]] = []  # a heap of (end of CPU work, replica)
        self._queues: dict[int, deque[int]] = {}  # GPU -> replicas whose pass is ready for it
        self._running: dict[int, int] = {}  # GPU -> replica
        self._timer = Timer(env, READY_RANK, self._prepared)
        self._circuits = {
            model: Circuits(
                costs,
                machines,
                lives=lives,
                recorder=recorder,
                env=env,
                timer_rank=CIRCUIT_RANK + number,
                gpu_of=self._gpu,
                layers_of=self._layers,
                tell=tell,
            )
            for number, (model, costs) in enumerate(sorted(plan.paths.items()))
        }

    def hooks(self) -> RunHooks:
        """Hooks for every run of a stage; only runs on paths can be interrupted."""
        return RunHooks(self.replicas, self._on_paths, self.takes, self._interrupt)

    def told_by(self, replica: int) -> Callable[[int, Ran], None]:
        """Register a newly placed replica; returns the receiver of its reports."""
        self.replicas.add(replica)
        if (model := self._model(replica)) in self._circuits:
            self._on_paths[replica] = model
        return self.ran

    def takes(self, now_ns: int, run: Run) -> bool:
        """Accept a run; the pass begins once all its inputs have arrived."""
        replica = run.replica
        if run.layers is not None and run.layers != self._data_plane.placement.part_of[replica].layers:
            self._data_plane.require_layers(replica, run.layers)
        if run.path:
            if self.replicas.issuperset(run.path):  # else a loss will be reported next
                for part, layers in zip(run.path, run.spans):
                    self._data_plane.require_layers(part, layers)
                self._circuits[self._model(replica)].begin(now_ns, run)
            return True
        assert replica not in self._held, "one pass at a time"
        own = self._gpu(replica)
        sources = [(source, size) for source, size in run.inputs if self._gpu(source) != own]
        self._held[replica] = _Held(run, len(sources))
        requests = tuple([chunk[0] for chunk in run.chunks])
        for source, size_bytes in sources:
            self._inputs += 1
            transfer = -self._inputs  # a number no controller uses
            self._of_input[transfer] = replica
            self._data_plane.send(
                now_ns,
                Send(
                    transfer,
                    "activations",
                    requests=requests,
                    source=source,
                    target=replica,
                    size_bytes=size_bytes,
                    reason="input",
                ),
            )
        if not sources:
            self._prepare(now_ns, replica)
        return True

    def came(self, now_ns: int, fact: Sent) -> None:
        """Handle an arrived or failed input of a pass; forward other transfers to the controller."""
        if fact.transfer >= 0:
            self._tell(now_ns, fact)
            return
        replica = self._of_input.pop(fact.transfer)
        held = self._held.get(replica)
        if held is None:
            return  # its replica is lost
        held.missing -= 1
        held.lost = held.lost or bool(fact.cause)
        if held.missing:
            return
        if held.lost:
            del self._held[replica]
            self._tell(now_ns, Ran(replica, held.run.epoch, 0, ()))
        else:
            self._prepare(now_ns, replica)

    def ran(self, now_ns: int, report: Ran) -> None:
        """Handle the end of a pass: start the GPU's next pass, then report to the controller."""
        self._start_next(now_ns, self._gpu(report.replica))
        self._tell(now_ns, report)

    def lose(self, now_ns: int, replica: int) -> None:
        """Drop a lost replica."""
        self.replicas.discard(replica)
        circuits = self._circuits.get(self._model(replica))
        if circuits is not None:
            circuits.lose(now_ns, replica)
            return
        self._held.pop(replica, None)
        gpu = self._gpu(replica)
        queue = self._queues.get(gpu)
        if queue and replica in queue:
            queue.remove(replica)
        if self._running.get(gpu) == replica:
            self._start_next(now_ns, gpu)

    def _layers(self, replica: int) -> Span:
        return self._data_plane.placement.part_of[replica].layers

    def _model(self, replica: int) -> str:
        return self._data_plane.placement.part_of[replica].model

    def _gpu(self, replica: int) -> int:
        return self._data_plane.placement.gpus_of[replica][0]

    def _prepare(self, now_ns: int, replica: int) -> None:
        """All inputs have arrived: start the CPU preparation."""
        run = self._held[replica].run
        assert run.layers is not None
        took_ns = self._plan.times[self._model(replica)].cpu_ns(
            run.chunks, run.layers, run.cpu_cores or self._plan.cores
        )
        if took_ns:
            heappush(self._preparing, (now_ns + took_ns, replica))
            self._timer.at(self._preparing[0][0])
        else:
            self._ready(now_ns, replica)

    def _prepared(self, now_ns: int) -> None:
        while self._preparing and self._preparing[0][0] <= now_ns:
            _, replica = heappop(self._preparing)
            if replica in self._held:
                self._ready(now_ns, replica)
        if self._preparing:
            self._timer.at(self._preparing[0][0])

    def _ready(self, now_ns: int, replica: int) -> None:
        gpu = self._gpu(replica)
        if gpu in self._running:
            self._queues.setdefault(gpu, deque()).append(replica)
        else:
            self._start(now_ns, gpu, replica)

    def _start_next(self, now_ns: int, gpu: int) -> None:
        del self._running[gpu]
        queue = self._queues.get(gpu)
        if queue:
            self._start(now_ns, gpu, queue.popleft())

    def _start(self, now_ns: int, gpu: int, replica: int) -> None:
        self._running[gpu] = replica
        run = self._held.pop(replica).run
        self._timers[replica].at(self._machines[replica].start(now_ns, run))

    def _interrupt(self, now_ns: int, action: Interrupt) -> None:
        self._circuits[self._on_paths[action.replica]].interrupt(now_ns)
