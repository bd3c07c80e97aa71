"""Drawn clusters for hypothesis, and the places that one has."""

from hypothesis import strategies as st

from hwmodels.topology.cluster_file import DEFAULT_CLASSES
from hwmodels.topology.link import REMOTE, Location, dram, gpu
from hwmodels.topology.spec import ClusterSpec, Leaves, Rate
from hwmodels.topology.topology import Topology


def rate(draw: st.DrawFn) -> Rate:
    return Rate(draw(st.floats(1e6, 1e12)), "drawn")


@st.composite
def specs(draw: st.DrawFn) -> ClusterSpec:
    """Up to 4 hosts of up to 8 GPUs with every combination of what can be shared or left out."""
    hosts, gpus = draw(st.integers(1, 4)), draw(st.sampled_from((1, 2, 4, 6, 8)))
    divisors = st.sampled_from([count for count in range(1, gpus + 1) if gpus % count == 0])
    pcie = rate(draw)
    sizes = [None, *(count for count in range(1, 3 * gpus) if gpus % count == 0 or count % gpus == 0)]
    leaves = Leaves(
        hosts=draw(st.none() | st.integers(1, 4)),
        spines=draw(st.integers(1, 3)),
        oversubscription=draw(st.sampled_from((1.0, 2.0, 3.5))),
        rails=draw(st.booleans()),
    )
    return ClusterSpec(
        name="drawn", file="drawn.yaml", gpu="a10", hosts=hosts, gpus_per_host=gpus, host_memory_bytes=10**12,
        host_memory_source="drawn", pcie=pcie, classes=DEFAULT_CLASSES, source="drawn",
        pcie_shared_by=draw(divisors),
        pcie_peer=draw(st.none() | st.just(Rate(2 * pcie.bytes_per_s, "drawn"))),
        nvlink=rate(draw) if draw(st.booleans()) else None,
        nvlink_domain_gpus=draw(st.sampled_from(sizes)),
        nic=rate(draw) if hosts > 1 or draw(st.booleans()) else None,
        gpus_per_nic=draw(divisors),
        leaves=leaves,
        ssd=rate(draw) if draw(st.booleans()) else None,
        ssd_per=draw(st.sampled_from(("gpu", "host"))),
        remote=rate(draw) if draw(st.booleans()) else None,
        remote_per=draw(st.sampled_from(("gpu", "host", "cluster"))),
        dram=rate(draw) if draw(st.booleans()) else None,
    )  # fmt: skip


def places(topology: Topology) -> list[Location]:
    spec = topology.spec
    found = [gpu(index) for index in range(spec.gpus)] + [dram(host) for host in range(spec.hosts)]
    found += [topology.ssd_of(index) for index in range(spec.gpus)] if spec.ssd else []
    return found + ([REMOTE] if spec.remote else [])
