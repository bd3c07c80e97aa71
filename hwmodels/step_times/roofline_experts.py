"""Routed experts of a roofline: reading those that any token chose, or computing all tokens."""

from typing import Final

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from hwmodels.models.parallelism import Parallelism
from hwmodels.models.precision import FORMATS
from hwmodels.profiles.profile import Curve, Exchange
from hwmodels.step_times.all_reduce import AllReduce, StepAllReduce
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
    token_flops = 2.0 * layers * one * experts.per_token
    lines = ExpertLines(
        expert_tp=parts,
        expert_ep=parallelism.expert_ep,
        last_tokens=last_tokens * parallelism.dp,
        reading_s=0.0,
        per_expert_s=layers * stored.size_bytes(one) / parts / bytes_per_s,
        per_token_s=0.0,
        computing_s=0.0,
        computing_per_token_s=token_flops / (parts * parallelism.expert_ep) / flops_per_s,
    )
    return SharedExperts(
        gpu=gpu.name, ways=(lines,), exchange=_exchange(llm, parallelism, all_reduce), holder=_HOLDER
    )


def _exchange(llm: LlmShape, parallelism: Parallelism, all_reduce: AllReduce) -> tuple[Exchange, ...]:
    if parallelism.dp == 1:
        return ()
    times = all_reduce.of(parallelism.dp)
    message, token_bytes = StepAllReduce(times.stretches), llm.hidden * llm.bytes_per_parameter
    seconds = tuple(llm.moe_layers * message.seconds(n * token_bytes) for n in _EXCHANGED)
    return (Exchange(parallelism.dp, Curve(_EXCHANGED, seconds), times.source),)
