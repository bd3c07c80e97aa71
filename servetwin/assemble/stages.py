"""Builds models in stages from the configuration: cuts, replicas on shared GPUs, times of passes."""

from __future__ import annotations

from array import array
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import cut_stack, load_stack
from hwmodels.models.layer_stack import LayerStack
from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models
from servetwin.assemble.language_stages import language_setups, language_sizes, path_costs
from servetwin.assemble.stage_scalers import stage_scaling
from servetwin.config.compose.clusters import spec_of_cluster
from servetwin.config.config import RunConfig
from servetwin.config.pipeline_config import PipelineConfig
from serving.composition import PipelineParts
from serving.services.language.setup import LanguageSetup
from serving.services.pipeline.setup import PipelineSetup
from serving.services.stages.gpu_seats import GpuSeats
from serving.services.stages.stage import StageQueues
from serving.vocabulary.actions import Span
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.layers import LayerRange, Part
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import FRACTION_BITS, NS_PER_S
from simcore.replica.stage_times import StageTimes
from simcore.stage_passes import StagePlan
from traces.streams import stream
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Floats = NDArray[np.float64]

TIMED_CORES = 2  # CPU cores at which a pass's time shares hold (pipeline.cpu_share)
_PARTS = 1024
_DRAWN = 4096  # draws are rounded up to such blocks, so that a run of fewer requests draws the same for them


def stack_of(model: HostedModel) -> LayerStack:
    """Return the layers of a model in stages."""
    return load_stack(model.shape_name)


def parts_of(config: RunConfig, model: HostedModel) -> tuple[Part, ...]:
    """Return the model's stages in order."""
    pipeline = config.pipeline
    return tuple(
        Part(model.name, layers.start, layers.stop)
        for layers in cut_stack(stack_of(model), pipeline.cut, pipeline.stages)
    )


def sizes_of(config: RunConfig) -> dict[Part, int]:
    """Return the bytes of every stage of every model."""
    return {
        part: stack_of(model).bytes_of(part.first, part.last)
        for model in hosted_models(config)
        for part in parts_of(config, model)
    }


def gpu_bytes(config: RunConfig) -> int:
    """Return a GPU's bytes for parameters: its usable memory without room for activations."""
    engine, gpu = config.engine, load_gpu(config.cluster.gpu)
    reserved = engine.reserve_activation_bytes
    reserve = gpu.activation_reserve_bytes if reserved is None else reserved
    return int(gpu.memory_bytes * engine.gpu_memory_utilization) - reserve


def stage_replicas(config: RunConfig) -> list[Replica]:
    """Return the replicas of the start, each on a GPU with room for it, an idle one if there is one.

    Largest stages are placed first; numbers are in order of models and stages. ``pipeline.placement=spread``
    takes the host with the fewest replicas, as the default scheduler of Kubernetes does (the least allocated
    node), on which QUART and its baselines run (sections 7 and 8.1). So idle GPUs stay beside every stage, to
    which its copies can go (section 6.2). Raises UserError.
    """
    sizes, room = sizes_of(config), dict.fromkeys(range(config.cluster.gpus), gpu_bytes(config))
    wanted = _start_parts(config)
    cores, per_host = _cores_of_hosts(config), spec_of_cluster(config.cluster).gpus_per_host
    packed = config.pipeline.placement == "packed"
    gpus, on_gpu, on_host = dict[int, int](), Counter[int](), Counter[int]()

    def rank(gpu: int) -> tuple[int, ...]:
        if packed:
            return (on_gpu[gpu], gpu)
        return (min(on_gpu[gpu], 1), on_host[gpu // per_host], on_gpu[gpu], gpu)

    for place in sorted(range(len(wanted)), key=lambda number: (-sizes[wanted[number]], number)):
        size, wants = sizes[wanted[place]], config.pipeline.cpu_cores
        free = [gpu for gpu, left in room.items() if left >= size and cores.left(gpu) >= wants]
        if not free:
            raise _no_room(config, wanted[place], size)
        gpu = min(free, key=rank)
        gpus[place] = gpu
        on_gpu[gpu] += 1
        on_host[gpu // per_host] += 1
        room[gpu] -= size
        cores.take(gpu, wants)
    return [
        Replica(
            id=place,
            model=part.model,
            layers=LayerRange(part.first, part.last),
            gpus=(gpus[place],),
            kv_blocks=1,
            block_tokens=1,
        )
        for place, part in enumerate(wanted)
    ]


def _start_parts(config: RunConfig) -> list[Part]:
    """Return the stage of every replica of the start."""
    wanted = list[Part]()
    for model in hosted_models(config):
        parts = parts_of(config, model)
        for part, count in zip(parts, config.pipeline.counts(len(parts)), strict=True):
            wanted += [part] * count
    return wanted


class _Cores:
    """Free CPU cores of hosts; None: the number of cores of a host is unknown."""

    def __init__(self, per_host: int | None, gpus_per_host: int) -> None:
        self._per_host, self._gpus = per_host, gpus_per_host
        self._taken = Counter[int]()

    def left(self, gpu: int) -> int:
        """Return the free cores on the GPU's host."""
        return _ANY if self._per_host is None else self._per_host - self._taken[gpu // self._gpus]

    def take(self, gpu: int, cores: int) -> None:
        """Give ``cores`` cores of the GPU's host to a replica."""
        self._taken[gpu // self._gpus] += cores


_ANY = 1 << 30


def _cores_of_hosts(config: RunConfig) -> _Cores:
    assert config.cluster.topology is not None, "models in stages need links"
    spec = spec_of_cluster(config.cluster)
    return _Cores(spec.cpu_cores, spec.gpus_per_host)


def _no_room(config: RunConfig, part: Part, size: int) -> UserError:
    room, cores = gpu_bytes(config), config.pipeline.cpu_cores
    if size > room:
        return UserError(
            f"{part} take {size / 1e9:.1f} GB and a GPU of cluster={config.cluster.name} has "
            f"{room / 1e9:.1f} GB for parameters: write a larger pipeline.stages, or a larger GPU"
        )
    return UserError(
        f"pipeline.replicas={config.pipeline.replicas} is more than the GPUs and CPU cores of cluster="
        f"{config.cluster.name} hold, with {cores} cores each: write fewer replicas or a larger cluster"
    )


def pipelines_of(
    config: RunConfig, estimates: Estimates, hardware: Mapping[str, Hardware]
) -> PipelineParts | None:
    """Return what the services of models in stages need; None if there are no such models."""
    if not config.system.in_stages:
        return None
    if languages := language_setups(config, hardware):
        return _of_languages(config, estimates, languages)
    pipeline = config.pipeline
    queues: StageQueues = "stage" if pipeline.queue == "stage" else "replica"
    scaling = None
    if config.system.scales_stages:
        exec_s = {
            part: stack_of(model).seconds_of(*part.layers) * _cores_factor(pipeline)
            for model in hosted_models(config)
            for part in parts_of(config, model)
        }
        scaling = stage_scaling(config, estimates, exec_s, sizes_of(config), capacity_per_s(config))
    elastic = scaling is not None
    setups = {
        model.name: PipelineSetup(
            parts=parts_of(config, model),
            activation_bytes=stack_of(model).activation_bytes,
            batch=pipeline.batch,
            queues=queues,
            cpu_cores=pipeline.cpu_cores if elastic else 0,
            elastic=elastic,
            live=pipeline.live,
            timeout_ns=round(pipeline.timeout_s * NS_PER_S),
        )
        for model in hosted_models(config)
    }
    return PipelineParts(setups, GpuSeats(gpu_bytes(config), sizes_of(config)), scaling)


def _of_languages(
    config: RunConfig, estimates: Estimates, setups: Mapping[str, LanguageSetup]
) -> PipelineParts:
    """Give every replica its own GPU, because its KV takes all memory that its parameters leave."""
    room, sizes, scaling = gpu_bytes(config), language_sizes(config), None
    if config.system.scales_stages:
        exec_s = {part: work.usual_s for setup in setups.values() for part, work in setup.work.items()}
        scaling = stage_scaling(config, estimates, exec_s, sizes)
    return PipelineParts(setups, GpuSeats(room, dict.fromkeys(sizes, room)), scaling)


def _cores_factor(pipeline: PipelineConfig) -> float:
    """Return a pass's time over the published time, with the replicas' cores."""
    return 1.0 - pipeline.cpu_share * (1.0 - TIMED_CORES / pipeline.cpu_cores)


def one_pass(config: RunConfig, workload: Workload) -> Workload:
    """Return the trace's arrivals; each request has its model's tokens and one answer."""
    import numpy as np

    hosted = hosted_models(config)
    tokens = np.array([stack_of(model).tokens for model in hosted], dtype=np.int64)
    ones = np.ones(len(workload), dtype=np.int64)
    return workload.labelled(
        "lengths are those of the model, which answers in one pass",
        prompt_tokens=tokens[codes_of(workload, hosted)],
        output_tokens=ones,
        max_new_tokens=ones,
        prefix=None,
    )


def stage_plan(
    config: RunConfig, workload: Workload, hardware: Mapping[str, Hardware] | None = None
) -> StagePlan | None:
    """Return the times of all passes; None without stages. ``hardware``: that of each model that decodes."""
    if not config.system.in_stages:
        return None
    if paths := path_costs(config, hardware or {}):
        return StagePlan({}, config.pipeline.cpu_cores, paths)
    times = {model.name: _times(config, model, len(workload)) for model in hosted_models(config)}
    return StagePlan(times, config.pipeline.cpu_cores)


def _times(config: RunConfig, model: HostedModel, requests: int) -> StageTimes:
    """Draw the times. Each stage has its own stream, from which request n takes the n-th number."""
    pipeline, stack = config.pipeline, stack_of(model)
    fixed: dict[Span, Sequence[int]] = {}
    for part in parts_of(config, model):
        name = f"pipeline/{model.name}/{part.first}-{part.last}"
        mean = stack.seconds_of(part.first, part.last) * NS_PER_S * (1 << FRACTION_BITS)
        drawn = factors(pipeline, config.seed, name, requests)
        fixed[part.layers] = array("q", (drawn * mean).astype("int64").tolist())
    share, batch = round(pipeline.cpu_share * _PARTS), round(pipeline.batch_cost * _PARTS)
    return StageTimes(fixed, TIMED_CORES, share, batch)


def factors(pipeline: PipelineConfig, seed: int, name: str, requests: int) -> Floats:
    """Return the factor on the stage's time for each request: mean 1, the configured CV."""
    import numpy as np

    if pipeline.times_cv == 0.0:
        return np.ones(requests)
    size, drawn = -(-requests // _DRAWN) * _DRAWN, stream(seed, name)
    if pipeline.times == "lognormal":
        spread = np.log1p(pipeline.times_cv**2)
        times = drawn.lognormal(-spread / 2, np.sqrt(spread), size)
    elif pipeline.times == "gamma":
        times = drawn.gamma(pipeline.times_cv**-2, pipeline.times_cv**2, size)
    else:
        times = drawn.exponential(1.0, size)
    return times[:requests]


def used_gpus(replicas: Sequence[Replica]) -> int:
    """Count the GPUs that hold a replica."""
    return len({gpu for replica in replicas for gpu in replica.gpus})


def capacity_per_s(config: RunConfig) -> float:
    """Return the requests per second at which the slowest stage of the start's replicas just keeps up.

    Each replica takes one request at a time; several models have an equal share of the requests each.
    """
    hosted = hosted_models(config)
    return len(hosted) * min(_slowest_per_s(config, model) for model in hosted)


def _slowest_per_s(config: RunConfig, model: HostedModel) -> float:
    pipeline, stack, parts = config.pipeline, stack_of(model), parts_of(config, model)
    return min(
        count / (stack.seconds_of(*part.layers) * _cores_factor(pipeline))
        for part, count in zip(parts, pipeline.counts(len(parts)), strict=True)
    )
