"""AzureCode with no decode instance kept, or no instance: readings beside Figure 17 and version 1.

Neither paper says how many instances stay while nothing arrives. The figures that are judged keep two of each
role, as the artefact does for 8B. What the papers say of fewer:

* "Even if no instance is deployed, multicast can be done with O(1) host caching" (OSDI 2025, section 1).
* On AzureCode "the decode instances are triggered later. As a result, the slow scale of ServerlessLLM's SSD
  cannot be hidden" (section 6.3).
* "Under light loads we don't need to deploy instances on the GPU" (version 1, of its GPU use on AzureCode).

The second sentence supports the reading without decode instances, the other two also that without instances.
The rows of both stand beside the paper's numbers and are never counted.
"""

from collections.abc import Sequence
from dataclasses import replace
from math import inf
from typing import Final

from experiments.blitzscale.more_set_ups import v1_set_ups, v1_systems
from experiments.blitzscale.set_ups import AZURE_CODE_8B, BLITZ, all_systems
from experiments.common.compare import joined, ratio_row
from experiments.common.figure import FigureRow
from experiments.common.outcomes import (
    GPU_TIME,
    MEAN_TBT,
    MEAN_TTFT,
    P99_TBT,
    P99_TTFT,
    Metric,
    Outcomes,
    summary_metric,
)
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, shorter

# The tails of what the papers call time between tokens: of every gap, and of the mean gap of a request.
TTFT: Final = (
    MEAN_TTFT,
    summary_metric("P50 TTFT", "ms", "ttft_ms.p50"),
    summary_metric("P95 TTFT", "ms", "ttft_ms.p95"),
    P99_TTFT,
)
TBT: Final = (
    MEAN_TBT,
    summary_metric("P50 TBT", "ms", "itl_ms.p50"),
    summary_metric("P95 TBT", "ms", "itl_ms.p95"),
    P99_TBT,
    summary_metric("mean TBT of a request, mean", "ms", "tpot_ms.mean"),
    summary_metric("mean TBT of a request, P50", "ms", "tpot_ms.p50"),
    summary_metric("mean TBT of a request, P95", "ms", "tpot_ms.p95"),
    summary_metric("mean TBT of a request, P99", "ms", "tpot_ms.p99"),
)
_BASES: Final = ("serverlessllm", "allcache")
# Section 6.1 of OSDI 2025 and of version 1; none says of which statistic.
_SAID: Final[dict[str, tuple[Claim | None, Claim | None]]] = {
    "serverlessllm": (shorter(47, 75), shorter(94.1)),
    "allcache": (None, shorter(88.3)),
}
_V1_SAID: Final[tuple[tuple[Metric, Claim], ...]] = (
    (MEAN_TTFT, shorter(55.5)),
    (MEAN_TBT, shorter(57.8)),
    (TBT[-1], shorter(57.8)),
    (GPU_TIME, shorter(40, comparative="lower")),
)
_UNSAID: Final = Claim("no number", -inf, 1.0)


def readings(set_up: SetUp) -> tuple[SetUp, SetUp]:
    """The set-up with no decode instance kept, and with no instance kept; everything else as it is."""
    prefill, decode = set_up.prefill, set_up.decode
    without_decode = replace(
        set_up, name=f"{set_up.name}, no decode instance kept", decode=(0, decode[1]), bursts_s=()
    )
    none = replace(without_decode, name=f"{set_up.name}, no instance kept", prefill=(0, prefill[1]))
    return without_decode, none


def code_cases() -> tuple[Case, ...]:
    """BlitzScale, ServerlessLLM as compared and AllCache, in both readings of Figure 17's AzureCode."""
    return tuple(case for set_up in readings(AZURE_CODE_8B) for case in _systems(set_up).values())


def code_rows(outcomes: Outcomes) -> list[FigureRow]:
    """Means and tails over ServerlessLLM and AllCache, with the same ratio of the set-up that is judged."""
    rows, judged = [], _systems(AZURE_CODE_8B)
    for set_up in readings(AZURE_CODE_8B):
        systems = _systems(set_up)
        for base in _BASES:
            for metrics, claim in zip((TTFT, TBT), _SAID[base], strict=True):
                rows += [
                    _row(outcomes, metric, claim or _UNSAID, (systems[BLITZ], systems[base]),
                         (judged[BLITZ], judged[base]))
                    for metric in metrics
                ]  # fmt: skip
    return rows


def v1_cases() -> tuple[Case, ...]:
    """BlitzScale and ServerlessLLM on physical and logical hosts, in both readings of version 1."""
    return tuple(case for set_up in readings(_v1_code()) for case in v1_systems(set_up)[:3])


def v1_rows(outcomes: Outcomes) -> list[FigureRow]:
    """What version 1 says of AzureCode, over ServerlessLLM with both kinds of hosts."""
    judged_ours, *judged_others = v1_systems(_v1_code())[:3]
    rows = []
    for set_up in readings(_v1_code()):
        ours, *others = v1_systems(set_up)[:3]
        for metric, claim in _V1_SAID:
            rows += [
                _row(outcomes, metric, claim, (ours, other), (judged_ours, judged_other))
                for other, judged_other in zip(others, judged_others, strict=True)
            ]
    return rows


def _v1_code() -> SetUp:
    return v1_set_ups()[1]


def _systems(set_up: SetUp) -> dict[str, Case]:
    systems = all_systems(set_up)
    return {name: systems[name] for name in (BLITZ, *_BASES)}


def _row(
    outcomes: Outcomes, metric: Metric, claim: Claim, pair: Sequence[Case], judged: Sequence[Case]
) -> FigureRow:
    """The ratio of a pair beside the paper's number, without a verdict; ``judged``: the pair that has one."""
    ours, other = pair
    name = f"{ours.set_up.name}: {metric.label} over {other.label}"
    row = ratio_row(outcomes, name, claim, metric, ours=ours, other=other)
    if not row.ours:
        return replace(row, kind="own_analysis")
    compared = ratio_row(outcomes, name, claim, metric, ours=judged[0], other=judged[1])
    beside = f"{compared.ours or 'no number'} as judged, with at least 2 of each role"
    why = joined("another reading, never counted", beside, row.why)
    return replace(row, verdict="not comparable", kind="own_analysis", why=why, judged=None)
