"""The headlines of BlitzScale's first version (2024): its models, its rate rule, copies that live 300 s."""

from typing import Any, Final

from experiments.blitzscale.kept import v1_cases, v1_rows
from experiments.blitzscale.levels import inputs, levels
from experiments.blitzscale.load_plans import chain_7b, play, ssd_7b
from experiments.blitzscale.more_set_ups import v1_set_ups, v1_systems
from experiments.common.compare import pointed, ratio_row
from experiments.common.figure import Figure, FigureRow, Key
from experiments.common.outcomes import GPU_TIME, MEAN_TBT, MEAN_TTFT, P99_TTFT, Metric, Outcomes
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, about, judged, shorter, times
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.spec import at_efficiency
from hwmodels.topology.topology import build

KEY: Final[Key] = ("efficiency", "v1: 7B to 16 GPUs")
_TTFT: Final = (86.1, 55.5, 31.0)
_TBT: Final = (18.1, 57.8, 1.1)
_SCALED_MS: Final = {"BlitzScale": 1_100.0, "S-LLM": 3_100.0}
_EFFICIENCIES: Final[dict[str, float | None]] = {"shipped": None, "0.77": 0.77, "1.0": 1.0}
_BYTES_7B: Final = 14e9


def cases() -> tuple[Case, ...]:
    """Every system of the three workloads, and of AzureCode with fewer instances kept."""
    return (*(system for set_up in v1_set_ups() for system in v1_systems(set_up)), *v1_cases())


def v1(outcomes: Outcomes) -> Figure:
    """TTFT and TBT over ServerlessLLM in both readings of a host, GPU use, DistServe, and 7B to 16 GPUs."""
    rows: list[FigureRow] = []
    for place, set_up in enumerate(v1_set_ups()):
        rows += _over_serverless(outcomes, set_up, place)
    rows += _code(outcomes, v1_set_ups()[1])
    rows += v1_rows(outcomes)
    loads_ms = load_times()
    rows += [_scaling_row(system, name, ms) for (system, name), ms in loads_ms.items()]
    sentences = (
        *inputs(outcomes, cases()),
        "rate: the busiest 5 s are nine tenths of what the most prefill instances can do; no mean term",
        "logical hosts: its text groups 4 GPUs to a host and says 16 hosts for 70B; 32 GPUs make 8",
    )
    data: Any = {f"{system}, efficiency {name}": ms for (system, name), ms in loads_ms.items()}
    return Figure(
        "v1",
        "BlitzScale, version 1: headlines",
        tuple(rows),
        panels=(),
        inputs=sentences,
        levels=levels(outcomes, cases()),
        sweeps={KEY: {"told": "ms until all 16 instances have everything", "points": data}},
    )


def _over_serverless(outcomes: Outcomes, set_up: SetUp, place: int) -> list[FigureRow]:
    ours, *bases = v1_systems(set_up)[:3]
    wanted: tuple[tuple[Metric, Claim], ...] = (
        (MEAN_TTFT, shorter(_TTFT[place])),
        (MEAN_TBT, shorter(_TBT[place])),
    )
    return [
        ratio_row(
            outcomes,
            f"{set_up.name}: {metric.label} over {other.label}",
            claim,
            metric,
            ours=ours,
            other=other,
        )
        for metric, claim in wanted
        for other in bases
    ]


def _code(outcomes: Outcomes, set_up: SetUp) -> list[FigureRow]:
    """GPU use and the static systems, which it shows for AzureCode."""
    ours, physical, logical, half, full = v1_systems(set_up)
    wanted: tuple[tuple[Metric, Claim, Case], ...] = (
        (GPU_TIME, shorter(40, comparative="lower"), physical),
        (GPU_TIME, shorter(40, comparative="lower"), logical),
        (MEAN_TTFT, shorter(35), half),
        (MEAN_TBT, shorter(41), half),
        (P99_TTFT, times(1.02, "2 % more"), full),
    )
    return [
        ratio_row(
            outcomes, f"{set_up.name}: {metric.label} over {base.label}", claim, metric, ours=ours, other=base
        )
        for metric, claim, base in wanted
    ]


def load_times() -> dict[tuple[str, str], float]:
    """(system, efficiency) -> ms until 16 GPUs have 7B, which one GPU or one host's memory has at first."""
    spec, loads_ms = load_cluster("blitz_a"), {}
    for system, plans in (("BlitzScale", chain_7b), ("S-LLM", ssd_7b)):
        for name, efficiency in _EFFICIENCIES.items():
            topology = build(spec if efficiency is None else at_efficiency(efficiency, spec))
            arrivals_s = [at_s for plan in play(topology, plans(topology)) for at_s in plan.values()]
            loads_ms[system, name] = max(arrivals_s) * 1e3
    return loads_ms


def _scaling_row(system: str, name: str, ms: float) -> FigureRow:
    paper_ms = _SCALED_MS[system]
    claim = about(paper_ms, f"{paper_ms:,.0f} ms")
    why = "8 instances over one NIC of 100 Gbps, layer by layer, 7 over NVLink"
    if system == "S-LLM":
        gbps = _BYTES_7B * 8 / (paper_ms / 1e3) / 1e9
        why = (
            f"8 instances on the other host read its SSD at 10 Gbps a GPU: 14 GB are 11.2 s, and "
            f"{paper_ms:,.0f} ms would be {gbps:.0f} Gbps: it does not follow from Table 1"
        )
    name = f"7B to 16 GPUs, {system}, efficiency {name}"
    return pointed(judged(name, claim, ms, f"{ms:,.0f} ms", why=why), KEY)
