"""Figure 21: six prefill instances of a 24B model are brought up on cluster A.

They run in two set-ups: the two chains' instances share four NICs of a host, or each has the two of its own
GPUs. Played on the fabric, without requests; what "tokens from 500 ms on" needs (live scaling) is not here.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from experiments.blitzscale.load_plans import FIG_21_BYTES, all_cache, four_nics, play, two_nics
from experiments.common.compare import pointed
from experiments.common.figure import Figure, FigureRow, Key, Panel, PlotLine
from experiments.common.verdict import about, judged, times
from hwmodels.loading.ranks import Ranks
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.spec import at_efficiency
from hwmodels.topology.topology import Topology, build

MB_64 = 64 * 10**6
KEY: Key = ("efficiency", "Figure 21")

# name -> (plans, kind of the link that limits the load, number of these links that are used in parallel)
SET_UPS: dict[str, tuple[Callable[[Topology, int | None], list[Ranks]], str, int]] = {
    "four NICs": (four_nics, "nic", 4),
    "two NICs": (two_nics, "nic", 2),
    "AllCache": (all_cache, "pcie", 2),
}
EFFICIENCIES: dict[str, float | None] = {"shipped": None, "0.77": 0.77, "1.0": 1.0}

# BlitzScale (OSDI 2025), Figure 21: the last of six is up at 1,200 ms, AllCache's at about 2,000 ms.
_PAPER_S = {"four NICs": 1.2, "two NICs": 1.2, "AllCache": 2.0}


@dataclass(frozen=True, slots=True)
class LoadTimes:
    """One line: seconds by |M|/B, until the first instances have all, until the last ones have.

    last_small_s: the same in chunks of 64 MB at most; the others are cut at the size of a layer.
    """

    set_up: str
    efficiency: str
    closed_s: float
    times_s: tuple[float, ...]
    last_small_s: float

    @property
    def first_s(self) -> float:
        """The time at which the first instances are fully loaded."""
        return self.times_s[0]

    @property
    def last_s(self) -> float:
        """The time at which all instances are fully loaded."""
        return self.times_s[-1]


def load_times() -> Iterator[LoadTimes]:
    """Every set-up with every efficiency."""
    spec = load_cluster("blitz_a")
    for set_up, (plans, kind, count) in SET_UPS.items():
        for name, efficiency in EFFICIENCIES.items():
            topology = build(spec if efficiency is None else at_efficiency(efficiency, spec))
            rate = next(link.rate_bytes_per_s for link in topology.links if link.kind == kind)
            times_s = sorted(at_s for plan in play(topology, plans(topology, None)) for at_s in plan.values())
            small = [at_s for plan in play(topology, plans(topology, MB_64)) for at_s in plan.values()]
            yield LoadTimes(set_up, name, FIG_21_BYTES / count / rate, tuple(times_s), max(small))


def fig21() -> Figure:
    """All lines as rows, and multicast over AllCache with the same efficiency."""
    by_name = {(load.set_up, load.efficiency): load for load in load_times()}
    rows = [_row(load) for load in by_name.values()]
    for set_up in ("four NICs", "two NICs"):
        rows += [
            _against_all_cache(by_name[set_up, name], by_name["AllCache", name]) for name in EFFICIENCIES
        ]
    shipped = [load for load in by_name.values() if load.efficiency == "shipped"]
    panel = Panel(
        "instances that have all parameters (shipped efficiencies)",
        "time since the start (s)",
        "instances of 6",
        tuple(_staircase(load) for load in shipped),
    )
    inputs = (
        f"{FIG_21_BYTES / 1e9:g} GB to six instances of two GPUs on hosts 1 to 3 of blitz_a, sources on "
        "host 0; parameters start at once (contexts and connections are pooled)",
        "efficiency: shipped is one factor per kind of link (cluster files), 0.77 and 1.0 are one for all",
    )
    points = {
        f"{load.set_up}, {load.efficiency}": {"up_s": list(load.times_s), "closed_s": load.closed_s}
        for load in by_name.values()
    }
    data = {
        "told": "s until each instance has everything, and |M|/B, by set-up and efficiency",
        "points": points,
    }
    return Figure(
        "fig21",
        "Figure 21: six 24B prefill instances",
        tuple(rows),
        panels=(panel,),
        inputs=inputs,
        sweeps={KEY: data},
    )


def _row(load: LoadTimes) -> FigureRow:
    why = (
        f"|M|/B is {load.closed_s:.3f} s over {SET_UPS[load.set_up][2]} {SET_UPS[load.set_up][1]} links, "
        f"first instance at {load.first_s:.3f} s, last in 64 MB chunks at {load.last_small_s:.3f} s"
    )
    paper_s = _PAPER_S[load.set_up]
    claim = about(paper_s, f"{'about ' if load.set_up == 'AllCache' else ''}{paper_s * 1e3:,.0f} ms")
    name = f"{load.set_up}, efficiency {load.efficiency}: all six up"
    return pointed(judged(name, claim, load.last_s, f"{load.last_s * 1e3:,.0f} ms", why=why), KEY)


def _against_all_cache(load: LoadTimes, cached: LoadTimes) -> FigureRow:
    name = f"{load.set_up} over AllCache, efficiency {load.efficiency}"
    ours = load.last_s / cached.last_s
    why = f"{load.last_s:.3f} s over the network against {cached.last_s:.3f} s from host memory"
    return pointed(judged(name, times(1.2 / 2.0), ours, f"{ours:.3f}", why=why), KEY)


def _staircase(load: LoadTimes) -> PlotLine:
    """Return the number of the six instances that are loaded, over time.

    Four NICs load both instances of a host at the same time.
    """
    each = 6 // len(load.times_s)
    x, y = [0.0], [0.0]
    for number, at_s in enumerate(load.times_s):
        x += [at_s, at_s]
        y += [float(number * each), float((number + 1) * each)]
    return PlotLine(load.set_up, x, y)
