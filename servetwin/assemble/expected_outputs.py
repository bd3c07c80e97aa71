"""How many output tokens the control plane expects of a request: its cap, a declared number, or the true one.

Nothing here limits an output: ``servetwin.assemble.lengths`` does.
"""

from __future__ import annotations

from math import ceil

from servetwin.assemble.lengths import LengthLimits
from servetwin.assemble.stage_cut import decodes_in_stages
from servetwin.config.config import RunConfig
from traces.workload import Workload


def expected_tokens(config: RunConfig, workload: Workload, limits: LengthLimits) -> int:
    """Return the output tokens expected of each request, at most its cap; 0: its cap.

    The trace's mean after the caps with engine.reserve=mean; engine.expected_new_tokens for requests of
    which nobody named a cap. Engines that reserve such a request's whole context would decode a handful at a
    time: current ones take memory as it is written and preempt (docs/contributing/decisions/0024).
    """
    if not len(workload):
        return 0
    if config.engine.reserve == "mean":
        return ceil(float(workload.output_tokens.clip(max=limits.caps).mean()))
    if config.engine.reserve == "oracle" or limits.named:
        return 0
    return config.engine.expected_new_tokens


def outgrows_expected(config: RunConfig, workload: Workload, limits: LengthLimits) -> bool:
    """Return whether an output is longer than the engine.expected_new_tokens that the control plane expects.

    Decode instances may then run out of memory, so a split system reports every step, as it always does with
    engine.reserve=mean. No policy sees the answer.
    """
    if config.engine.reserve == "mean":
        return False
    expected = expected_tokens(config, workload, limits)
    return bool(expected) and bool((workload.output_tokens.clip(max=limits.caps) > expected).any())


def expected_labels(config: RunConfig, workload: Workload, limits: LengthLimits) -> list[str]:
    """Return, as labels, the output that the control plane expects of a request without a client's cap."""
    engine, system = config.engine, config.system
    if engine.reserve == "oracle":
        return ["reserve=oracle: every request's cap is its true output length"]
    expected = expected_tokens(config, workload, limits)
    if expected and engine.reserve == "mean":
        return [f"reserve=mean: decode instances keep memory for {expected} output tokens a request"]
    if limits.named:
        return []
    if system.in_stages and decodes_in_stages(config):
        return [
            "memory is kept for all that a request may write, the whole context as no cap is given: "
            "engine.max_new_tokens=NUMBER lets more requests decode at once"
        ]
    if not (system.instances.split or system.elastic or system.dispatch.name == "least_kv"):
        return []
    longer = int((workload.output_tokens.clip(max=limits.caps) > expected).sum())
    more = f", and {longer} write more, for which decode instances may preempt" if longer else ""
    return [
        f"no cap is given: every request is counted with {expected} output tokens "
        f"(engine.expected_new_tokens){more}"
    ]
