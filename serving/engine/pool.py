"""Creates the engine of each replica when it gets GPUs for the first time."""

from collections.abc import Callable
from dataclasses import dataclass

from serving.engine.engine import Engine
from serving.engine.pipelined import PipelinedEngine
from serving.engine.progress import EngineState, Order
from serving.engine.virtual_engines import VirtualEngines
from serving.protocols.batch import Batcher
from serving.vocabulary.replica import Replica, Role


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineOptions:
    """Options of every engine. ``coalesce`` False: every decode run is one step (exact mode).

    ``asynchronous``: a step is chosen while the previous one runs. ``prompts_alone``: a pass with prompts is
    reported after its first step. ``checks``: batchers' answers are checked in full
    (``serving.engine.batch_answers``), as external ones must be. ``lockstep``: replicas are ranks of
    data-parallel groups. ``named_requests``: see ``KvLedger``. ``order``: the order of queues and of
    preemption. ``pipeline_stages``: the number of stages of every replica. It has as many micro-batches in
    flight, of ``max_num_batched_tokens`` each; or its memory is divided for as many virtual engines.
    """

    coalesce: bool = True
    asynchronous: bool = False
    prompts_alone: bool = False
    checks: bool = True
    lockstep: bool = False
    named_requests: bytes | None = None
    order: Order = "fcfs"
    pipeline_stages: int = 1
    max_num_batched_tokens: int = 0


class EnginePool:
    """The engines by replica. ``batcher_for`` is called once per replica: a batcher may keep state."""

    __slots__ = ("_batcher_for", "_options", "engines")

    def __init__(self, batcher_for: Callable[[Replica], Batcher], options: EngineOptions) -> None:
        self._batcher_for = batcher_for
        self._options = options
        self.engines: dict[int, Engine] = {}

    def add(self, replica: Replica, loaded: bool) -> Engine:
        """Create the engine of a replica with its first GPUs; ``loaded``: and its parameters."""
        options = self._options
        if options.pipeline_stages > 1:
            return self._add_pipelined(replica, loaded)
        engine = self.engines[replica.id] = Engine(
            replica,
            self._batcher_for(replica),
            coalesce=options.coalesce,
            asynchronous=options.asynchronous,
            loaded=loaded,
            prompts_alone=options.prompts_alone,
            checks=options.checks,
            lockstep=options.lockstep,
            named=options.named_requests,
            order=options.order,
        )
        return engine

    def _add_pipelined(self, replica: Replica, loaded: bool) -> Engine:
        options = self._options
        assert not (options.asynchronous or options.lockstep or options.order != "fcfs"), (
            "its steps are chosen when one has ended"
        )
        engine: Engine
        if replica.kv_pools > 1:
            assert replica.kv_pools == options.pipeline_stages, "a virtual engine for each stage"
            engine = VirtualEngines(replica, self._batcher_for, options.coalesce, options.checks, loaded)
        else:
            engine = PipelinedEngine(
                replica,
                self._batcher_for(replica),
                stages=options.pipeline_stages,
                batch_tokens=options.max_num_batched_tokens,
                coalesce=options.coalesce,
                loaded=loaded,
            )
        self.engines[replica.id] = engine
        return engine

    def place(self, replica: Replica, role: Role, loaded: bool) -> None:
        """Give a replica its GPUs, for the first time or again, to serve in ``role``.

        One that was lost with its process has a new engine.
        """
        engine = self.engines.get(replica.id)
        if engine is not None and engine.state is not EngineState.LOST:
            engine.place(role, loaded)
        else:
            self.add(replica, loaded).switch_role(role)
