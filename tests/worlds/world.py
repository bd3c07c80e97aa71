"""Run the product's engine on the cases of the naive reference engine."""

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill, PrefillFirst
from policies.dispatch import LeastOutstanding, RoundRobin
from serving.composition import ServiceOptions, compose
from serving.controller import Controller
from serving.engine.pool import EngineOptions
from serving.protocols.batch import Batch, Batcher, ReplicaView
from serving.record.invariants import check
from serving.record.journal import line
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from simcore.sim_report import SimReport
from simcore.simulation import Simulation
from tests.worlds.naive_engine import Case


@dataclass
class Collected:
    """A recorder that keeps everything: per request facts, and every gap spelled out."""

    done: dict[int, tuple[int, int, int, int, int]] = field(default_factory=dict)
    refusals: dict[int, str] = field(default_factory=dict)
    all_gaps: list[int] = field(default_factory=list)
    busy_ns: dict[int, int] = field(default_factory=dict)

    def finished(
        self,
        request: Request,
        output_tokens: int,
        first_token_ns: int,
        finish_ns: int,
        replica: int,
        preemptions: int,
    ) -> None:
        assert request.id not in self.done, "a request finished twice"
        self.done[request.id] = (replica, output_tokens, first_token_ns, finish_ns, preemptions)

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        self.refusals[request.id] = reason

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        raise AssertionError("nothing fails in these cases")

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        for step in range(steps):
            self.all_gaps.extend([first_fixed + slope_fixed * step] * sequences)

    def busy(self, replica: int, busy_ns: int) -> None:
        self.busy_ns[replica] = busy_ns


class RandomCuts:
    """A batcher that ends some decode runs early, at random boundaries; nothing else may change."""

    def __init__(self, inner: Batcher, random: Random) -> None:
        self.inner = inner
        self.random = random

    def choose(self, view: ReplicaView) -> Batch | None:
        batch = self.inner.choose(view)
        if batch is None or batch.max_steps == 1:
            return batch
        return batch._replace(max_steps=self.random.randint(1, min(7, batch.max_steps)))


class Checked:
    """A controller whose invariants are checked after every event, and whose journal is kept."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.elastic = controller.elastic  # a standing world is told by it
        self.lines: list[str] = []
        self.step_counts = controller.step_counts
        self.step_counts.answers = []

    def handle(self, now_ns: int, event):  # type: ignore[no-untyped-def]
        actions = self.controller.handle(now_ns, event)
        check(self.controller)
        self.lines.append(line(now_ns, event, actions, self.step_counts.take()))
        return actions


def batcher_of(case: Case) -> Batcher:
    if case.batcher == "chunked":
        return ChunkedPrefill(case.max_num_seqs, case.max_num_batched_tokens, case.reserve_full_prompt)
    return PrefillFirst(case.max_num_seqs, case.max_num_batched_tokens, case.decode_spare_block)


def controller_of(
    case: Case,
    coalesce: bool = True,
    wrap: Callable[[Batcher], Batcher] = lambda batcher: batcher,
    options: EngineOptions | None = None,
    service_options: ServiceOptions | None = None,
    kv_pools: int = 1,
) -> Controller:
    replicas = [
        Replica(
            id=id,
            model="m",
            layers=LayerRange(0, 4),
            gpus=(id,),
            kv_blocks=case.total_blocks,
            block_tokens=case.block_tokens,
            watermark_blocks=case.watermark_blocks,
            prefix_caching=case.prefix_caching,
            kv_pools=kv_pools,
            swap_blocks=case.swap_blocks,
            swap_block_ns=case.swap_block_ns,
            sequence_blocks=case.sequence_blocks,
        )
        for id in range(case.replicas)
    ]
    dispatcher = RoundRobin() if case.dispatch == "round_robin" else LeastOutstanding()
    options = options or EngineOptions(
        coalesce=coalesce, asynchronous=case.asynchronous, order="priority" if case.priorities else "fcfs"
    )
    return compose(
        replicas,
        dispatcher,
        lambda _: wrap(batcher_of(case)),
        admission=AdmitAll(),
        engine_options=options,
        service_options=service_options,
    )


def requests_of(case: Case) -> list[tuple[Request, int]]:
    urgent = case.priorities or (0,) * len(case.requests)
    return [
        (Request(id, arrival_ns, prompt, max_new_tokens, "m", urgent[id]), output)
        for id, (arrival_ns, prompt, output, max_new_tokens) in enumerate(case.requests)
    ]


def simulate(
    case: Case, coalesce: bool = True, wrap: Callable[[Batcher], Batcher] = lambda batcher: batcher
) -> tuple[Collected, SimReport, Checked]:
    checked = Checked(controller_of(case, coalesce, wrap))
    recorder = Collected()
    report = Simulation(checked, requests_of(case), [case.rows] * case.replicas, recorder).run()  # type: ignore[arg-type]
    return recorder, report, checked
