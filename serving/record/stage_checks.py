"""Invariants of a model in stages: each request in one place, work, memory of shared GPUs and hosts."""

from collections import Counter
from collections.abc import Iterator, Mapping

from serving.elastic.stage_control import StageControl
from serving.engine.engine import Engine
from serving.engine.progress import AT_WORK, EngineState
from serving.services.language.service import LanguagePipeline
from serving.services.pipeline.service import Pipeline
from serving.services.stages.gpu_seats import GpuSeats


def broken(engines: Mapping[int, Engine], service: Pipeline) -> Iterator[tuple[int, str]]:
    """Yield (number of the invariant, sentence) for each broken one."""
    seen, live = set[int](), service.live_stages
    for stage in service.stages:
        here = [waiting.request.id for waiting in stage.waiting()]
        here += [waiting.request.id for run in stage.passes.values() for waiting in run.batch]
        if len(set(here)) < len(here) or seen & set(here):
            yield 1, f"a request is in two places of the stages of {service.model}"
        seen |= set(here)
        for replica in stage.fleet.members:
            engine, runs = engines[replica], replica in stage.passes
            between = live is not None and live.is_between(replica)
            if runs != (engine.state in AT_WORK) and not between:
                yield 3, f"replica {replica} of stage {stage.index} is {engine.state.name}, its pass is not"
            if runs and replica in stage.idle:
                yield 10, f"replica {replica} of stage {stage.index} is idle and runs a pass"
            load = len(stage.own.get(replica, ())) + (len(stage.passes[replica].batch) if runs else 0)
            if stage.fleet.load(replica, "outstanding") != load:
                yield 12, f"replica {replica} has {load} requests, and is counted with others"
            serves = engine.state is EngineState.IDLE and replica in stage.fleet
            if serves and replica not in stage.idle and not between:
                yield 10, f"replica {replica} of stage {stage.index} serves, and nothing is given to it"
        if stage.can_begin():
            yield 10, f"stage {stage.index} of {service.model} has idle replicas and requests that wait"
    yield from broken_seats(service.seats)


def broken_seats(seats: GpuSeats) -> Iterator[tuple[int, str]]:
    """Yield over-committed GPUs."""
    for gpu, used_bytes in seats.used_bytes.items():
        if used_bytes < 0 or seats.free_bytes(gpu) < 0:
            yield 8, f"replicas on GPU {gpu} have {used_bytes} bytes of it"


def broken_hosts(control: StageControl, service: Pipeline | LanguagePipeline) -> Iterator[tuple[int, str]]:
    """Check scaled replicas and hosts in the same way. ``service``: the service of any of the models."""
    replicas, seats = control.replicas, service.seats
    there = {number for gpu in seats.used_bytes for number in seats.replicas_on(gpu)}
    if there != set(replicas.states):
        yield 8, f"GPUs are taken by replicas {sorted(there)}, and there are {sorted(replicas.states)}"
    cores = Counter[int]()
    for number in replicas.states:
        cores[replicas.host_of(number)] += replicas.cores_of(number)
    for host, taken in replicas.hosts.taken_cores.items():
        if taken != cores[host]:
            yield 8, f"{taken} cores of host {host} are taken, and its replicas have {cores[host]}"
    most_bytes = replicas.hosts.most_bytes
    for host, used_bytes in enumerate(replicas.hosts.copies.caches.used_bytes):
        if used_bytes > most_bytes:
            yield 8, f"copies on host {host} are {used_bytes} bytes, and may be {most_bytes}"
    for number, state in replicas.states.items():
        if (replicas.loads.to(number) is not None) != (state == "loading" or replicas.gives_up(number)):
            yield 3, f"replica {number} is {state}, its load is not"
