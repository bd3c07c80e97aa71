"""Routed experts of a roofline: reading those that any token chose, or computing all tokens."""

from typing import Final

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.precision import FORMATS
from hwmodels.profiles.profile import Curve, Exchange
from hwmodels.step_times.all_reduce import AllReduce
from hwmodels.step_times.expert_lines import ExpertLines
from hwmodels.step_times.expert_times import SharedExperts

_HOLDER: Final = "the roofline"
# Messages of the exchange between engines at which its curve has points; between them it is a line.
_EXCHANGED: Final = tuple(1 << power for power in range(19))


def roofline_experts(
    gpu: Gpu,
    llm: LlmShape,
    parallelism: Parallelism,
    *,
    compute: float,
    memory: float,
    all_reduce: AllReduce,
    last_tokens: int,
) -> SharedExperts:
    """The experts of ``llm`` on each of ``parallelism.gpus`` at shares of the peaks of compute and memory.

    ``last_tokens``: the most tokens of one engine's step. Between engines, an all-gather before the experts
    and a reduce-scatter after them are one all-reduce.
    """
    assert llm.experts is not None, llm.name
    experts, stored = llm.experts, llm.formats.format(llm.formats.experts)
    layers, one = llm.moe_layers, llm.experts.parameters_of_one(llm.hidden)
    bytes_per_s = gpu.memory_bandwidth_bytes_per_s * memory
    flops_per_s = gpu.flops_in(FORMATS[llm.formats.experts].computes) * compute
    parts = parallelism.expert_tp
    lines = ExpertLines(
        expert_tp=parts,
        expert_ep=parallelism.expert_ep,
        last_tokens=last_tokens * parallelism.dp,
        reading_s=0.0,
        per_expert_s=layers * stored.size_bytes(one) / parts / bytes_per_s,
        per_token_s=0.0,
        computing_s=0.0,
        computing_per_token_s=2.0
        * layers
        * one
        * experts.per_token
        / (parts * parallelism.expert_ep)
        / flops_per_s,
    )
    return SharedExperts(
        gpu=gpu.name, ways=(lines,), exchange=_exchange(llm, parallelism, all_reduce), holder=_HOLDER
    )


def _exchange(llm: LlmShape, parallelism: Parallelism, all_reduce: AllReduce) -> tuple[Exchange, ...]:
    if parallelism.dp == 1:
        return ()
    times = all_reduce.of(parallelism.dp)
    token_bytes = llm.hidden * llm.bytes_per_parameter
    seconds = tuple(llm.moe_layers * _message_s(times.stretches, n * token_bytes) for n in _EXCHANGED)
    return (Exchange(parallelism.dp, Curve(_EXCHANGED, seconds), times.source),)


def _message_s(stretches: tuple[tuple[int, float, float], ...], size_bytes: int) -> float:
    start_s, s_per_byte = next(
        (start_s, rate) for first, start_s, rate in reversed(stretches) if size_bytes >= first
    )
    return start_s + s_per_byte * size_bytes
