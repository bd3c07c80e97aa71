"""Cluster B: whether BlitzScale is ahead of AllCache by live scaling alone, by the links its loads cross.

Nothing of this is in the paper. PCIe between the GPUs of a host is a scale-up domain to the planner, so on
the cluster as it stands most loads never cross a NIC.
"""

from dataclasses import dataclass, replace
from typing import Any, Final

from experiments.blitzscale.set_ups import AZURE_CODE_8B, BLITZ, case_of
from experiments.common.compare import joined, pointed, ratio_row
from experiments.common.figure import FigureRow, Key
from experiments.common.outcomes import MEAN_TTFT, NIC_SHARE, Outcomes
from experiments.common.paired import mean_of, ratio_of
from experiments.common.set_up import Case, Words
from experiments.common.verdict import at_least, below

_SHORTER: Final = below(1.0, "shorter than AllCache (our analysis)", "own_analysis")
_NOT_SHORTER: Final = at_least(
    1.0, "not shorter than AllCache without live scaling (our analysis)", "own_analysis"
)
_STOP: Final = "system/live=stop"
KEY: Final[Key] = ("links of loads", AZURE_CODE_8B.name)


@dataclass(frozen=True, slots=True)
class Way:
    """How parameters reach new instances. loads: words of BlitzScale alone. links: words of every system."""

    name: str
    loads: Words = ()
    links: Words = ()

    def cases(self) -> tuple[Case, Case, Case]:
        """(live, stopped, AllCache). A case that another figure runs has the label it has there."""
        set_up, suffix = AZURE_CODE_8B, f", {self.name}" if self.name else ""
        words, cached = (*self.loads, *self.links), suffix if self.links else ""
        return (
            case_of(set_up, BLITZ, f"{BLITZ}{suffix}", words),
            case_of(set_up, BLITZ, f"{BLITZ}{suffix}, stop", (*words, _STOP)),
            case_of(set_up, "allcache", f"allcache{cached}", self.links),
        )


# On a host of its own a GPU reaches every other one by RDMA alone; AllCache has a copy on each of them.
WAYS: Final = (
    Way(""),
    Way("each by itself", ("system.provision.scale_up_first=false", "system.provision.grouping=instance")),
    Way("RDMA alone", links=(AZURE_CODE_8B.alone,)),
    Way("shared PCIe", links=("cluster=blitz_b_shared_pcie",)),
)


def cases() -> tuple[Case, ...]:
    """Every way, live and stopped, and AllCache on its links."""
    return tuple(case for way in WAYS for case in way.cases())


def rows(outcomes: Outcomes) -> list[FigureRow]:
    """Compare mean TTFT with AllCache's; each row states the share of the loaded bytes that crossed NICs."""
    rows_found = []
    for way in WAYS:
        live, stopped, cached = way.cases()
        for ours, claim in ((live, _SHORTER), (stopped, _NOT_SHORTER)):
            name = f"{ours.set_up.name}: {MEAN_TTFT.label}, {ours.label} over {cached.label}"
            row = ratio_row(outcomes, name, claim, MEAN_TTFT, ours=ours, other=cached)
            row = replace(row, why=joined(over_nics(outcomes, ours), row.why))
            rows_found.append(pointed(row, KEY) if saved(outcomes) else row)
    return rows_found


def saved(outcomes: Outcomes) -> dict[Key, Any]:
    """Every way's ratios beside each other, with the share of the bytes that crossed NICs."""
    points = {}
    for way in WAYS:
        live, stopped, cached = (MEAN_TTFT.of(outcomes.of(case)) for case in way.cases())
        if not live or not stopped or not cached:
            continue
        ratios = {"live": ratio_of(live, cached), "stopped": ratio_of(stopped, cached)}
        points[way.name or "as the cluster is"] = {
            **{name: ratio.shown() for name, ratio in ratios.items() if ratio},
            "nics": over_nics(outcomes, *way.cases()[:2]),
        }
    about = "mean TTFT over AllCache by what loads cross, all seeds"
    return {KEY: {"told": about, "points": points}} if points else {}


def over_nics(outcomes: Outcomes, *cases: Case) -> str:
    """Return the share of each system's loaded bytes that crossed NICs."""
    parts = []
    for case in cases:
        if shares := NIC_SHARE.of(outcomes.of(case)):
            parts.append(f"{mean_of(shares).value:.0%} of the bytes that {case.label} loaded crossed NICs")
    return joined(*parts)
