"""The wall-clock driver: starts one worker process per GPU and runs requests on them under a controller."""

import queue
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, field, replace
from typing import Any

from realexec.driver.processes import WorkerPool
from realexec.launchers.base import Launcher
from realexec.memory.shared_copies import SharedCopies, available
from realexec.transports.shaped import Paths, Shape
from realexec.transports.shared_memory import NAME as SHARED_MEMORY
from realexec.wire.messages import Died, Meet, Met, Open, Opened
from realexec.worker.peers import paths_between
from realexec.world.actions import World
from realexec.world.arrivals import Arrivals
from realexec.world.execution import Controller, Execution, Journal
from realexec.world.models import Models
from realexec.world.report import RunReport
from realexec.world.slots import Slots
from realexec.world.tracking import Tracker
from serving.vocabulary.closed_loop import Requests
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import Part
from serving.vocabulary.recorder import Recorder
from serving.vocabulary.units import NS_PER_S

# A worker reports whenever requests finish, at the end of a run, and about once a second in between. A single
# step of a small model takes far less time than this.
REPORT_TIMEOUT_S = 300.0


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerFleet:
    """What a run needs of its workers, beyond one whole model in each.

    ``replicas``: the slot of each initial replica; None: one in every slot. ``opens``: whether the controller
    loads parameters or runs rounds; it then receives `Opened` first. ``every_step``: workers report every
    step, for policies that read the progress of instances. ``hosts_cache``: hosts have the parameters in
    their memory. ``kv_bytes``: for state in a slot's memory. ``rates``: bytes/s of ``nic``, ``ssd``, ``pcie``
    and ``remote``, if slower than this machine. ``transport``: how workers read each other's memory, a name
    of `realexec.transport_registry`. ``parts``: the model part of each initial replica. ``models``: the keys
    of each model by name, if there are several. ``stages``: whether batches pass through workers that each
    have one stage.
    """

    replicas: tuple[int, ...] | None = None
    opens: bool = False
    every_step: bool = False
    hosts_cache: bool = False
    kv_bytes: int = 256 << 20
    rates: Mapping[str, float] = field(default_factory=dict)
    transport: str = SHARED_MEMORY
    parts: Mapping[int, Part] = field(default_factory=dict)
    models: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    stages: bool = False


def execute(
    controller: Controller,
    requests: Requests,
    *,
    workers: int,
    model: Mapping[str, Any],
    seed: int,
    batch_size: int,
    recorder: Recorder,
    journal: Journal | None = None,
    on_progress: Callable[[int, int], None] | None = None,
    start_timeout_s: float = 120,
    report_timeout_s: float = REPORT_TIMEOUT_S,
    fleet: WorkerFleet | None = None,
    launcher: Launcher | None = None,
) -> RunReport:
    """Run ``requests`` on ``workers`` processes under ``controller``.

    ``requests`` yields (request, true output tokens) by ascending ``arrival_ns``, or is a closed loop of
    clients; the driver reads it as time passes.
    ``model`` holds the model's configuration keys (`models.build_model`), ``batch_size`` the rows of
    every decode batch: the most requests that may decode at once on a replica. ``on_progress`` gets (ended,
    arrived) counts after every event. ``launcher`` starts the workers; None: as processes of this machine.
    With workers on several hosts, links run at full speed: ``fleet.rates`` is ignored. A worker silent for
    ``report_timeout_s`` with a run in flight is killed and lost. Raises UserError for what a user can
    correct, RuntimeError when the controller leaves requests unserved or requests what workers cannot do
    (passes without KV). All worker processes have ended before this returns or raises.
    """
    if workers < 1 or batch_size < 1:
        raise UserError("workers and batch_size must both be at least 1.")
    if "vocab_size" not in model:
        raise UserError("model.vocab_size is missing; write the number of token ids prompts may use.")
    fleet = fleet or WorkerFleet()
    vocab_size: int = min(keys["vocab_size"] for keys in (model, *fleet.models.values()))
    arrivals = Arrivals(requests, seed, vocab_size)
    launched_ns = time.monotonic_ns()
    with ExitStack() as stack:
        pool = stack.enter_context(WorkerPool(workers, model, seed, batch_size, launcher=launcher))
        paths = stack.enter_context(_paths(fleet.rates if pool.one_host else {}, workers))
        pool.wait_ready(start_timeout_s)
        copies = stack.enter_context(_copies(fleet, pool, str(model.get("device", ""))))
        models, pinned = open_slots(pool, fleet, paths, launched_ns / NS_PER_S + start_timeout_s, copies)
        replicas = tuple(range(workers)) if fleet.replicas is None else fleet.replicas
        tracker, slots = Tracker(recorder, len(replicas)), Slots(pool, replicas, fleet.parts)
        world = World(slots, tracker, models, range(len(replicas)))
        execution = Execution(
            controller=controller,
            pool=pool,
            world=world,
            tracker=tracker,
            journal=journal,
            report_timeout_s=report_timeout_s,
            opens=fleet.opens,
        )
        start_s = (execution.start_ns - launched_ns) / NS_PER_S
        report = execution.run(arrivals, on_progress, start_s)
        return replace(report, places=tuple(pool.places), one_host=pool.one_host, pinned=pinned)


@contextmanager
def _paths(rates: Mapping[str, float], workers: int) -> Iterator[Paths | None]:
    """Create the rate-limited paths that workers share in memory, so on one host; None without rates."""
    if not rates:
        yield None
        return
    shapes = {name: Shape(rate) for name, rate in paths_between(rates, workers).items()}
    with closing(Paths.create(shapes)) as paths:
        yield paths


@contextmanager
def _copies(fleet: WorkerFleet, pool: WorkerPool, device: str) -> Iterator[Any]:
    """Make the memory in which workers of one machine share copies of models; yields its handle.

    None: hosts have no copies, or each worker has its own (several machines; a GPU's driver pins its pages).
    """
    if not (fleet.hosts_cache and pool.one_host and available()) or device.startswith("cuda"):
        yield None
        return
    with closing(SharedCopies.create()) as copies:
        yield copies.handle


def open_slots(
    pool: WorkerPool, fleet: WorkerFleet, paths: Paths | None, until_s: float, copies: Any = None
) -> tuple[Models, tuple[bool | None, ...]]:
    """Have every worker allocate its memory and receive the others' addresses. Returns each model's number of
    layers, and per worker whether its pages are pinned for a GPU (None: it has none).

    ``until_s``: deadline by ``time.monotonic``. Raises UserError when a worker fails or takes too long.
    """
    slots = range(len(pool.workers))
    handle = None if paths is None else paths.handle
    for slot in slots:
        pool.workers[slot].send(_open(slot, fleet, handle, pool.addresses[slot])._replace(copies=copies))
    addresses = {slot: opened.address for slot, opened in _said_by_all(pool, Opened, until_s).items()}
    for slot in slots:
        pool.workers[slot].send(Meet(tuple([addresses[number] for number in slots]), fleet.opens))
    if fleet.opens:  # link now, so that the first load or transfer takes no longer than any other
        _said_by_all(pool, Met, until_s)
    models = Models(tuple(fleet.models), tuple(addresses[0]["layers"]))
    return models, tuple(addresses[slot].get("pinned") for slot in slots)


def _said_by_all(pool: WorkerPool, kind: type[Any], until_s: float) -> dict[int, Any]:
    """Wait for one message of this kind from every worker; returns the messages by slot."""
    answers: dict[int, Any] = {}
    while len(answers) < len(pool.workers):
        try:
            slot, message = pool.inbox.get(timeout=max(until_s - time.monotonic(), 0))
        except queue.Empty:
            raise UserError(
                f"Only {len(answers)} of {len(pool.workers)} workers had their memory in time; start fewer "
                "workers, or end what else keeps the cores busy."
            ) from None
        if isinstance(message, Died):
            raise UserError(
                f"Worker {slot} did not start ({message.cause}); correct the cause and run again."
            )
        if isinstance(message, kind):
            answers[slot] = message
    return answers


def _open(slot: int, fleet: WorkerFleet, paths: Any, bind: str) -> Open:
    """Make the `Open` message of a slot: its replica's part, or an empty slot for the first model."""
    warm = fleet.replicas is None or slot in fleet.replicas
    replica = slot if fleet.replicas is None else fleet.replicas.index(slot) if warm else None
    part = None if replica is None else fleet.parts.get(replica)
    names, keys = list(fleet.models), tuple(fleet.models.values())
    model = names.index(part.model) if part is not None and names else 0
    layers = None if part is None else part.layers
    return Open(
        slot=slot,
        kv_bytes=fleet.kv_bytes,
        warm=warm,
        host=fleet.hosts_cache,
        paths=paths,
        every_step=fleet.every_step,
        transport=fleet.transport,
        layers=layers,
        models=keys,
        model=model,
        bind=bind,
        stages=fleet.stages,
    )
