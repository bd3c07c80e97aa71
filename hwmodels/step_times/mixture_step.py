"""A step of a mixture of experts: a model of the rest, plus its experts over the step's tokens."""

from collections.abc import Callable
from dataclasses import replace

from hwmodels.step_times.expert_times import ExpertTimes
from hwmodels.step_times.step_error import StepErrors
from hwmodels.step_times.step_time import Interplay, StepLimits, StepModel


class MixtureStepModel:
    """``rest`` with ``experts`` in its dense part; implements StepModel."""

    __slots__ = (
        "decode_attention",
        "dense_s",
        "error_band",
        "errors",
        "experts",
        "interplay",
        "labels",
        "limits",
        "prefill_attention_s",
        "source",
    )

    def __init__(self, rest: StepModel, experts: ExpertTimes, alone: bool = True) -> None:
        """``alone`` False: engines that step together share ``experts``; this is an engine's own part."""
        self.experts = experts
        self.dense_s = _with_experts(rest, experts) if alone else rest.dense_s
        self.decode_attention = rest.decode_attention
        self.prefill_attention_s = rest.prefill_attention_s
        self.interplay: Interplay | None = rest.interplay
        last = min(rest.limits.max_prefill_tokens, experts.max_tokens)
        self.limits: StepLimits = replace(rest.limits, max_prefill_tokens=last)
        self.source: str = f"{rest.source}; {experts.source}"
        self.error_band: str = rest.error_band
        self.labels: tuple[str, ...] = (*rest.labels, *experts.labels)
        self.errors: StepErrors = rest.errors


def _with_experts(rest: StepModel, experts: ExpertTimes) -> Callable[[int, int, int], float]:
    """``StepModel.dense_s`` with the experts of all tokens. A closure, as every step with chunks calls it."""
    rest_s, experts_s = rest.dense_s, experts.seconds

    def dense_s(prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        seconds = experts_s(prefill_tokens + decode_sequences)
        return seconds + rest_s(prefill_tokens, prefill_sequences, decode_sequences)

    return dense_s
