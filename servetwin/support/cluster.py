"""Output of ``servetwin support cluster=C``: links, how they are shared, and how long a load takes."""

import math
import textwrap
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from typing import Any, Final

from hwmodels.catalogue import load_llm
from hwmodels.models.load_units import model_units
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.cuts import narrowest
from hwmodels.topology.gpu_sites import Path
from hwmodels.topology.link import REMOTE, Link, Location, dram, gpu
from hwmodels.topology.spec import ClusterSpec, Rate
from hwmodels.topology.topology import Topology, build
from servetwin.report.number_text import number
from servetwin.support.multicast_bound import MODEL, hosts_of_multicast, limits_of, multicasts
from servetwin.support.path_diversity import least_diverse, path_diversity

LOAD_BYTES: Final = 16e9  # Llama3-8B in 16 bits, the papers' usual example
_BITS_PER_BYTE: Final = 8
_WIDTH: Final = 100
_LABEL: Final = 14
_MOST_LINKS: Final = 10_000  # for this many links the narrowest cuts take about a second
_SHOWN: Final = ("ssd", "remote", "dram", "pcie_switch", "pcie", "nvlink", "nic", "leaf", "spine")


def cluster_lines(name: str, model: str = MODEL, tp: int = 1) -> list[str]:
    """Describe the cluster of that name or path in lines of at most 100 columns.

    ``model``, ``tp``: the instances that a multicast loads. Raises HardwareError for a cluster that does not
    exist or whose file cannot be used.
    """
    topology = build(load_cluster(name))
    spec = topology.spec
    return [
        f"{spec.name}: {_many(spec.hosts, 'host')} of {spec.gpus_per_host} x {spec.gpu}, "
        f"{_many(spec.gpus, 'GPU')}, {len(topology.links)} links",
        *_section("source", [spec.source, f"{spec.file}; host memory: {_memory(spec)}"]),
        *_section("shared", _shared_lines(topology)),
        *_table("links", _link_rows(topology)),
        *_table("paths", _path_rows(topology)),
        *_together_lines(topology),
        *_diversity_lines(topology),
        *_multicast_lines(topology, model, tp),
        *_section("rates", [f"{label}: {rate.source}" for label, rate in _rates(spec)]),
        *_section("efficiency", _efficiency_lines(topology)),
        *_section("latency", _latency_lines(topology)),
    ]


def cluster_data(name: str, model: str = MODEL, tp: int = 1) -> dict[str, Any]:
    """Return data for programs: what ``cluster_lines`` shows, as numbers. Rates are those reached."""
    topology = build(load_cluster(name))
    spec = topology.spec
    kinds = {link.kind: link for link in reversed(topology.links)}
    count = Counter(link.kind for link in topology.links)
    links = {
        kind: {
            "links": count[kind], "shared_by": shared_by(topology, kind),
            "capacity_bytes_per_s": kinds[kind].capacity_bytes_per_s,
            "rate_bytes_per_s": kinds[kind].rate_bytes_per_s,
        }
        for kind in _kinds(topology)
    }  # fmt: skip
    paths = {
        label: {"rate_bytes_per_s": topology.rate_bytes_per_s(path), "latency_s": topology.latency_s(path)}
        for label, path in example_paths(topology)
    }
    return {
        "cluster": spec.name, "source": spec.source, "hosts": spec.hosts, "gpus_per_host": spec.gpus_per_host,
        "gpu": spec.gpu, "host_memory_bytes": spec.host_memory_bytes, "links": links, "paths": paths,
        "diversity": [asdict(one) for one in path_diversity(topology)],
        "multicast": {
            "model": model, "tp": tp, "hosts": len(hosts_of_multicast(topology)),
            "scale_ups": [
                {"what": one.what, "copies": one.copies, "least_s": one.least_s, "planned_s": one.planned_s}
                for one in multicasts(topology, model, tp)
            ],
        },
    }  # fmt: skip


def example_paths(topology: Topology) -> Iterator[tuple[str, Path]]:
    """Yield (what, path) of one load of each kind that the cluster has, all to or from GPU 0 or its host."""
    spec, first = topology.spec, topology.gpus[0]
    if spec.ssd:
        yield "SSD to GPU", topology.path(topology.ssd_of(0), gpu(0))
    if spec.remote:
        yield "remote store to host", topology.path(REMOTE, dram(0))
    yield "host to GPU", topology.path(dram(0), gpu(0))
    if len(topology.scale_up_group(0)) > 1:
        over = "NVLink" if spec.nvlink else "PCIe"
        yield f"GPU to GPU, {over}", topology.path(gpu(0), gpu(topology.scale_up_group(0)[-1]))
    far = [
        site
        for site in topology.gpus
        if site.host != first.host and (first.domain < 0 or site.domain != first.domain)
    ]
    near = next((site.gpu for site in far if site.leaf == first.leaf), None)
    away = next((site.gpu for site in far if site.leaf != first.leaf), None)
    if near is not None:
        yield "GPU to GPU, one leaf", topology.path(gpu(0), gpu(near))
    if away is not None:
        yield "GPU to GPU, two leaves", topology.path(gpu(0), gpu(away))
    if far:
        yield "host to another's GPU", topology.path(dram(0), gpu(far[0].gpu))


def groups_of_places(topology: Topology) -> Iterator[tuple[str, list[Location], list[Location]]]:
    """Yield (what, sources, targets) of simultaneous loads and instance transfers in this cluster."""
    spec = topology.spec
    gpus, memories = [gpu(index) for index in range(spec.gpus)], [dram(host) for host in topology.hosts]
    if spec.ssd:
        yield "SSDs to all GPUs", list(dict.fromkeys(topology.ssd_of(end.number) for end in gpus)), gpus
    if spec.remote:
        yield "remote store to all GPUs", [REMOTE], gpus
    yield "host memories to all GPUs", memories, gpus
    if spec.hosts > 1:
        half = topology.gpus_of(spec.hosts // 2).start
        yield "one host to the other hosts' GPUs", memories[:1], gpus[spec.gpus_per_host :]
        yield "half of the hosts' GPUs to the others", gpus[:half], gpus[half:]


def gbps(bytes_per_s: float) -> str:
    """Return a rate in Gbps, the usual unit of networks."""
    return number(bytes_per_s * _BITS_PER_BYTE / 1e9)


def shared_by(topology: Topology, kind: str) -> str:
    """Return which GPUs, NICs or hosts share one link of this kind."""
    spec = topology.spec
    if kind in ("leaf", "spine"):
        return "each leaf and spine"
    if kind == "dram" or (kind == "ssd" and spec.ssd_per == "host"):
        return "each host"
    if kind == "remote":
        return "all hosts" if spec.remote_per == "cluster" else "each host"
    gpus = {"pcie_switch": spec.pcie_shared_by, "nic": spec.gpus_per_nic}.get(kind, 1)
    return "each GPU" if gpus == 1 else f"{gpus} GPUs"


def _link_rows(topology: Topology) -> Iterator[list[str]]:
    yield ["", "shared by", "Gbps", "reached", "of it", "links"]
    for kind in _SHOWN:
        links = [link for link in topology.links if link.kind == kind]
        if links:
            yield [kind, shared_by(topology, kind), *_link_cells(links[0]), number(len(links))]


def _link_cells(link: Link) -> list[str]:
    share = f"{100 * link.efficiency:g} %"
    return [gbps(link.capacity_bytes_per_s), gbps(link.rate_bytes_per_s), share]


def _path_rows(topology: Topology) -> Iterator[list[str]]:
    yield ["", "Gbps", f"{LOAD_BYTES / 1e9:g} GB", "first byte", "limited by"]
    for label, path in example_paths(topology):
        rate = topology.rate_bytes_per_s(path)
        narrow = next(
            (topology.links[link].name for link in path if _is_rate(topology, link, rate)), "nothing"
        )
        latency = f"{topology.latency_s(path) * 1e6:.3g} us"
        yield [label, gbps(rate), f"{number(LOAD_BYTES / rate)} s", latency, narrow]


def _together_lines(topology: Topology) -> list[str]:
    if len(topology.links) > _MOST_LINKS:
        left_out = f"not looked for in more than {_MOST_LINKS:,} links: write a smaller cluster of this kind"
        return _section("together", [left_out])
    return _table("together", _together_rows(topology))


def _together_rows(topology: Topology) -> Iterator[list[str]]:
    """Yield the maximum joint rate, whatever the paths, and the links that all of the traffic crosses."""
    yield ["", "Gbps", "per GPU", "limited by"]
    total = Counter(link.kind for link in topology.links)
    for label, sources, targets in groups_of_places(topology):
        cut = narrowest(topology, sources, targets)
        kinds = Counter(topology.links[link].kind for link in cut.links)
        limits = " + ".join(kinds)
        if len(kinds) == 1:
            limits += f", {kinds[limits]:,} of {total[limits]:,} links"
        yield [label, gbps(cut.rate_bytes_per_s), gbps(cut.rate_bytes_per_s / len(targets)), limits]


def _diversity_lines(topology: Topology) -> list[str]:
    found = path_diversity(topology)
    least = least_diverse(found)
    if least is None:
        return _section("diversity", ["one GPU: there are no paths between GPUs"])
    rows = [["paths without a common link", "number", "Gbps together", "one path"]]
    rows += [
        [one.what, number(one.paths), gbps(one.rate_bytes_per_s), gbps(one.one_path_bytes_per_s)]
        for one in found
    ]
    told = f"least: {_many(least.paths, 'path')}, {least.what}; one pair of each kind, since hosts are alike"
    return [*_table("diversity", rows), *_section("", [told])[1:]]


def _multicast_lines(topology: Topology, model: str, tp: int) -> list[str]:
    found = multicasts(topology, model, tp)
    if not found:
        spec = topology.spec
        wide = f"an instance of {tp} GPUs has more than the {spec.gpus_per_host} of a host: no table for it"
        none = "one host, or no network: no instance loads from another host"
        return _section("multicast", [wide if tp > spec.gpus_per_host else none])
    size_bytes = sum(unit.size_bytes for unit in model_units(load_llm(model)))
    rows = [[f"{model}, {number(size_bytes / 1e9)} GB", "copies", "at least", "planner", "", "limited by"]]
    for one in found:
        kinds = limits_of(topology, one.cut)
        limits = " + ".join(kinds)
        if len(kinds) == 1:
            limits += f", {_many(kinds[limits], 'link')}"
        seconds = [f"{number(one.least_s)} s", f"{number(one.planned_s)} s"]
        rows.append([one.what, number(one.copies), *seconds, f"x {one.planned_s / one.least_s:.2f}", limits])
    hosts, every = len(hosts_of_multicast(topology)), topology.spec.hosts
    some = f"{hosts} of the {every:,} hosts, spread evenly; " if hosts < every else ""
    told = (
        f"{some}instances of {_many(tp, 'GPU')}; at least: no multicast is faster than the least maximum "
        "flow from the sources to one target (Edmonds 1973); planner: the plan of "
        "system/provision=multicast on these links, all targets at once"
    )
    return [*_table("multicast", rows), *_section("", [told])[1:]]


def _is_rate(topology: Topology, link: int, rate: float) -> bool:
    return math.isclose(topology.links[link].rate_bytes_per_s, rate, rel_tol=1e-9)


def _shared_lines(topology: Topology) -> list[str]:
    spec, counts = topology.spec, topology.counts
    lines = []
    if spec.nvlink:
        lines.append(f"{_many(counts.domains, 'NVLink domain')} of {spec.domain_gpus} GPUs")
    else:
        lines.append("no NVLink: the GPUs of a host reach each other over PCIe")
    if spec.pcie_shared_by > 1:
        lines.append(f"{_many(counts.switches, 'PCIe switch', 'es')}, each for {spec.pcie_shared_by} GPUs")
    if spec.nic:
        gpus = "of its own for each GPU" if spec.gpus_per_nic == 1 else f"for each {spec.gpus_per_nic} GPUs"
        lines.append(f"a NIC {gpus}; GPUDirect crosses the GPUs' PCIe links too")
        lines.append(_leaf_text(topology))
    return lines


def _leaf_text(topology: Topology) -> str:
    leaves, counts = topology.spec.leaves, topology.counts
    if counts.leaves == 1:
        return "all NICs on one leaf, which never limits"
    rails = ", NIC k of every host on leaf k of its set" if leaves.rails else ""
    return (
        f"{counts.leaves} leaves of {counts.leaf_nics} NICs{rails}, {_many(counts.up_spines, 'spine')}, "
        f"oversubscription {leaves.oversubscription:g}; a transfer takes one spine, by hash"
    )


def _rates(spec: ClusterSpec) -> Iterator[tuple[str, Rate]]:
    for key in ("pcie", "pcie_peer", "nvlink", "nic", "ssd", "remote", "dram"):
        rate: Rate | None = getattr(spec, key)
        if rate:
            yield key, rate


def _efficiency_lines(topology: Topology) -> list[str]:
    """Return every reason once, with its kinds of link."""
    reasons: dict[tuple[float, str], list[str]] = {}
    for kind in _kinds(topology):
        rates = topology.spec.classes[kind]
        reasons.setdefault((rates.efficiency, rates.efficiency_source), []).append(kind)
    return [f"{', '.join(about)} {share:g}: {reason}" for (share, reason), about in reasons.items()]


def _latency_lines(topology: Topology) -> list[str]:
    reasons: dict[str, list[str]] = {}
    for kind in _kinds(topology):
        rates = topology.spec.classes[kind]
        reasons.setdefault(rates.latency_source, []).append(f"{kind} {rates.latency_s * 1e6:g}")
    return [f"us per link: {', '.join(about)}; {reason}" for reason, about in reasons.items()]


def _kinds(topology: Topology) -> list[str]:
    present = {link.kind for link in topology.links}
    return [kind for kind in _SHOWN if kind in present]


def _memory(spec: ClusterSpec) -> str:
    return f"{spec.host_memory_bytes / 1e9:,.6g} GB each, {spec.host_memory_source}"


def _many(count: int, noun: str, plural: str = "s") -> str:
    return f"{count:,} {noun}{plural if count != 1 else ''}"


def _table(label: str, rows: Iterable[list[str]]) -> list[str]:
    """Return columns behind the label: texts aligned left, columns of numbers aligned right."""
    cells = list(rows)
    numeric = [any(_starts_with_digit(row[at]) for row in cells[1:]) for at in range(len(cells[0]))]
    widths = [max(len(row[at]) for row in cells) for at in range(len(cells[0]))]
    lines = []
    for at, row in enumerate(cells):
        shown = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append(f"{label if at == 0 else '':<{_LABEL}}{'  '.join(shown)}".rstrip())
    return ["", *lines]


def _starts_with_digit(cell: str) -> bool:
    return cell[:1].isdigit() and "GPU" not in cell


def _section(label: str, paragraphs: Iterable[str]) -> list[str]:
    lines: list[str] = []
    for paragraph in paragraphs:
        lines += textwrap.wrap(
            paragraph,
            _WIDTH,
            initial_indent=f"{label if not lines else '':<{_LABEL}}",
            subsequent_indent=" " * (_LABEL + 2),
            break_on_hyphens=False,
        )
    return ["", *lines]
