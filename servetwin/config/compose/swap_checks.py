"""Refusals of swapping (KV of preempted requests in host memory) that a run does not support."""

from servetwin.config.config import RunConfig
from servetwin.config.swapping import PREEMPTIONS, RECOMPUTE, SWAP_SPACE_GIB
from serving.vocabulary.errors import UserError

_AGAIN = "write engine.preemption=recompute"


def check_swapping(config: RunConfig) -> None:
    """Refuse ``engine.preemption=swap`` if no engine supports it."""
    engine, system = config.engine, config.system
    if engine.preemption not in PREEMPTIONS:
        raise UserError(
            f"engine.preemption={engine.preemption} is unknown: write one of {', '.join(PREEMPTIONS)}"
        )
    if engine.preemption == RECOMPUTE:
        if engine.swap_space_gib != SWAP_SPACE_GIB:
            raise UserError(
                f"engine.swap_space_gib={engine.swap_space_gib:g} does nothing with "
                "engine.preemption=recompute: leave it out, or write engine.preemption=swap"
            )
        return
    for fits, what in (
        (config.kind != "realexec", "real workers, which have no host memory for KV"),
        (system.batcher.name == "prefill_first", f"system/batcher={system.batcher.name}: vLLM v1 has none"),
        (not engine.prefix_caching, "engine.prefix_caching=true, whose blocks stay on the GPU"),
        (not engine.asynchronous, "engine.asynchronous=true: vLLM v1 has none"),
        (config.model.pp == 1, f"model.pp={config.model.pp}, whose stages swap nothing"),
        (engine.data_parallel_size == 1, "engine.data_parallel_size above 1, whose ranks step together"),
        (not system.instances.split, f"system={system.name}, whose decode instances keep room for all"),
        (system.live.name == "none", f"system/live={system.live.name}, whose instances share passes"),
        (not system.in_stages, f"system={system.name}, whose instances have a stage each"),
    ):
        if not fits:
            raise UserError(f"engine.preemption=swap does not fit {what}: {_AGAIN}")
    if config.cluster.topology is None:
        raise UserError(
            f"engine.preemption=swap moves KV over PCIe, and cluster={config.cluster.name} has no links: "
            "write a cluster that has, such as cluster=llumnix, or engine.preemption=recompute"
        )
