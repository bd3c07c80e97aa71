"""Figures 17 and 18: three workloads, every system, the same arrivals.

The scaling policy is the same for all elastic systems. BlitzScale stands here without live scaling.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

from experiments.reproduce.compare import joined, measured, order_row, over_time, ratio_row
from experiments.reproduce.figure import Figure, Line, Panel, Row
from experiments.reproduce.outcomes import (
    GPU_TIME,
    INSTANCES,
    LOAD_TIME,
    LOADS,
    LONGEST_LOAD,
    MEAN_TBT,
    MEAN_TTFT,
    MISS_RATE,
    P99_TBT,
    P99_TTFT,
    Metric,
    Outcome,
    Outcomes,
    violations,
)
from experiments.reproduce.paired import mean_of
from experiments.reproduce.rates import kv_arithmetic
from experiments.reproduce.set_ups import BLITZ, WITHOUT_LIVE, Case, SetUp, all_systems, serverless, workloads
from experiments.reproduce.verdict import Claim, about, at_most, judged, not_comparable, shorter, times
from experiments.table import number

Statement = tuple[str, Metric, Claim]

# BlitzScale (OSDI 2025), Figures 17 and 18, of BlitzScale over the system named.
_BURST: Final[tuple[Statement, ...]] = (
    ("serverlessllm", MEAN_TTFT, shorter(75.5)),
    ("allcache", MEAN_TTFT, shorter(21.1)),
    ("serverlessllm", MEAN_TBT, shorter(7.4)),
    ("allcache", MEAN_TBT, shorter(5.1)),
)
_CODE: Final[tuple[Statement, ...]] = (
    ("serverlessllm", MEAN_TTFT, shorter(47, 75)),
    ("serverlessllm", MEAN_TBT, shorter(94.1)),
    ("allcache", MEAN_TBT, shorter(88.3)),
)
_CONV: Final[tuple[Statement, ...]] = (
    ("serverlessllm", MEAN_TTFT, shorter(48.1)),
    ("serverlessllm", MEAN_TBT, shorter(1.8)),
    ("allcache", MEAN_TBT, shorter(0.7)),
    ("serverlessllm", GPU_TIME, shorter(19.46, what="less")),
    ("distserve_full", GPU_TIME, times(0.5, "50 % of it")),
    ("distserve_half", MEAN_TTFT, shorter(95.8)),
)
_OBJECTIVE: Final = 5.0  # times the mean of distserve_full: "5x average latency" of section 6.2
# Section 6 and the artefact's for 8B and 72B.
_LIMITS_MS: Final = ((450.0, 150.0), (1250.0, 200.0))
_SHARES: Final = {
    BLITZ: at_most(0.001, "as distserve_full: none"),
    "serverlessllm": about(0.187, "18.7 %"),
}
_DRAWN: Final = (BLITZ, "serverlessllm", "allcache", "distserve_full", "distserve_half")
_NO_SHARE: Final = "no share given"
_LEVELS: Final = {
    "TTFT mean / P99 (ms)": (MEAN_TTFT, P99_TTFT),
    "TBT mean / P99 (ms)": (MEAN_TBT, P99_TBT),
    "GPU s": (GPU_TIME,),
    "instances": (INSTANCES,),
    "loads / mean / longest (s)": (LOADS, LOAD_TIME, LONGEST_LOAD),
    "misses": (MISS_RATE,),
}


def cases() -> tuple[Case, ...]:
    """Every system in every workload."""
    return tuple(one for set_up in workloads() for one in all_systems(set_up).values())


def compared(outcomes: Outcomes) -> Figure:
    """The paper's statements, the order of systems, service objectives; and what every system measured."""
    rows: list[Row] = []
    for set_up in workloads():
        systems = all_systems(set_up)
        rows += _statements(outcomes, set_up, systems)
        rows += _objectives(outcomes, set_up, systems)
    panels = [panel for set_up in workloads() if (panel := _panel(outcomes, set_up)) is not None]
    title = "Figures 17 and 18: three workloads"
    return Figure("workloads", title, tuple(rows), tuple(panels), _inputs(outcomes), _levels(outcomes))


def _statements(outcomes: Outcomes, set_up: SetUp, systems: Mapping[str, Case]) -> list[Row]:
    rows = [_over(outcomes, set_up, systems, *statement) for statement in known_of(set_up)]
    rows += _other_readings(outcomes, set_up, systems)
    for bases in (("serverlessllm",), ("allcache", "serverlessllm")):
        ordered = [systems[name] for name in (BLITZ, *bases)]
        name = f"{set_up.name}: order of mean TTFT, {len(ordered)} systems"
        row = order_row(outcomes, name, MEAN_TTFT, ordered)
        rows.append(replace(row, stand_in=joined(row.stand_in, WITHOUT_LIVE)))
    return rows


def _other_readings(outcomes: Outcomes, set_up: SetUp, systems: Mapping[str, Case]) -> list[Row]:
    """What is said of ServerlessLLM and of GPU time, for its other readings and where no number is given."""
    said = known_of(set_up)
    claim = next(one for base, metric, one in said if base == "serverlessllm" and metric is MEAN_TTFT)
    wanted = [(one.label, MEAN_TTFT, claim) for one in serverless(set_up)[1:]]
    if not any(base == "distserve_full" for base, _, _ in said):
        wanted.append(("distserve_full", GPU_TIME, at_most(1.0, "below it")))
    return [_over(outcomes, set_up, systems, *one) for one in wanted]


def known_of(set_up: SetUp) -> tuple[Statement, ...]:
    """What the paper says of this workload."""
    return {"AzureConv": _CONV, "AzureCode": _CODE, "BurstGPT": _BURST}[set_up.name.partition("/")[0]]


def _over(
    outcomes: Outcomes, set_up: SetUp, systems: Mapping[str, Case], base: str, metric: Metric, claim: Claim
) -> Row:
    name = f"{set_up.name}: {metric.label} over {base}"
    return ratio_row(outcomes, name, claim, metric, systems[BLITZ], systems[base], WITHOUT_LIVE)


def _objectives(outcomes: Outcomes, set_up: SetUp, systems: Mapping[str, Case]) -> list[Row]:
    """Figure 18 gives the shares of 24B under one objective; the others show what hangs on its reading."""
    rows = []
    for name, claim in _SHARES.items():
        one = systems[name]
        for base in ("distserve_full", BLITZ):
            label = f"{set_up.name}: requests beyond 5x the mean of {base}, {name}"
            said = claim if set_up.name.startswith("AzureConv") else None
            if why_not := outcomes.why_not(one, systems[base]):
                rows.append(not_comparable(label, claim.text, set_up.stand_in, why_not))
                continue
            shares = missed(outcomes.of(one), outcomes.of(systems[base]))
            rows.append(_share(outcomes, label, said, one, shares))
        for ttft_ms, tbt_ms in _LIMITS_MS:
            label = f"{set_up.name}: requests beyond {ttft_ms:g}/{tbt_ms:g} ms, {name}"
            if why_not := outcomes.why_not(one):
                rows.append(not_comparable(label, _NO_SHARE, set_up.stand_in, why_not))
                continue
            shares = [violations(run, ttft_ms, tbt_ms) for run in outcomes.of(one)]
            rows.append(_share(outcomes, label, None, one, shares))
    return rows


def _share(outcomes: Outcomes, name: str, claim: Claim | None, one: Case, shares: Sequence[float]) -> Row:
    """claim: None where the paper gives no share."""
    found, why = mean_of(shares), measured(outcomes, P99_TTFT, one)
    shown = found.shown(_percent)
    stand_in = joined(one.set_up.stand_in, WITHOUT_LIVE if one.label == BLITZ else "")
    if claim is None:
        why = f"the paper gives no share for this workload and objective: {shown}; {why}"
        return Row(name, _NO_SHARE, shown, None, "not comparable", stand_in, why)
    return judged(name, claim, found.value, shown, stand_in, why)


def missed(ours: Sequence[Outcome], base: Sequence[Outcome]) -> list[float]:
    """Seed by seed: share of requests beyond five times the mean TTFT or TBT of a base."""
    shares = []
    for one, other in zip(ours, base, strict=True):
        ttft_ms, tbt_ms = other.at("ttft_ms.mean"), other.at("itl_ms.mean")
        limits = (float("inf") if ms is None else _OBJECTIVE * ms for ms in (ttft_ms, tbt_ms))
        shares.append(violations(one, *limits))
    return shares


def _levels(outcomes: Outcomes) -> tuple[Mapping[str, str], ...]:
    """One line per workload and system that ran: means over seeds."""
    lines: list[Mapping[str, str]] = []
    for set_up in workloads():
        systems = all_systems(set_up)
        full = outcomes.of(systems["distserve_full"])
        for label, one in systems.items():
            if not (found := outcomes.of(one)):
                continue
            line = {"set-up": set_up.name, "system": label}
            for title, metrics in _LEVELS.items():
                line[title] = " / ".join(_level(metric, found) for metric in metrics)
            line["beyond 5x full"] = _percent(mean_of(missed(found, full)).value) if full else ""
            lines.append(line)
    return tuple(lines)


def _level(metric: Metric, found: Sequence[Outcome]) -> str:
    values = metric.of(found)
    return number(mean_of(values).value if values else None)


def _inputs(outcomes: Outcomes) -> tuple[str, ...]:
    """The rate rule's terms per workload and seed (once where all seeds agree), and KV memory."""
    told: list[str] = []
    for set_up in workloads():
        ran = [found for one in all_systems(set_up).values() if (found := outcomes.of(one))]
        told += dict.fromkeys(one.told for one in (ran[0] if ran else ()))
        told += [kv_arithmetic(set_up)] if ran else []
    return tuple(told)


def _panel(outcomes: Outcomes, set_up: SetUp) -> Panel | None:
    """Mean TTFT by arrival, first seed."""
    lines = []
    for label in _DRAWN:
        one = all_systems(set_up)[label]
        if outcomes.of(one):
            x, y = over_time(outcomes, one)
            lines.append(Line(label, x, y))
    if not lines:
        return None
    return Panel(set_up.name, "time of arrival (s)", "mean TTFT (ms) per 5 s", tuple(lines), log_y=True)


def _percent(share: float) -> str:
    return f"{share:.2%}"
