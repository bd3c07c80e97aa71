"""A cluster with its links: the paths of bytes between places, and their rates."""

from dataclasses import dataclass, field

from hwmodels.errors import HardwareError
from hwmodels.topology.gpu_sites import GpuSites, Path, gpu_sites_of
from hwmodels.topology.layout import counts_of, laid_out
from hwmodels.topology.link import Link, Location
from hwmodels.topology.routes import route
from hwmodels.topology.spec import ClusterSpec


@dataclass(frozen=True, slots=True)
class Topology(GpuSites):
    """The links of a cluster and the paths over them.

    A path is the tuple of the indices into ``links`` that bytes cross, computed from the places' numbers
    alone. Host memory is on a path only if the cluster gives its rate (``dram``).
    """

    links: tuple[Link, ...]
    link_latency_s: tuple[float, ...] = field(repr=False)

    def path(self, source: Location, target: Location, spread: int = 0) -> Path:
        """The links from ``source`` to ``target``; () within one GPU, and within a host memory without rate.

        GPU to GPU uses NVLink inside a domain, PCIe inside a host, else both GPUs' NICs, and between leaves
        the spine selected by a hash of (source, target, spread). From storage to a GPU the path leads through
        the memory of the GPU's host. Raises HardwareError if there is no path, or for a place that is not in
        the cluster.
        """
        return route(self, source, target, spread)

    def broadcast(self, source: int, targets: tuple[int, ...]) -> Path:
        """The tree of an NVLink broadcast: the source's out-link once, the in-link of every target.

        Raises HardwareError if there are no targets, a target is listed twice or is the source, or is outside
        the source's domain.
        """
        group = self.scale_up_group(source)
        inside = self.spec.nvlink is not None and all(target in group for target in targets)
        if not targets or not inside or len({source, *targets}) != 1 + len(targets):
            domain = f"GPUs {group[0]} to {group[-1]}" if self.spec.nvlink else "the cluster has none"
            raise HardwareError(
                f"{self.spec.name}: no NVLink broadcast from GPU {source} to {targets}; write other GPUs of "
                f"its NVLink domain, each once ({domain})"
            )
        starts = self.starts
        return (starts.nvlink_out + source, *(starts.nvlink_in + target for target in targets))

    def latency_s(self, path: Path) -> float:
        """Seconds until the first byte has crossed: the sum over the path's links.

        In a broadcast's tree the out-link and the slowest in-link, since the in-links are parallel.
        """
        latencies = self.link_latency_s
        if len(path) > 2 and all(self.links[link].kind == "nvlink" for link in path):
            return latencies[path[0]] + max(latencies[link] for link in path[1:])
        return sum(latencies[link] for link in path)

    def rate_bytes_per_s(self, path: Path) -> float:
        """Rate of one transfer alone; infinite over an empty path."""
        return min((self.links[link].rate_bytes_per_s for link in path), default=float("inf"))


def build(spec: ClusterSpec) -> Topology:
    """The topology of a cluster, with every link and GPU written out."""
    counts = counts_of(spec)
    links, starts = laid_out(spec, counts)
    latency_s = {kind: link_class.latency_s for kind, link_class in spec.classes.items()}
    latencies_s = tuple(latency_s[link.kind] for link in links)
    return Topology(
        spec=spec,
        gpus=gpu_sites_of(spec, counts, starts),
        counts=counts,
        starts=starts,
        links=links,
        link_latency_s=latencies_s,
    )
