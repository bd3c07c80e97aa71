"""The models that a run hosts: names, shapes, and the GPUs of instances that always run."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cache

import numpy as np
from numpy.typing import NDArray

from hwmodels.catalogue import load_llm
from hwmodels.catalogue.stacks import is_stack, load_stack
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.load_units import Shape
from hwmodels.models.precision import stored_as
from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.config import RunConfig
from servetwin.config.models_config import shapes_of
from serving.vocabulary.errors import UserError
from serving.vocabulary.kv_bytes import KvBytes
from serving.vocabulary.replica import Role
from traces.workload import Workload


@dataclass(frozen=True, slots=True, kw_only=True)
class HostedModel:
    """A model with its own parameters. ``shape_name``: its name in the catalogue.

    ``tp``: GPUs per replica, or for each of its ``pp`` pipeline stages; ``decode_tp``: of decode instances,
    if they have another number. ``precision``, ``kv_cache_dtype``: how it is stored, in the run's words.
    """

    name: str
    shape_name: str
    tp: int
    decode_tp: int | None = None
    pp: int = 1
    precision: str | None = None
    kv_cache_dtype: str = "auto"

    @property
    def gpus(self) -> int:
        """Number of GPUs of a replica."""
        return self.tp * self.pp

    def tp_of(self, role: Role) -> int:
        """Number of GPUs of an instance of this role."""
        return self.tp if role != "decode" or self.decode_tp is None else self.decode_tp

    @property
    def shape(self) -> LlmShape:
        """Layers, bytes and all other properties that follow from the catalogue's entry."""
        return stored_shape(self.shape_name, self.precision, self.kv_cache_dtype)

    @property
    def kv_bytes(self) -> KvBytes:
        """The size of its KV, on all GPUs of a replica together."""
        shape = self.shape
        return KvBytes(shape.kv_bytes_per_token, shape.kv_bytes_per_sequence)

    @property
    def weight_bytes(self) -> int:
        """Bytes of its weights, as stored."""
        if is_stack(self.shape_name):
            return load_stack(self.shape_name).weight_bytes
        return self.shape.weight_bytes

    @property
    def max_context_tokens(self) -> int:
        """The longest context that the model was made for."""
        return shape_named(self.shape_name).max_context_tokens


def hosted_models(config: RunConfig) -> tuple[HostedModel, ...]:
    """Return the run's models, most popular first; ``llama3_8b#0007`` is the eighth copy of llama3_8b.

    The only model of ``models=one`` has the catalogue's name.
    """
    model, count = config.model, config.models.count
    precision, kv = model.precision, config.engine.kv_cache_dtype
    if count is None:
        prefill, decode = model.tp_of_roles
        only = HostedModel(
            name=model.name,
            shape_name=model.name,
            tp=prefill,
            decode_tp=decode if decode != prefill else None,
            pp=model.pp,
            precision=precision,
            kv_cache_dtype=kv,
        )
        return (only,)
    shapes = shapes_of(config.models.shapes, model.name, model.tp)
    return tuple(
        HostedModel(
            name=f"{name}#{index:04d}", shape_name=name, tp=tp, precision=precision, kv_cache_dtype=kv
        )
        for index, (name, tp) in ((index, shapes[index % len(shapes)]) for index in range(count))
    )


def shape_named(name: str) -> Shape:
    """Return the shape of a model that decodes, or of one without KV."""
    return load_stack(name) if is_stack(name) else load_llm(name)


def stored_shape(name: str, precision: str | None, kv_cache_dtype: str) -> LlmShape:
    """Return the shape of a model that decodes, stored as the run says."""
    return _stored(load_llm(name), precision, kv_cache_dtype)


@cache
def _stored(shape: LlmShape, precision: str | None, kv_cache_dtype: str) -> LlmShape:
    stored = stored_as(shape.bytes_per_parameter, shape.precision, precision, kv_cache_dtype)
    return shape if stored == shape.precision else replace(shape, precision=stored)


def run_shape(config: RunConfig, name: str | None = None) -> LlmShape:
    """Return the shape of a model of the run (None: of its only one), stored as the run says."""
    return stored_shape(name or config.model.name, config.model.precision, config.engine.kv_cache_dtype)


def shapes_by_model(config: RunConfig) -> dict[str, Shape]:
    """Map each hosted model to its shape; models of one shape share the object."""
    hosted = hosted_models(config)
    shapes = {
        name: shape_in_run(config, name) for name in dict.fromkeys(model.shape_name for model in hosted)
    }
    return {model.name: shapes[model.shape_name] for model in hosted}


def shape_in_run(config: RunConfig, name: str) -> Shape:
    """Return the shape of a model that decodes, stored as the run says, or of one without KV."""
    return load_stack(name) if is_stack(name) else run_shape(config, name)


def codes_of(workload: Workload, hosted: Sequence[HostedModel]) -> NDArray[np.int64]:
    """Return each request's index of its model in ``hosted``; 0 if there is only one."""
    if len(hosted) == 1:
        return np.zeros(len(workload), dtype=np.int64)
    assert workload.model is not None, "several models are hosted and the requests name none"
    index_of = {model.name: index for index, model in enumerate(hosted)}
    of_word = [index_of[word] for word in workload.model.words]
    return np.array(of_word, dtype=np.int64)[workload.model.codes]


def seats_of(config: RunConfig) -> list[tuple[HostedModel, tuple[int, ...]]]:
    """Return (model, GPUs) of every instance if each model always has some.

    Until no model finds GPUs, the models take turns, most popular first: each takes the lowest free GPUs that
    start at a multiple of their number. Raises UserError if a model finds none at all.
    """
    hosted, gpus = hosted_models(config), config.cluster.gpus
    _check_hosts(config, hosted)
    taken, start_of = bytearray(gpus), dict.fromkeys((model.gpus for model in hosted), 0)
    seats: list[tuple[HostedModel, tuple[int, ...]]] = []
    while True:
        before = len(seats)
        for model in hosted:
            start, own = start_of[model.gpus], model.gpus
            while start + own <= gpus and any(taken[start : start + own]):
                start += own
            start_of[own] = start
            if start + own <= gpus:
                taken[start : start + own] = b"\1" * own
                seats.append((model, tuple(range(start, start + own))))
        if before == 0 and len(seats) < len(hosted):
            raise _too_many(config, hosted, len(seats))
        if len(seats) == before:
            return seats


def _too_many(config: RunConfig, hosted: Sequence[HostedModel], placed: int) -> UserError:
    fewer = f"models.count={placed}, " if placed > 1 else ""
    return UserError(
        f"models.count={len(hosted)} is more than the {placed} instances that the {config.cluster.gpus} GPUs "
        f"of cluster={config.cluster.name} hold, and system={config.system.name} gives every model one of "
        f"its own: write {fewer}a larger cluster, or an elastic system, which starts instances when requests "
        "come, such as system=serverlessllm or system=blitz_multicast"
    )


def _check_hosts(config: RunConfig, hosted: Sequence[HostedModel]) -> None:
    """Check that each instance's GPUs are in one host, or fill whole hosts."""
    if len(hosted) == 1 or config.cluster.topology is None:
        return  # a single model is checked with its links
    per_host = load_cluster(config.cluster.topology).gpus_per_host
    for model in hosted:
        if per_host % model.tp and model.tp % per_host:
            raise UserError(
                f"{model.shape_name}:{model.tp} of models.shapes does not fit the {per_host} GPUs of a host "
                f"of cluster={config.cluster.name}: write a number of GPUs that divides {per_host}"
            )
