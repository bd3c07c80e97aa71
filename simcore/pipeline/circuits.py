"""Language models whose stages are separate replicas: circulating batches, as a world runs them.

A ``Run`` with a path belongs here. It is reported when a decision is needed: a request has ended, a prompt is
computed, the allowed steps are done, an interrupt. Until then the ``Circuit`` of the model advances alone; it
computes in advance when the next report is due. If an event comes before that, the circuit returns to the
last report and advances to the event's time.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from simpy import Environment

from serving.vocabulary.actions import Run, Span
from serving.vocabulary.events import Ran
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import FRACTION_BITS
from simcore.pipeline.circuit import FOREVER, Circuit
from simcore.pipeline.micro_batch import MicroBatch
from simcore.pipeline.path_lane import PathLane
from simcore.pipeline.stage_costs import StageCosts
from simcore.replica.lifetime import Lifetime
from simcore.replica.machine import Machine
from simcore.timers import Timer

CostsOf = Callable[[tuple[int, ...], tuple[Span, ...]], StageCosts]


@dataclass(frozen=True, slots=True)
class PathCosts:
    """``of``: step costs on a path of these GPUs, each of which runs these layers."""

    of: CostsOf


class Circuits:
    """The circuit of one model. ``tell`` receives reports."""

    __slots__ = (
        "_boundary", "_costs", "_gpu_of", "_halted", "_layers_of", "_lives", "_machines", "_planned",
        "_recorder", "_runs", "_tell", "_telling", "_timer", "circuit",
    )  # fmt: skip

    def __init__(
        self,
        costs: PathCosts,
        machines: Mapping[int, Machine],
        lives: dict[int, Lifetime],
        recorder: Recorder,
        env: Environment,
        timer_rank: int,
        gpu_of: Callable[[int], int],
        layers_of: Callable[[int], Span],
        tell: Callable[[int, Ran], None],
    ) -> None:
        self._costs, self._machines, self._lives, self._recorder = costs, machines, lives, recorder
        self._gpu_of, self._layers_of, self._tell = gpu_of, layers_of, tell
        self._timer = Timer(env, timer_rank, self.due)
        self._telling = False
        self._boundary = 0  # end of the last reported round
        self._planned: PathLane | None = None  # the batch to be reported next
        self._runs: dict[int, Run] = {}  # the last run of each batch
        self._halted: dict[int, tuple[int, ...]] = {}  # requests that decode in halted batches
        self.circuit = Circuit()

    def begin(self, now_ns: int, run: Run) -> None:
        """Let a batch begin on its path."""
        if not self._telling:
            self._go_to(now_ns)
        one = self.circuit.lanes.get(run.micro_batch)
        spans = run.spans or tuple([self._layers_of(replica) for replica in run.path])
        if one is not None and (one.path != run.path or one.spans != spans):
            assert self._telling and not one.batch.decoding, "a batch stays on its path"
            self.circuit.drop(run.micro_batch)  # a batch has ended, and another one uses its number
            one = None
        if one is None:
            costs = self._costs.of(tuple([self._gpu_of(replica) for replica in run.path]), spans)
            batch = MicroBatch(run.path[-1], run.micro_batch, costs, self._lives, self._recorder)
            batch.go_on(self._halted.pop(run.micro_batch, ()), self._boundary)
            one = PathLane(run.micro_batch, run.path, spans, batch)
        self._runs[run.micro_batch] = run
        one.batch.begin(run, self._boundary)
        one.batch.allow(run.max_steps)
        self.circuit.enter(one, self._boundary)
        if not self._telling:
            self._plan()

    def interrupt(self, now_ns: int) -> None:
        """Report the next round to end, of any batch."""
        if not self.circuit.lanes:
            return
        if not self._telling:
            self._go_to(now_ns)
        self.circuit.cut = True
        if not self._telling:
            self._plan()

    def lose(self, now_ns: int, replica: int) -> None:
        """Lose a replica, and all batches whose path contains it.

        The loss comes after everything that ends at that nanosecond.
        """
        self._go_to(now_ns + 1)
        for index in [number for number, one in self.circuit.lanes.items() if replica in one.path]:
            self.circuit.drop(index).batch.clear()
            del self._runs[index]
        self.circuit.stop(replica, now_ns)
        self._timer.cancel()
        self._plan()

    def due(self, now_ns: int) -> None:
        """Report the rounds that have ended; several at one moment in their order."""
        while (one := self._planned) is not None:
            due_ns = one.lane.done >> FRACTION_BITS
            if now_ns < due_ns:
                self._timer.at(due_ns)
                return
            self._report(now_ns, one)

    def _report(self, now_ns: int, one: PathLane) -> None:
        finished, circuit = list[int](), self.circuit
        self._boundary = one.lane.done
        self._book(one, finished)
        circuit.cut = False
        steps, one.told = one.told, 0
        run = self._runs.pop(one.index)
        self._telling = True
        self._tell(now_ns, Ran(run.replica, run.epoch, steps, tuple(finished), micro_batch=one.index))
        self._telling = False
        if one.index not in self._runs:
            circuit.drop(one.index)
            if one.batch.decoding:
                self._halted[one.index] = one.batch.halt(self._boundary)
        self._plan()

    def _go_to(self, now_ns: int) -> None:
        """Book everything that begins before this moment."""
        circuit = self.circuit
        self._boundary = max(self._boundary, now_ns << FRACTION_BITS)
        circuit.back()
        early = circuit.advance(self._boundary)
        assert early is None, "a report was due before"
        self._book(None, [])

    def _book(self, reported: PathLane | None, finished: list[int]) -> None:
        others = list[int]()
        for one in self.circuit.lanes.values():
            one.told += one.batch.book(finished if one is reported else others)
        assert not others, "a request ended without a report"
        self.circuit.keep()

    def _plan(self) -> None:
        circuit = self.circuit
        circuit.keep()
        one = self._planned = circuit.advance(FOREVER)
        if one is not None:
            self._timer.at(one.lane.done >> FRACTION_BITS)
        else:
            self._busy()

    def _busy(self) -> None:
        """Write each replica's computing time to its machine."""
        for replica, fixed in self.circuit.work.items():
            self._machines[replica].busy_ns = fixed >> FRACTION_BITS
