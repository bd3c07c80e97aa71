"""A Ray cluster of several nodes on this machine, each with room for one worker."""

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import pytest

# How soon the cluster itself takes a node for dead whose raylet is gone.
QUICK = {
    "health_check_initial_delay_ms": 500, "health_check_period_ms": 500, "health_check_failure_threshold": 3,
}  # fmt: skip


@contextmanager
def cluster_of(nodes: int, addresses: Sequence[str] = ()) -> Iterator[Any]:
    """Skips the test where ray is not installed. A busy machine takes long to start a node.

    ``addresses``: of the nodes after the first, if not the machine's own.
    """
    os.environ.setdefault("RAY_raylet_start_wait_time_s", "300")
    pytest.importorskip("ray")
    from ray.cluster_utils import Cluster

    plain = {"num_cpus": 1, "include_dashboard": False, "object_store_memory": 80 << 20}
    head = {**plain, "_system_config": QUICK}
    cluster = Cluster(initialize_head=True, head_node_args=head)
    try:
        for where in [{"node_ip_address": address} for address in addresses] or [{}] * (nodes - 1):
            cluster.add_node(num_cpus=1, object_store_memory=80 << 20, **where)
        cluster.wait_for_nodes()
        yield cluster
    finally:
        cluster.shutdown()


def node_at(cluster: Any, address: str) -> str:
    """The id of the node with this address."""
    (found,) = [one.node_id for one in cluster.list_all_nodes() if one.node_ip_address == address]
    return str(found)


def kill_node(cluster: Any, node_id: str) -> None:
    """The node's processes are killed, as by a host that fails."""
    (node,) = [one for one in cluster.list_all_nodes() if one.node_id == node_id]
    cluster.remove_node(node, allow_graceful=False)
