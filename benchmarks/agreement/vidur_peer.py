"""Vidur's replica schedulers (microsoft/vidur, MIT; package vidur) with its own events, on our step times.

Its memory planner, which wants a GPU and a model of its catalogue, and its metrics are left out; requests,
batches, events and schedulers are Vidur's.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from benchmarks.agreement.runs import NS_PER_S, OurRun, RequestTimes, step_s

FAULTS: Final = (  # as of vidur 0.0.26
    (
        "events/base_event.py:45, BaseEvent._get_priority_number: (time, id, event_type)",
        "events of one time are handled in the order in which they were made, where types/event_type.py "
        "wants scheduling last: of requests that come together the first is computed alone; here by type",
    ),
    (
        "entities/request.py:328, Request.restart",
        "_num_stage_processed_tokens and _is_prefill_stage_complete are not set back, so that the first "
        "request that is preempted ends the run with an AssertionError; here they are",
    ),
)
_LARGE: Final = 1 << 40


def installed() -> bool:
    """Whether Vidur can be imported."""
    return find_spec("vidur") is not None


def vidur(run: OurRun, scheduler: str) -> RequestTimes:
    """One replica; ``scheduler``: ``sarathi`` (chunked prefill) or ``vllm`` (prompts first)."""
    entities, events = import_module("vidur.entities"), import_module("vidur.events")
    scheduler_of_run = _GlobalScheduler(_replica_scheduler(run, scheduler))
    made = _restarting(entities.Request)
    requests = [made(job.arrival_ns / NS_PER_S, job.prompt_tokens, job.output_tokens) for job in run.jobs]
    queue: list[tuple[tuple[float, int, int], Any]] = []

    def put(event: Any) -> None:
        heapq.heappush(queue, ((event.time, event._event_type, event.id), event))

    for request in requests:
        put(events.RequestArrivalEvent(request.arrived_at, request))
    metrics = _NoMetrics()
    while queue:
        _, event = heapq.heappop(queue)
        for following in event.handle_event(scheduler_of_run, metrics):
            put(following)
    assert all(request.completed for request in requests)
    first = np.array([request.prefill_completed_at for request in requests])
    return RequestTimes(first, np.array([request.completed_at for request in requests]))


def _replica_scheduler(run: OurRun, name: str) -> Any:
    """With the settings of our run; what it would plan memory from is not asked for."""
    folder = "vidur.scheduler.replica_scheduler"
    base = import_module(f"{folder}.base_replica_scheduler")
    made = import_module(f"{folder}.{name}_replica_scheduler")
    planner = SimpleNamespace(get_max_kv_cache_size_in_tokens=lambda: _LARGE)
    base.MemoryPlanner = lambda *_: planner
    engine, replica = run.prepared.config.engine, run.prepared.replicas[0]
    settings = SimpleNamespace(
        batch_size_cap=engine.max_num_seqs,
        chunk_size=engine.max_num_batched_tokens,
        max_tokens_in_batch=engine.max_num_batched_tokens,
    )
    cache = SimpleNamespace(
        block_size=replica.block_tokens,
        num_blocks=replica.kv_blocks,
        watermark_blocks_fraction=engine.watermark,
    )
    kinds = {"sarathi": "SarathiReplicaScheduler", "vllm": "VLLMReplicaScheduler"}
    entities = import_module("vidur.entities")
    return getattr(made, kinds[name])(
        SimpleNamespace(enable_sequence_pipeline_parallel=False),
        settings,
        cache,
        SimpleNamespace(max_tokens=1),
        entities.Replica(SimpleNamespace()),
        1,
        SimpleNamespace(get_execution_time=_predictor(run)),
    )


def _predictor(run: OurRun) -> Callable[[Any, int], Any]:
    def get_execution_time(batch: Any, stage: int) -> Any:
        decodes, chunks = list[int](), list[tuple[int, int, int]]()
        for request, new, total in zip(batch.requests, batch.num_q_tokens, batch.num_kv_tokens, strict=True):
            if request.is_prefill_complete:
                decodes.append(total - 1)  # the token that is fed is counted as processed already
            else:
                chunks.append((request.id, total - new, new))
        seconds = step_s(run.rows, decodes, chunks)
        return SimpleNamespace(total_time=seconds, model_time=seconds)

    return get_execution_time


def _restarting(request_class: type[Any]) -> type[Any]:
    """A request that forgets what the stage has computed when it is preempted."""

    class Request(request_class):  # type: ignore[misc]
        def restart(self) -> None:
            super().restart()
            self._num_stage_processed_tokens, self._is_prefill_stage_complete = 0, False

    return Request


class _NoMetrics:
    """Takes every measurement and keeps none."""

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *_: None


class _GlobalScheduler:
    """Everything goes to the one replica, as Vidur's round robin would have it."""

    def __init__(self, replica: Any) -> None:
        self._replica = replica
        self._replica_schedulers = {replica.replica_id: replica}
        self._waiting: list[Any] = []

    def add_request(self, request: Any) -> None:
        self._waiting.append(request)

    def schedule(self) -> list[tuple[Any, Any]]:
        taken, self._waiting = self._waiting, []
        return [(self._replica.replica_id, request) for request in taken]

    def get_replica_scheduler(self, replica: Any) -> Any:
        return self._replica

    def get_replica_stage_scheduler(self, replica: Any, stage: int) -> Any:
        return self._replica.get_replica_stage_scheduler(stage)
