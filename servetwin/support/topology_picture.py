"""Draws a cluster: hosts as boxes of GPUs, PCIe, NICs and storage, leaves and spines above."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hwmodels.topology.topology import Topology
from servetwin.report.picture import new_figure, require_picture, save
from servetwin.support.cluster import gbps, shared_by
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from matplotlib.axes import Axes

MOST_GPUS: Final = 64  # clusters up to this size are drawn completely
FIRST_GPUS: Final = 32  # a larger cluster is drawn up to this many GPUs of its first hosts
_MOST_SPINES: Final = 16
_HOST_GAP: Final = 1.0  # unit of all lengths: the width of one GPU's column
_BOX: Final = 0.78
_HEIGHT: Final = 0.62
_INCHES: Final = 0.42
_LEAST_SPAN: Final = 20.0
_COLOURS: Final[Mapping[str, str]] = {
    "spine": "#7b5ea7",
    "leaf": "#7b5ea7",
    "nic": "#2563c9",
    "pcie_switch": "#c98a0b",
    "pcie": "#d9660a",
    "nvlink": "#16794a",
    "dram": "#5b6878",
    "ssd": "#8a3b52",
    "remote": "#8a3b52",
}
_GPU_COLOUR: Final = "#1f2a37"
_WORDS: Final[Mapping[str, str]] = {
    "spine": "spine to leaf",
    "leaf": "leaf to spine",
    "nic": "NIC",
    "pcie_switch": "PCIe towards the host",
    "pcie": "PCIe of a GPU (to host memory and NIC)",
    "nvlink": "NVLink",
    "dram": "host memory",
    "ssd": "SSD",
    "remote": "remote store",
}
Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class _Drawing:
    """The hosts to draw, and the height of every row."""

    topology: Topology
    hosts: int
    rows: Mapping[str, float]

    @property
    def gpus(self) -> int:
        return self.hosts * self.topology.spec.gpus_per_host

    @property
    def width(self) -> float:
        return self.gpus + _HOST_GAP * (self.hosts - 1)

    def column(self, gpu: float) -> float:
        """Return the middle of a GPU's column; a fraction lies between two of a host."""
        return gpu + 0.5 + _HOST_GAP * (int(gpu) // self.topology.spec.gpus_per_host)

    def middle(self, group: range) -> float:
        """Return the middle of the drawn part of a group of GPUs."""
        return (self.column(group[0]) + self.column(min(group[-1], self.gpus - 1))) / 2

    @property
    def height(self) -> float:
        """Height of the picture, a little above the highest row."""
        return max(self.rows.values()) + 1.2

    @property
    def span(self) -> float:
        """Width of the picture in columns; a small cluster is centred in a minimum width."""
        return max(self.width + 0.6, _LEAST_SPAN)

    def spread(self, number: int, count: int) -> float:
        """Return the position of switch ``number`` of ``count`` in the whole width."""
        return self.width * (number + 0.5) / count


def draw(topology: Topology, path: Path) -> None:
    """Write the picture; if the cluster has more than ``MOST_GPUS``, it shows only the first hosts.

    The title then states that it is cut. UserError if ``path`` ends in none of .png, .svg, .pdf or cannot be
    written, or a host has too many GPUs.
    """
    require_picture(path)
    if topology.spec.gpus_per_host > MOST_GPUS:
        raise UserError(
            f"a host of {topology.spec.gpus_per_host} GPUs is too wide for a picture: leave plot= out, or "
            f"write a cluster of at most {MOST_GPUS} GPUs per host"
        )
    plan = _plan(topology)
    figure = new_figure(plan.span * _INCHES + 0.3, plan.height * _INCHES * 1.1 + 1.4)
    _paint(figure.subplots(), plan)
    save(figure, path, dpi=130)


def _plan(topology: Topology) -> _Drawing:
    spec, counts = topology.spec, topology.counts
    hosts = spec.hosts if spec.gpus <= MOST_GPUS else max(1, FIRST_GPUS // spec.gpus_per_host)
    width = hosts * (spec.gpus_per_host + _HOST_GAP)
    steps = [
        ("store", 1.0, True),
        ("ssd", 1.0, spec.ssd is not None and spec.ssd_per == "gpu"),
        ("nvlink", 0.9, spec.nvlink is not None),
        ("gpu", 1.4, True),
        ("switch", 1.5, counts.switches > 0 and spec.pcie_shared_by > 1),
        ("nic", 1.5, counts.nics > 0),
        ("leaf", 1.8 + width * (0.08 if counts.leaves > 1 else 0.01), counts.leaves > 0),
        ("spine", 1.6 + width * 0.06, counts.up_spines > 0),
    ]
    rows, height = {}, 0.2
    for name, step, there in steps:
        if there:
            height += step
            rows[name] = height
    return _Drawing(topology, hosts, rows)


def _paint(axes: "Axes", plan: _Drawing) -> None:
    for host in range(plan.hosts):
        _paint_host(axes, plan, host)
    for gpu in range(plan.gpus):
        _paint_gpu(axes, plan, gpu)
    _paint_domains(axes, plan)
    _paint_network(axes, plan)
    axes.set_title(_title(plan), fontsize=12)
    side = (plan.span - plan.width) / 2
    axes.set(xlim=(-side, plan.width + side), ylim=(-0.3, plan.height))
    axes.axis("off")
    _paint_key(axes, plan)


def _title(plan: _Drawing) -> str:
    spec, leaves = plan.topology.spec, plan.topology.counts.leaves
    text = f"{spec.name}: {spec.hosts} host{'s' * (spec.hosts > 1)} x {spec.gpus_per_host} {spec.gpu}"
    if plan.hosts == spec.hosts:
        return text
    switches = f", {leaves} leaves" if leaves > 1 else ""
    return f"{text}{switches}; the first {plan.hosts} host{'s' * (plan.hosts > 1)} drawn"


def _paint_host(axes: "Axes", plan: _Drawing, host: int) -> None:
    from matplotlib.patches import FancyBboxPatch

    topology, group = plan.topology, plan.topology.gpus_of(host)
    left, right = plan.column(group[0]) - 0.5, plan.column(group[-1]) + 0.5
    top = max(plan.rows[row] for row in ("gpu", "switch", "nic") if row in plan.rows) + 0.5
    frame = FancyBboxPatch(
        (left, 0.1),
        right - left,
        top - 0.1,
        boxstyle="round,pad=0.12",
        facecolor="#f4f6f9",
        edgecolor="#b9c2cd",
    )
    axes.add_patch(frame)
    axes.text((left + right) / 2, 0.4, f"host {host}", ha="center", va="center", fontsize=8.5)
    share = _disk_share(topology)
    text = f"DRAM {topology.spec.host_memory_bytes / 1e9:,.0f} GB"
    memory = (right - left - 0.22) * (1.0 - share)
    disk = (right - left - 0.22) * share
    y = plan.rows["store"]
    _box(
        axes,
        (left + 0.11 + memory / 2, y),
        memory,
        text if memory > 3.2 else "DRAM",
        colour=_COLOURS["dram"],
        size=6.5,
    )
    if share:
        _box(axes, (right - 0.11 - disk / 2, y), disk - 0.06, "SSD", colour=_COLOURS["ssd"], size=6.0)


def _disk_share(topology: Topology) -> float:
    """Return the part of a host's lowest row for its own SSD."""
    ssd_per_host = topology.spec.ssd is not None and topology.spec.ssd_per == "host"
    return max(0.25, min(0.5, 0.9 / topology.spec.gpus_per_host)) if ssd_per_host else 0.0


def _paint_gpu(axes: "Axes", plan: _Drawing, gpu: int) -> None:
    topology, rows, x = plan.topology, plan.rows, plan.column(gpu)
    site = topology.site(gpu)
    above = "switch" if "switch" in rows else "nic"
    if above in rows:
        group = topology.gpus_on_switch(site.switch) if above == "switch" else topology.gpus_on_nic(site.nic)
        _line(axes, (x, rows["gpu"]), (plan.middle(group), rows[above]), "pcie", 1.4)
    else:
        reach = len(topology.gpus_of(site.host)) * (1.0 - _disk_share(topology)) - 0.4
        end = min(x, plan.column(topology.gpus_of(site.host)[0]) - 0.5 + reach)
        _line(axes, (x, rows["gpu"]), (end, rows["store"]), "pcie", 1.4)
    if "ssd" in rows:
        _box(axes, (x, rows["ssd"]), _BOX, "SSD", colour=_COLOURS["ssd"], size=5.5)
    if "switch" in rows and gpu == topology.gpus_on_switch(site.switch)[0]:
        group = topology.gpus_on_switch(site.switch)
        _paint_switch(axes, plan, site.switch)
        for nic in sorted({topology.nic_of(member) for member in group} - {-1}):
            nic_x = plan.middle(topology.gpus_on_nic(nic))
            _line(axes, (plan.middle(group), rows["switch"]), (nic_x, rows["nic"]), "pcie_switch", 1.4)
    if site.nic >= 0 and gpu == topology.gpus_on_nic(site.nic)[0]:
        middle = plan.middle(topology.gpus_on_nic(site.nic))
        local = site.nic % topology.spec.nics_per_host
        _box(axes, (middle, rows["nic"]), _BOX, f"NIC{local}", colour=_COLOURS["nic"], size=5.5)
    _box(axes, (x, rows["gpu"]), _BOX, str(gpu), colour=_GPU_COLOUR, size=7.5)


def _paint_switch(axes: "Axes", plan: _Drawing, switch: int) -> None:
    group = plan.topology.gpus_on_switch(switch)
    width = max(_BOX, len(group) - 1 + _BOX)
    _box(
        axes, (plan.middle(group), plan.rows["switch"]), width, "PCIe", colour=_COLOURS["pcie_switch"], size=6
    )


def _paint_domains(axes: "Axes", plan: _Drawing) -> None:
    """Draw a bar under the GPUs of each NVLink domain, across hosts if it spans several."""
    if "nvlink" not in plan.rows:
        return
    first = 0
    while first < plan.gpus:
        group = plan.topology.scale_up_group(first)
        ends = plan.column(group[0]), plan.column(min(group[-1], plan.gpus - 1))
        y = plan.rows["nvlink"]
        for gpu in range(group[0], min(group[-1] + 1, plan.gpus)):
            _line(axes, (plan.column(gpu), plan.rows["gpu"]), (plan.column(gpu), y), "nvlink", 1.6)
        axes.plot(ends, (y, y), color=_COLOURS["nvlink"], linewidth=5, solid_capstyle="round", zorder=3)
        first = group[-1] + 1


def _paint_network(axes: "Axes", plan: _Drawing) -> None:
    topology, rows = plan.topology, plan.rows
    if "leaf" not in rows:
        return
    per_host = topology.spec.nics_per_host
    wires = [(nic, topology.leaf_of_nic(nic)) for nic in range(plan.hosts * per_host)]
    leaves = sorted({leaf for _, leaf in wires})
    at = {leaf: plan.spread(place, len(leaves)) for place, leaf in enumerate(leaves)}
    width = (0.8 if len(leaves) > 1 else 1.0) * plan.width / len(leaves)
    for nic, leaf in wires:
        x = plan.middle(topology.gpus_on_nic(nic))
        end = _nearest(x, at[leaf], width), rows["leaf"] - _HEIGHT / 2
        _line(axes, (x, rows["nic"] + _HEIGHT / 2), end, "nic", 0.9)
    spines = min(_MOST_SPINES, topology.counts.up_spines)
    for spine, x in enumerate(plan.spread(number, spines) for number in range(spines)):
        for leaf in leaves:
            above, below = (at[leaf], rows["leaf"] + _HEIGHT / 2), (x, rows["spine"] - _HEIGHT / 2)
            _line(axes, above, below, "leaf", 0.9)
        _box(
            axes,
            (x, rows["spine"]),
            min(3.4, 0.8 * plan.width / spines),
            f"spine {spine}",
            colour="#4b3a73",
            size=7.5,
        )
    for leaf in leaves:
        _box(axes, (at[leaf], rows["leaf"]), width, f"leaf {leaf}", colour="#274a8a", size=7.5)


def _paint_key(axes: "Axes", plan: _Drawing) -> None:
    """Draw the colours with their rates."""
    from matplotlib.lines import Line2D

    entries = [
        Line2D([], [], color=_COLOURS[kind], linewidth=4, label=text) for kind, text in _key(plan.topology)
    ]
    entries.append(Line2D([], [], color=_GPU_COLOUR, linewidth=7, label="GPU, by number"))
    columns = max(1, min(len(entries), int(plan.span // 13)))
    axes.legend(
        handles=entries,
        loc="upper center",
        bbox_to_anchor=(0.5, 0.0),
        ncols=columns,
        frameon=False,
        fontsize=8,
    )


def _key(topology: Topology) -> Iterator[tuple[str, str]]:
    seen = {link.kind: link for link in topology.links if link.kind != "spine"}
    for kind in (kind for kind in _WORDS if kind in seen):
        link = seen[kind]
        yield (
            kind,
            f"{_WORDS[kind]}: {gbps(link.capacity_bytes_per_s)} Gbps, {gbps(link.rate_bytes_per_s)} reached "
            f"({shared_by(topology, kind)})",
        )


def _box(axes: "Axes", at: Point, width: float, text: str, *, colour: str, size: float = 7.0) -> None:
    from matplotlib.patches import Rectangle

    corner = (at[0] - width / 2, at[1] - _HEIGHT / 2)
    axes.add_patch(Rectangle(corner, width, _HEIGHT, facecolor=colour, edgecolor="white", zorder=4))
    axes.text(at[0], at[1], text, color="white", ha="center", va="center", fontsize=size, zorder=5)


def _nearest(x: float, middle: float, width: float) -> float:
    """Return where on a box's edge a line to ``x`` starts, a little off its corners."""
    half = max(0.0, width / 2 - 0.2)
    return min(max(x, middle - half), middle + half)


def _line(axes: "Axes", start: Point, end: Point, kind: str, width: float) -> None:
    axes.plot(
        (start[0], end[0]), (start[1], end[1]), color=_COLOURS[kind], linewidth=width, alpha=0.75, zorder=2
    )
