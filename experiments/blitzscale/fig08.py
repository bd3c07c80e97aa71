"""Figure 8: what it costs to load from an instance whose outgoing link carries KV.

First the fabric alone (the time of a load beside KV of a share u of the link), then runs of the planner that
ignores KV beside the one that does not.
"""

from typing import Final

from experiments.blitzscale.load_plans import nic_bytes_per_s, slowdown
from experiments.blitzscale.set_ups import (
    AZURE_CODE_8B,
    AZURE_CONV_7B,
    AZURE_CONV_24B,
    burst_72b,
    source_choice,
)
from experiments.common.compare import pointed, ratio_row
from experiments.common.figure import Figure, FigureRow, Key, Panel, PlotLine
from experiments.common.outcomes import LOAD_TIME, LONGEST_LOAD, P99_TBT, Outcomes
from experiments.common.rates import estimates_of
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import at_most, judged, times
from hwmodels.catalogue import load_llm

SHARES: Final = tuple(tenth / 10 for tenth in range(10))
KEY: Final[Key] = ("KV share", "Figure 8")
# BlitzScale (OSDI 2025), Figure 8. The paper's 1.5 is what fair sharing gives at u = 1/3.
_SCALE_TIME: Final = "1.5 times"
_TAIL_TBT: Final = "+50 %"


def shared(share: float) -> float:
    """Time of a load over its time alone beside KV of that share of a link divided fairly."""
    return 1 / (1 - min(share, 0.5))


def cases() -> tuple[Case, ...]:
    """The planner without pruning, and with it; then the same with every GPU on a host of its own."""
    return (*source_choice(AZURE_CONV_7B), *source_choice(AZURE_CONV_7B, beside=False))


def fig8(outcomes: Outcomes) -> Figure:
    """The curve, each model's place on it, and the runs."""
    models = [(name, kv_share(set_up), set_up) for name, set_up in _models()]
    rows = [_at_a_third(), *(_of_model(name, share, set_up) for name, share, set_up in models), _pruned_row()]
    for beside in (True, False):
        rows += _runs(outcomes, *source_choice(AZURE_CONV_7B, beside))
    inputs = tuple(
        f"{name} at full prefill sends KV over {share:.1%} of its NICs" for name, share, _ in models
    )
    title = "Figure 8: a source whose outgoing link carries KV"
    data = {"told": "time of a load over its time alone, by the share of its way out that KV takes"}
    points = {f"{share:g}": slowdown(share) for share in SHARES} | {
        name: slowdown(share) for name, share, _ in models
    }
    return Figure(
        "fig8",
        title,
        tuple(rows),
        panels=(_curve(models),),
        inputs=inputs,
        sweeps={KEY: data | {"points": points}},
    )


def _runs(outcomes: Outcomes, naive: Case, pruned: Case) -> list[FigureRow]:
    name = f"{naive.set_up.name}: {naive.label} over {pruned.label}"
    claims = ((LOAD_TIME, _SCALE_TIME), (LONGEST_LOAD, _SCALE_TIME), (P99_TBT, _TAIL_TBT))
    return [
        ratio_row(outcomes, f"{name}, {metric.label}", times(1.5, text), metric, ours=naive, other=pruned)
        for metric, text in claims
    ]


def kv_share(set_up: SetUp) -> float:
    """Share of an instance's NICs that the KV of its own full prefill takes."""
    tp, estimates = int(set_up.word("model.tp", "1")), estimates_of(set_up.words)
    kv_bytes_per_s = estimates.prefill_tokens_per_s * load_llm(set_up.word("model")).kv_bytes_per_token
    return kv_bytes_per_s / (tp * nic_bytes_per_s(set_up.word("cluster")))


def _models() -> tuple[tuple[str, SetUp], ...]:
    set_ups = (AZURE_CONV_7B, AZURE_CODE_8B, AZURE_CONV_24B, burst_72b())
    return tuple((set_up.words[0].removeprefix("model="), set_up) for set_up in set_ups)


def _at_a_third() -> FigureRow:
    ours = slowdown(1 / 3)
    why = f"the formula 1/(1-u) gives {shared(1 / 3):.3f}"
    name, claim = "load beside KV of a third of the link", times(1.5, _SCALE_TIME)
    return pointed(judged(name, claim, ours, f"{ours:.3f}", why=why), KEY)


def _of_model(name: str, share: float, set_up: SetUp) -> FigureRow:
    """Compare the model whose KV can fill a third of its link; the paper has no claim about the others."""
    ours, row = slowdown(share), f"load beside {name} at full prefill"
    why = f"KV takes {share:.1%} of the way out at full prefill, where fair sharing gives {shared(share):.3f}"
    if share < 1 / 3:
        why += "; the paper's 1.5 is u = 1/3"
        return FigureRow(
            name=row,
            paper=_SCALE_TIME,
            ours=f"{ours:.3f}",
            ratio=None,
            verdict="not comparable",
            stand_in=set_up.stand_in,
            why=why,
            kind="paper_number",
        )
    claim = times(1.5, _SCALE_TIME)
    return pointed(judged(row, claim, ours, f"{ours:.3f}", stand_in=set_up.stand_in, why=why), KEY)


def _pruned_row() -> FigureRow:
    ours = slowdown(0.5, pruned=True)
    claim = at_most(1.001, "no interference (ways in and out are apart)", "paper_direction")
    why = "KV of half a link into the source's NIC while parameters leave it"
    return pointed(judged("load from a decode instance", claim, ours, f"{ours:.3f}", why=why), KEY)


def _curve(models: list[tuple[str, float, SetUp]]) -> Panel:
    lines = [
        PlotLine("on the fabric", SHARES, [slowdown(share) for share in SHARES], "s"),
        PlotLine("1/(1-u), 2 from u = 1/2 on", SHARES, [shared(share) for share in SHARES], "--"),
        PlotLine(
            "source without KV on its way out", SHARES, [slowdown(share, pruned=True) for share in SHARES]
        ),
        *(PlotLine(name, [share], [slowdown(share)], "o") for name, share, _ in models),
    ]
    return Panel(
        "a load beside KV", "share u of the out-link that KV takes", "time over time alone", tuple(lines)
    )
