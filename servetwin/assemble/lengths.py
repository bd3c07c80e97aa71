"""How long requests may be: the model's context, the engine's cap on outputs, the range of the step times.

The engine refuses each request beyond the context. Requests beyond the range of the step times cannot be
simulated, so the whole trace is refused.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from servetwin.assemble.hardware import Hardware
from servetwin.assemble.hosted import HostedModel, codes_of, hosted_models
from servetwin.config.config import RunConfig
from servetwin.config.vllm_defaults import USAGE_CONTEXTS
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica
from traces.workload import MAX_TOKENS, Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    Ints = NDArray[np.int64]

_SERVER = USAGE_CONTEXTS[0]
# What ends an output before its length: keys of trace.truncated_reasons.
CONTEXT: Final = "context"
KV_MEMORY: Final = "KV memory"
CAP: Final = "max_new_tokens"


def max_model_len(config: RunConfig, hosted: HostedModel) -> int:
    """Return the longest context of a request: the engine's setting, or else the model's own."""
    limit = config.engine.max_model_len
    return hosted.max_context_tokens if limit is None else limit


@dataclass(frozen=True, slots=True)
class LengthLimits:
    """The limits on the tokens of each request; a limit is one number if it is the same for all requests.

    ``contexts``: the longest context of the request's model. ``rooms``: the KV tokens that a replica of this
    model holds. ``caps``: the request's ``max_new_tokens``. ``named``: whether the trace or the engine sets a
    cap.
    """

    contexts: Ints | int
    rooms: Ints | int
    caps: Ints | int
    named: bool


def limits_of(config: RunConfig, workload: Workload, prototypes: Mapping[str, Replica]) -> LengthLimits:
    """Return the limits of a workload's requests. ``prototypes``: a replica of each model that keeps KV."""
    hosted = hosted_models(config)
    contexts = _by_model(workload, hosted, [max_model_len(config, model) for model in hosted])
    kv_tokens = {name: prototype.longest_request_tokens for name, prototype in prototypes.items()}
    rooms = _by_model(workload, hosted, [kv_tokens.get(model.name, MAX_TOKENS) for model in hosted])
    named = workload.max_new_tokens is not None or config.engine.max_new_tokens is not None
    return LengthLimits(contexts, rooms, _caps_of(config, workload, contexts, rooms), named)


def _caps_of(config: RunConfig, workload: Workload, contexts: Ints | int, rooms: Ints | int) -> Ints | int:
    """Return max_new_tokens of every request, the trace's or the engine's, as vLLM 0.19.0 resolves it.

    A cap that the client did not set is what the context leaves, or the engine's own cap if that is less
    (``get_max_tokens`` in vllm/entrypoints/utils.py); here also what the KV memory leaves. A cap that the
    client set is not cut: ``vllm serve`` refuses such a request (``TokenizeParams._token_len_check`` in
    vllm/renderers/params.py), a script runs it until the context is full (``check_stop`` in
    vllm/v1/core/sched/utils.py). A prompt that leaves no room keeps its cap, or has one of 1.
    """
    import numpy as np

    named, cap = workload.max_new_tokens, config.engine.max_new_tokens
    if named is None and cap is None:
        return np.maximum(np.minimum(contexts, rooms) - workload.prompt_tokens, 1)
    caps: Ints | int = named if named is not None else cast(int, cap)
    if named is not None and config.engine.usage_context == _SERVER:
        return caps
    room = contexts - workload.prompt_tokens
    cut = (room >= 1) & (room < caps)
    return np.where(cut, room, caps) if cut.any() else caps


def is_within_context(config: RunConfig, workload: Workload, limits: LengthLimits) -> NDArray[np.bool_]:
    """Return, for each request, whether the engine's context accepts its length."""
    within: NDArray[np.bool_] = _longest(config, workload, limits) <= limits.contexts
    return within


def _longest(config: RunConfig, workload: Workload, limits: LengthLimits) -> Ints:
    """Return the tokens that each request may have by its cap."""
    import numpy as np

    caps = limits.caps
    if config.engine.reserve == "oracle":  # the cap of a request is then its true output length
        caps = np.minimum(caps, workload.output_tokens)
    return workload.prompt_tokens + caps


def truncated(config: RunConfig, workload: Workload, limits: LengthLimits) -> dict[str, int]:
    """Count the served outputs that end before their length, by what ends them; only what ends some.

    Warm-up requests, which are the first rows, do not count.
    """
    longest = _longest(config, workload, limits)
    served = (longest <= limits.contexts) & (longest <= limits.rooms)
    ends = served & (workload.output_tokens > limits.caps)
    full = workload.prompt_tokens + limits.caps
    by_context = ends & (full == limits.contexts) & _beyond_cap(config, workload, limits)
    by_room = ends & ~by_context & (full == limits.rooms) & (not limits.named)
    rows_by_cause = {CONTEXT: by_context, KV_MEMORY: by_room, CAP: ends & ~by_context & ~by_room}
    first = config.trace.warmup_requests
    return {name: int(rows[first:].sum()) for name, rows in rows_by_cause.items() if rows[first:].any()}


def _beyond_cap(config: RunConfig, workload: Workload, limits: LengthLimits) -> NDArray[np.bool_]:
    """Return whether the context, and not a smaller cap that was given, bounds a request."""
    import numpy as np

    cap = workload.max_new_tokens if workload.max_new_tokens is not None else config.engine.max_new_tokens
    if cap is None:
        return np.ones(len(workload), dtype=np.bool_)
    return np.minimum(workload.output_tokens, cap) > limits.caps


def context_labels(config: RunConfig, workload: Workload, limits: LengthLimits) -> list[str]:
    """Return labels: outputs that context or memory cut, and whether the context differs from the model's."""
    hosted, labels = hosted_models(config), []
    limit, least = config.engine.max_model_len, min(model.max_context_tokens for model in hosted)
    if limit is not None and limit > least:
        labels.append(
            f"engine.max_model_len={limit} is beyond the {least} tokens of the model's context, which vLLM "
            "takes with VLLM_ALLOW_LONG_MAX_MODEL_LEN=1 alone"
        )
    ended = truncated(config, workload, limits)
    if cut := ended.get(CONTEXT):
        labels.append(f"{cut} outputs end where the context (max_model_len) is full")
    if cut := ended.get(KV_MEMORY):
        labels.append(f"{cut} outputs end where the KV memory of a replica (engine.kv_tokens) is full")
    return labels


def check_lengths(
    config: RunConfig,
    workload: Workload,
    hardware: Mapping[str, Hardware],
    prototypes: Mapping[str, Replica],
    limits: LengthLimits,
) -> None:
    """Refuse a trace with requests beyond the step-time model's range, or of which no request fits.

    ``prototypes``: a replica of every hosted model. The engine refuses requests beyond the context.
    """
    import numpy as np

    hosted = hosted_models(config)
    code, caps = codes_of(workload, hosted), limits.caps
    within = is_within_context(config, workload, limits)
    _check_contexts(config, workload, within)
    tokens = workload.prompt_tokens + (workload.output_tokens.clip(max=caps) - 1)
    longest = np.array([_longest_chunk(config, hardware[model.name]) for model in hosted])[code]
    beyond = np.where(within, tokens - longest, 0)
    row = int(beyond.argmax())
    if beyond[row] > 0:
        other = "" if config.engine.step_time == "roofline" else ", or engine.step_time=roofline"
        raise UserError(
            f"request {row} of {workload.name} (the first is 0) has a prompt of "
            f"{workload.prompt_tokens[row]} tokens and {tokens[row]} with what it generates, beyond the "
            f"{longest[row]} the step-time model answers for: write a smaller trace.tokens_scale than "
            f"{config.trace.tokens_scale:g}{other}, or engine.max_model_len={longest[row]} to have such "
            "requests refused one by one"
        )
    room = [prototypes[model.name].longest_request_tokens for model in hosted]
    shortest = np.full(len(hosted), -1)
    needed = workload.prompt_tokens + caps
    by_need = np.argsort(-needed, kind="stable")
    shortest[code[by_need]] = needed[by_need]  # the last value written is the smallest
    if (shortest > room).any():
        model = int(np.argmax(shortest > room))
        raise UserError(
            f"the KV memory of a replica holds {room[model]} tokens and no request of {workload.name}"
            f"{f' for {hosted[model].name}' if len(hosted) > 1 else ''} fits: the shortest needs "
            f"{shortest[model]} with max_new_tokens; write a larger engine.kv_tokens"
            f"{' or a smaller engine.max_new_tokens' if limits.named else ''}"
        )


def _check_contexts(config: RunConfig, workload: Workload, within: NDArray[np.bool_]) -> None:
    """Refuse a trace if the engine would refuse every request."""
    if not len(workload) or within.any():
        return
    row = int(workload.prompt_tokens.argmin())
    context = max(max_model_len(config, model) for model in hosted_models(config))
    raise UserError(
        f"no request of {workload.name} fits the context of {context} tokens: the shortest prompt has "
        f"{workload.prompt_tokens[row]}; write a smaller trace.tokens_scale than "
        f"{config.trace.tokens_scale:g}, a model of longer context or a larger engine.max_model_len"
    )


def _by_model(workload: Workload, hosted: Sequence[HostedModel], values: list[int]) -> Ints | int:
    """Return, for each request, the value of its model in ``hosted``; one number if all are the same."""
    import numpy as np

    if len(set(values)) == 1:
        return values[0]
    return np.array(values)[codes_of(workload, hosted)]


def _longest_chunk(config: RunConfig, hardware: Hardware) -> int:
    """Return the tokens of the longest request in the range of the step times.

    A preempted request is recomputed with all its generated tokens, so the longest chunk ends there. A
    batcher that does not cut prompts computes all of it in one step.
    """
    limits = hardware.step.limits
    longest = min(limits.prompt_tokens, hardware.rows.decode(1)[-1][0])
    if config.system.batcher.name != "chunked_prefill":
        longest = min(longest, limits.max_prefill_tokens)
    return longest
