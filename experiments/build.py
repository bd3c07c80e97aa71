"""From a configuration to the objects of a run: replicas, controller, step times, estimates, arrivals."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from typing import TYPE_CHECKING

from experiments.config import RunConfig, make_policy
from experiments.data_plane import starts_of
from experiments.hardware import Hardware
from experiments.streams import seed_of
from hwmodels.rows import FIXED_PER_S
from serving.batch import Batcher
from serving.controller import Controller
from serving.errors import UserError
from serving.estimates import Estimates, ModelEstimates
from serving.layers import LayerRange
from serving.replica import Replica
from serving.request import Request
from traces.workload import Workload

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

# The state in which decode speed is estimated: contexts of this length, as many as fit or may run.
ESTIMATE_CONTEXT_TOKENS = 1024
_BLOCK_ROWS = 4096


def replicas_of(config: RunConfig, hardware: Hardware) -> list[Replica]:
    """As many whole-model replicas as the cluster's GPUs make, GPUs in index order."""
    tp, engine = config.model.tp, config.engine
    return [
        Replica(
            id=id,
            model=config.model.name,
            layers=LayerRange(0, hardware.layers),
            gpus=tuple(range(id * tp, (id + 1) * tp)),
            kv_blocks=hardware.kv_blocks,
            block_tokens=engine.block_tokens,
            watermark_blocks=int(engine.watermark * hardware.kv_blocks),
            prefix_caching=engine.prefix_caching,
        )
        for id in range(config.cluster.gpus // tp)
    ]


def controller_of(config: RunConfig, replicas: list[Replica], estimates: Estimates) -> Controller:
    """A fresh controller with the configured policies; the same object type drives both worlds.

    A policy whose constructor has a parameter ``random`` or ``estimates`` is given that: a random stream of
    its own, or what may be assumed about speed.
    """
    system, known = config.system, {"estimates": estimates}
    dispatcher = make_policy(
        "system/dispatch", system.dispatch, random=Random(seed_of(config.seed, "dispatch")), **known
    )
    admission = make_policy(
        "system/admission", system.admission, random=Random(seed_of(config.seed, "admission")), **known
    )

    def batcher_for(replica: Replica) -> Batcher:
        batcher: Batcher = make_policy("system/batcher", system.batcher, **known)
        return batcher

    engine = config.engine
    return Controller(
        replicas,
        dispatcher,
        batcher_for,
        admission,
        not engine.exact,
        asynchronous=engine.asynchronous,
        starts=starts_of(config, replicas),
    )


def estimates_of(config: RunConfig, hardware: Hardware) -> Estimates:
    """Speeds of one replica as policies may know them, from its step-time model."""
    engine, rows = config.engine, hardware.rows
    kv_tokens = hardware.kv_blocks * engine.block_tokens
    context = min(ESTIMATE_CONTEXT_TOKENS, kv_tokens)
    sequences = max(1, min(engine.max_num_seqs, kv_tokens // context))
    # A table may end before the memory does: then the state is as large as it answers for.
    while sequences > 1 and sequences * context > rows.decode(sequences)[-1][0]:
        sequences -= 1
    batch = min(engine.max_num_batched_tokens, hardware.step.limits.prompt_tokens)
    prefill_s = rows.mixed(0, 0, ((0, 0, batch),)) / FIXED_PER_S
    decode_s = rows.decode_cost(sequences, sequences * context) / FIXED_PER_S
    entry = ModelEstimates(config.model.name, batch / prefill_s, decode_s, sequences, context, kv_tokens)
    return Estimates((entry,), hardware.step.source)


def check_lengths(config: RunConfig, workload: Workload, hardware: Hardware, replicas: list[Replica]) -> None:
    """Refuse a trace with requests the step-time model does not answer for, or none of which fits.

    A preempted request is computed again with all it has generated, so the longest chunk ends there; a
    batcher that does not cut prompts computes all of it in one step.
    """
    limits = hardware.step.limits
    longest = min(limits.prompt_tokens, hardware.rows.decode(1)[-1][0])
    if config.system.batcher.name != "chunked_prefill":
        longest = min(longest, limits.max_prefill_tokens)
    caps = caps_of(config, workload)
    tokens = workload.prompt_tokens + (workload.output_tokens.clip(max=caps) - 1)
    row = int(tokens.argmax())
    if tokens[row] > longest:
        other = "" if config.engine.step_time == "roofline" else ", or engine.step_time=roofline"
        raise UserError(
            f"request {row} of {workload.name} (the first is 0) has a prompt of "
            f"{workload.prompt_tokens[row]} tokens and {tokens[row]} with what it generates, beyond the "
            f"{longest} the step-time model answers for: write a smaller trace.tokens_scale than "
            f"{config.trace.tokens_scale:g}{other}"
        )
    room = min(replica.longest_request_tokens for replica in replicas)
    shortest = int((workload.prompt_tokens + caps).min())
    if shortest > room:
        raise UserError(
            f"the KV memory of a replica holds {room} tokens and no request of {workload.name} fits: the "
            f"shortest needs {shortest} with max_new_tokens; write a larger engine.kv_tokens or a smaller "
            "engine.max_new_tokens"
        )


def caps_of(config: RunConfig, workload: Workload) -> NDArray[np.int64] | int:
    """max_new_tokens of every request: the trace's, else the engine's for all."""
    return config.engine.max_new_tokens if workload.max_new_tokens is None else workload.max_new_tokens


def truncated(config: RunConfig, workload: Workload) -> int:
    """How many outputs are longer than their max_new_tokens and are cut there."""
    return int((workload.output_tokens > caps_of(config, workload)).sum())


def arrivals_of(config: RunConfig, workload: Workload) -> Iterator[tuple[Request, int]]:
    """(request, true output tokens) by arrival, built a block of rows at a time."""
    model = config.model.name
    cap = config.engine.max_new_tokens
    for rows in workload.blocks(_BLOCK_ROWS):
        arrival = workload.arrival_ns[rows].tolist()
        prompt = workload.prompt_tokens[rows].tolist()
        output = workload.output_tokens[rows].tolist()
        caps, priority = workload.max_new_tokens, workload.priority
        limits = [cap] * len(arrival) if caps is None else caps[rows].tolist()
        urgent = [0] * len(arrival) if priority is None else priority[rows].tolist()
        ids = range(rows.start, rows.start + len(arrival))
        for id, at_ns, tokens, limit, true, urgency in zip(
            ids, arrival, prompt, limits, output, urgent, strict=True
        ):
            yield Request(id, at_ns, tokens, limit, model, urgency), true
