"""Figure 10: how long a request stops when it migrates, against copying at a stop and computing again."""

from collections.abc import Sequence
from typing import Final

from experiments.common.compare import judged_row, pointed, values_of
from experiments.common.figure import Figure, FigureRow, Key, MeasuredPoint
from experiments.common.outcomes import Outcomes, summary_metric
from experiments.common.panels import panels_of
from experiments.common.runs import rows_file
from experiments.common.set_up import Case, SetUp
from experiments.common.verdict import Claim, at_most, below
from experiments.llumnix.judge import PointJudge
from servetwin.report.number_text import number

CONTEXTS: Final = (256, 512, 1024, 2048, 4096, 8192)
# Llumnix (OSDI 2024), Figure 10 of the paper, in ms, by context; "live" is its down time.
PRINTED_MS: Final = {
    "LLaMA-7B": {
        "live": (13.0, 12.0, 15.0, 16.0, 22.0, 26.0),
        "stop_and_copy": (68.0, 129.0, 226.0, 451.0, 909.0, 1682.0),
        "recompute": (58.0, 110.0, 220.0, 436.0, 940.0, 1995.0),
    },
    "LLaMA-30B": {
        "live": (33.0, 37.0, 32.0, 33.0, 37.0, 35.0),
        "stop_and_copy": (118.0, 181.0, 272.0, 604.0, 1203.0, 1730.0),
        "recompute": (115.0, 235.0, 443.0, 829.0, 1712.0, 3546.0),
    },
}
_MODELS: Final = {
    "LLaMA-7B": ("cluster=llumnix_2x1", "model=llama_7b"),
    "LLaMA-30B": ("cluster=llumnix_2x4", "model=llama_30b", "model.tp=4"),
}
_WORDS: Final = (
    "engine=vllm_0_2_0", "engine.max_model_len=9000", "engine.max_num_batched_tokens=12800",
    "uncertainty=off",
)  # fmt: skip
_TOKENS: Final = 8192  # of the batch that each instance runs
_BEFORE: Final = 20  # tokens that a request has generated when it leaves, about
_AFTER_S: Final = {"LLaMA-7B": 3.2, "LLaMA-30B": 4.5}
_SHARE, _MS = 0.25, 7.0
_GROWTH: Final = 2.2
KEY: Final[Key] = ("migrations", "Figure 10")
_STAYS: Final = CONTEXTS[:-1]  # with the longest context no other request is left at the source
_SLOWED: Final = 0.03
DOWN: Final = summary_metric("down time", "ms", "migrations.down_ms.max")
STEP: Final = summary_metric("decode step", "ms", "itl_ms.p50")
TOOK: Final = summary_metric("time of the migration", "ms", "migrations.took_ms.max")
LAST: Final = summary_metric("longest latency, of one that stays", "ms", "e2e_ms.max")
STAGES: Final = summary_metric("migrations of two stages", "", "migrations.stages.2")


def _set_up(model: str, context: int) -> SetUp:
    trace = (
        "trace=file",
        f"trace.path={rows_file(Case('', SetUp(f'{model}, {context} tokens', (), ()), ()))}",
    )
    return SetUp(f"{model}, {context} tokens", (*_MODELS[model], *_WORDS), trace, rate="written")


def _rows(context: int) -> str:
    """Requests of one length, 8,192 tokens of them on instance 0 when one leaves.

    What the dispatcher gives to the other instance in turn is short and over by then: the printed times of
    recomputing are those of the prompts alone, without a wait for a step there.
    """
    lines = ["arrival_s,prompt_tokens,output_tokens"]
    for place in range(_TOKENS // context):
        lines += [f"{place * 1e-3:.3f},{context - _BEFORE},600", f"{place * 1e-3 + 5e-4:.4f},64,2"]
    return "\n".join(lines) + "\n"


def migration_case(model: str, mode: str, context: int, slows: bool = True) -> Case:
    """One migration in this mode. ``slows``: a copy slows the steps of both ends."""
    words = (
        "system=vllm", "system/dispatch=round_robin", "system/migration=experiments.llumnix.once:Once",
        f"system.migration.after_s={_AFTER_S[model]}", f"migration.mode={mode}",
        *(() if slows else ("migration.slowdown=0",)),
    )  # fmt: skip
    return Case(
        mode if slows else f"{mode}, nothing slowed",
        _set_up(model, context),
        words,
        once=True,
        optional=True,
        rows=_rows(context),
    )


def cases(_: int) -> tuple[Case, ...]:
    """Three modes, six contexts, two models. Nothing in them is drawn, so each runs once."""
    printed = tuple(
        migration_case(model, mode, context)
        for model in PRINTED_MS
        for mode in PRINTED_MS[model]
        for context in CONTEXTS
    )
    return printed + tuple(
        migration_case(model, "live", context, False) for model in PRINTED_MS for context in _STAYS
    )


def fig10(judge: PointJudge) -> Figure:
    """Compare every printed cell, and the text's claims about down time."""
    rows, numbers = list[FigureRow](), list[MeasuredPoint]()
    for model, printed in PRINTED_MS.items():
        for mode, cells in printed.items():
            for context, paper_ms in zip(CONTEXTS, cells, strict=True):
                migration = migration_case(model, mode, context)
                rows.append(_row(judge.outcomes, migration, paper_ms))
                if values := DOWN.of(judge.outcomes.of(migration)):
                    numbers.append(
                        MeasuredPoint(model, "down_ms", mode, context, tuple(values), paper=paper_ms)
                    )
                if mode == "live" and (values := STEP.of(judge.outcomes.of(migration))):
                    numbers.append(MeasuredPoint(model, "decode_step_ms", mode, context, tuple(values)))
        rows += _text_rows(judge.outcomes, model)
    inputs = (
        "inputs, taken from this figure and so not held against it: the engine's overhead on a decode step, "
        "the rate of Gloo (2.55 GB/s per GPU), the control term of the last stage (10 ms with one GPU, 29 ms "
        "with four), and by how much a copy slows steps (1 %)",
        "source slowed: what the last request that stays loses against a run in which copies slow nothing, "
        "of the migration's time",
        f"bounds: every cell within {_SHARE:.0%} or {_MS:g} ms of the printed one",
        "one request leaves a batch of requests of its length with 8,192 tokens in all; the other instance "
        "is idle, since the printed times of recomputing have no room for a wait there",
    )
    return Figure(
        "fig10",
        "Figure 10: down time of a migration",
        tuple(rows),
        panels=panels_of(numbers, "tokens of context"),
        inputs=inputs,
        sweeps={KEY: _saved(numbers)},
        numbers=tuple(numbers),
    )


def _saved(numbers: Sequence[MeasuredPoint]) -> dict[str, object]:
    points: dict[str, dict[str, float]] = {}
    for point in numbers:
        points.setdefault(f"{point.panel}, {point.metric}, {point.system}", {})[f"{point.x:g}"] = (
            point.values[0]
        )
    return {"told": "ms by model, metric, mode and tokens of context", "points": points}


def _row(outcomes: Outcomes, case: Case, paper_ms: float) -> FigureRow:
    low, high = min(paper_ms * (1 - _SHARE), paper_ms - _MS), max(paper_ms * (1 + _SHARE), paper_ms + _MS)
    claim = Claim(f"{paper_ms:g} ms", low, high, slack=1.0, kind="paper_number", paper=paper_ms)
    return judged_row(
        outcomes,
        f"{case.set_up.name}: {case.label}",
        claim,
        (case,),
        values_of(DOWN, lacks="no migration was committed"),
        why=lambda values: f"{values[0] - paper_ms:+.1f} ms",
        unit="ms",
        key=KEY,
    )


def _text_rows(outcomes: Outcomes, model: str) -> list[FigureRow]:
    """Compare the text's claims: down time is below one decode step, and there are two stages.

    Down time is hardly longer with 32 times the context.
    """
    live = {context: migration_case(model, "live", context) for context in CONTEXTS}
    down, steps, stages = (
        {context: metric.of(outcomes.of(live_case)) for context, live_case in live.items()}
        for metric in (DOWN, STEP, STAGES)
    )
    rows = []
    pairs = [(down[context], steps[context]) for context in CONTEXTS]
    most = [down_ms[0] / step_ms[0] for down_ms, step_ms in pairs if down_ms and step_ms]
    claim = below(1.0, "shorter than one decode step", "paper_direction")
    rows.append(
        _claim_row(f"{model}: longest down time over a decode step", claim, [max(most)] if most else [])
    )
    first, last = down[CONTEXTS[0]], down[CONTEXTS[-1]]
    growth = [last[0] / first[0]] if first and last else []
    claim = at_most(_GROWTH, f"about constant (read as at most {_GROWTH:g} times)", "paper_direction")
    rows.append(_claim_row(f"{model}: down time at 8,192 over 256 tokens", claim, growth))
    two = [float(sum(1 for context in CONTEXTS if stages[context] == [1.0]))]
    claim = Claim("two stages at every length", 6, 6, slack=1.0, kind="paper_direction")
    rows.append(_claim_row(f"{model}: contexts that take two stages", claim, two if most else []))
    claim = at_most(_SLOWED, f"at most 1 % (read as at most {_SLOWED:.0%})", "paper_direction")
    rows.append(_claim_row(f"{model}: source slowed while a request leaves", claim, _slowed(outcomes, model)))
    return rows


def _slowed(outcomes: Outcomes, model: str) -> list[float]:
    """Return by what share migration slows its source, of seed 0, for the context that slows it the most.

    The list is empty if a run is missing.
    """
    shares = list[float]()
    for context in _STAYS:
        runs = (
            outcomes.of(migration_case(model, "live", context)),
            outcomes.of(migration_case(model, "live", context, False)),
        )
        slowed, plain, took = LAST.of(runs[0]), LAST.of(runs[1]), TOOK.of(runs[0])
        if slowed and plain and took:
            shares.append((slowed[0] - plain[0]) / took[0])
    return [max(shares)] if len(shares) == len(_STAYS) else []


def _claim_row(name: str, claim: Claim, values: Sequence[float]) -> FigureRow:
    if not values:
        return claim.not_comparable(name, "", "no migration was committed")
    verdict = claim.verdict(values[0])
    row = FigureRow(
        name=name,
        paper=claim.text,
        ours=number(values[0]),
        ratio=None,
        verdict=verdict,
        why=f"measured {number(values[0])}",
        kind=claim.kind,
    )
    return pointed(row, KEY)
