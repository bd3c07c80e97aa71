"""Host memory for the KV of preempted requests: number of blocks, and a block's time over PCIe."""

from dataclasses import replace
from math import ceil

from hwmodels.topology.cluster_file import load_cluster
from servetwin.assemble.hosted import HostedModel
from servetwin.config.config import RunConfig
from servetwin.config.swapping import RECOMPUTE
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica
from serving.vocabulary.units import NS_PER_S

_GIB = 1 << 30


def with_swap_space(config: RunConfig, model: HostedModel, replica: Replica) -> Replica:
    """Add swap space: each GPU copies its part of a block over its own PCIe link, at the reached rate.

    The time to launch the copies, separate for each layer's keys and values, is not included.
    """
    if config.engine.preemption == RECOMPUTE:
        return replica
    assert config.cluster.topology is not None, "refused before"
    spec = load_cluster(config.cluster.topology)
    block_bytes = replica.block_tokens * model.shape.kv_bytes_per_token / model.tp
    blocks = int(config.engine.swap_space_gib * _GIB // block_bytes)
    if not blocks:
        raise UserError(
            f"engine.swap_space_gib={config.engine.swap_space_gib:g} holds no KV block of {block_bytes:g} "
            "bytes per GPU: write a larger one, or engine.preemption=recompute"
        )
    reached_bytes_per_s = spec.pcie.bytes_per_s * spec.classes["pcie"].efficiency
    block_ns = ceil(block_bytes / reached_bytes_per_s * NS_PER_S)
    return replace(replica, swap_blocks=blocks, swap_block_ns=block_ns)
