"""docs/explanation/SILICON.md, its lab note and what is printed: errors beside AIConfigurator's, coverage."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import Final

from benchmarks.silicon.fit import with_experts
from benchmarks.silicon.judged import METRICS, Errors, by, clients, of_ours, of_theirs
from benchmarks.silicon.left_out import LeftOut
from benchmarks.silicon.ranges import impossible, inside, width, with_ranges
from benchmarks.silicon.rows import MODELS
from benchmarks.silicon.runs import SHIPPED, Result
from hwmodels.catalogue import load_llm
from hwmodels.step_times.engine_terms import engine_terms
from hwmodels.step_times.library_step import LibraryTerms
from hwmodels.step_times.step_error import StepError

_KERNELS: Final = (
    "kernels that the library lacks: norms of queries and keys, over all heads with an exchange between the "
    "ranks, rotary embedding, quantisation"
)
_GRAPHS: Final = "its tables were taken launch by launch, and vLLM replays decode steps as CUDA graphs"
_BETWEEN_STEPS: Final = "scheduler and sampler run between its steps, not beside them"
_BESIDE: Final = (
    "None depends on clients, lengths or a single model. Beside them stands what a harness did: the runs of "
    "the AIConfigurator team are loaded with 2,048 tokens a step, as 45 rows of Qwen3-32B say; that is not "
    "left out when these rows are judged."
)
_PREFACE: Final = """# Measured runs of the field

{head}

How far simulations are from measured runs of vLLM that others published (most of them InferenceX), beside
AIConfigurator 0.12.0 on the same rows. `python -m benchmarks.silicon rows=FILE left_out=true page=true`
writes this page and its [lab note](../contributing/lab/SILICON.md) from a file in the form of
AIConfigurator's table of measured runs.

Each row is loaded as its client did: C clients at once, 10 C requests, uniform lengths from 0.8 of the
stated ones, 2 C requests before from 2026-01-21 on; means of TTFT and TPOT as the client counts them. Step
times are those of `aiconfigurator-core` ([STEP_TIMES](STEP_TIMES.md)); scheduler, memory and front end are
the simulator's. Every row is judged with constants that were fitted on rows of other models or systems.

Errors: median size / mean size / median with sign (above 0: the simulation is too slow).
"""
_LAB_PREFACE: Final = """# Lab note: measured runs of the field

What `python -m benchmarks.silicon rows=FILE left_out=true page=true` prints;
[SILICON](../../explanation/SILICON.md) says how rows are loaded and has the main tables. Errors: median
size / mean size / median with sign (above 0: the simulation is too slow).
"""
_OTHERS: Final = """## Limits

* Only rows of vLLM are run ([all rows](../contributing/lab/SILICON.md#all-rows)).
* The kinds of load are those of the file: C clients of one length each, no arrivals over time, no scaling.
* The [lab note](../contributing/lab/SILICON.md) has errors by load, all rows with the shipped constants, and
  the [constants](../contributing/lab/SILICON.md#constants) with and without each model.
"""
_LEFT_OUT: Final = "| left out | query norms | prompts | latent | range of prompts | range of decodes |"
_RANGES: Final = """## Ranges

Every run has a range ([HOW_FAR_OFF]({how_far_off})). For these step times it comes from the errors of such
rows: 90 % of measured over simulated means lie between its two factors, each (model, system) weighing the
same: TTFT for steps with prompts, TPOT for steps that only decode, without experts and with them. Here the
factors are those of rows of other models or systems. Some rows cannot have computed what they state, for
products alone would need more than 0.6 of the datasheet's fastest rate (repeated prompts and a prefix cache
would explain it); no factor is taken from any of their model on their system: {impossible}."""
# Name, a model of the kind, phase of its errors, what it is from.
_OF_RANGES: Final = (
    ("steps with prompts", "llama3_8b", "prefill", "TTFT"),
    ("steps that decode, without experts", "llama3_8b", "decode", "TPOT"),
    ("steps that decode, with experts", "qwen3_30b_a3b", "decode", "TPOT"),
)
_HEAD: Final = ["| | rows | TTFT | AIConfigurator | TPOT | AIConfigurator |", "|---|---|---|---|---|---|"]
_KINDS: Final = {
    "engine": lambda result: result.row.backend,
    "GPU": lambda result: result.row.system,
    "model": lambda result: result.row.model,
    "precision": lambda result: result.row.precision or "as published",
    "load": clients,
}


def _text(found: Errors | None) -> str:
    if found is None:
        return "none"
    return f"{found.median:.1%} / {found.mean:.1%} / {found.bias:+.0%}"


def table(groups: Mapping[str, Sequence[Result]], refused_too: bool = False) -> list[str]:
    """A row for each group: median / mean size of the error / median with sign."""
    lines = list(_HEAD)
    for name, results in groups.items():
        ours = [of_ours(results, metric, refused_too) for metric in METRICS]
        theirs = [of_theirs(results, metric, refused_too) for metric in METRICS]
        count = ours[0].rows if ours[0] else 0
        cells = [_text(part) for pair in zip(ours, theirs) for part in pair]
        lines.append(f"| {name} | {count} of {len(results)} | {' | '.join(cells)} |")
    return lines


def coverage(results: Sequence[Result]) -> list[str]:
    """How many rows ran, and each reason why others did not, with its number of rows."""
    refused = by((result for result in results if result.refused), lambda result: result.refused)
    ran = sum(not result.refused for result in results)
    lines = [f"{ran} of {len(results)} rows ran ({ran / len(results):.0%})."]
    if refused:
        lines += ["", "| rows | not run because |", "|---|---|"]
        ordered = sorted(refused.items(), key=lambda item: -len(item[1]))
        lines += [f"| {len(rows)} | {reason} |" for reason, rows in ordered]
    return lines


def page(own: LeftOut) -> str:
    """The page: rows of vLLM with constants fitted without their model on their system, and their ranges."""
    lines = report("Errors", own.results, ("GPU", "model", "precision"))
    parts = [_PREFACE.format(head=head_line(own.results)), *lines, "", *ranges(own.results, each=False)]
    return "\n".join([*parts, "", _OTHERS])


def head_line(results: Sequence[Result]) -> str:
    """The page in one sentence: median errors of the rows that ran, and AIConfigurator's."""
    ours = [found for metric in METRICS if (found := of_ours(results, metric))]
    theirs = [found for metric in METRICS if (found := of_theirs(results, metric))]
    told = [" and ".join(f"{found.median:.1%}" for found in both) or "not known" for both in (ours, theirs)]
    return (
        f"On {ours[0].rows if ours else 0} rows the median errors of mean TTFT and TPOT are {told[0]}; "
        f"AIConfigurator's, on {theirs[0].rows if theirs else 0} of them, are {told[1]}."
    )


def lab_note(text: str) -> str:
    """The note behind the page, from what is printed."""
    return f"{_LAB_PREFACE}\n{text}\n"


def report(title: str, results: Sequence[Result], kinds: Collection[str] = tuple(_KINDS)) -> list[str]:
    """Errors of all rows, of the rows that AIConfigurator answers, with refusals, and by ``kinds``."""
    answered = [result for result in results if result.row.aic_ttft_ms is not None]
    whole = {"rows that ran": results, "of them those that AIConfigurator answers": answered}
    lines = [f"## {title}", "", *table(whole), "", "With every refused row as 100 % wrong:", ""]
    lines += [*table({"all rows": results}, refused_too=True), "", *coverage(results)]
    ran = [result for result in results if not result.refused]
    for kind in kinds:
        lines += ["", f"By {kind}:", "", *table(by(ran, _KINDS[kind]))]
    return lines


def ranges(results: Sequence[Result], each: bool = True) -> list[str]:
    """How many measured means lie in the range of their run, and how wide; of ``each`` model on a system."""
    have = with_ranges(results)
    possible = [result for result in have if result.row.group not in impossible(have)]
    mixtures = {row.id for row in with_experts(result.row for result in have)}
    groups = {
        "rows that ran": have,
        "of them those that can have computed what they state": possible,
        "without experts": [result for result in possible if result.row.id not in mixtures],
        "with experts": [result for result in possible if result.row.id in mixtures],
    }
    if each:
        groups |= by(possible, lambda result: f"{result.row.model} on {result.row.system}")
    never = ", ".join(f"{model} on {system}" for model, system in sorted(impossible(have))) or "none here"
    lines = [
        _RANGES.format(
            impossible=never,
            how_far_off="../../explanation/HOW_FAR_OFF.md" if each else "HOW_FAR_OFF.md",
        ),
        "",
        "| | TTFT inside | high / low | TPOT inside | high / low |",
        "|---|---|---|---|---|",
    ]
    return [*lines, *(f"| {name} | {_ranges_of(group)} |" for name, group in groups.items() if group)]


def _ranges_of(results: Sequence[Result]) -> str:
    cells = []
    for metric in METRICS:
        hits = sum(inside(result, metric) for result in results)
        cells += [
            f"{hits} of {len(results)} ({hits / len(results):.0%})", f"x{width(results, metric):.2f}",
        ]  # fmt: skip
    return " | ".join(cells)


def constants(own: LeftOut) -> list[str]:
    """The constants as shipped, as all rows give them, and as fitted without each model on a system."""
    lines = [
        "## Constants",
        "",
        "| constant | shipped | these rows | reason | from |",
        "|---|---|---|---|---|",
    ]
    lines += [f"| {' | '.join(cells)} |" for cells in _rows_of_constants(own.of_all)]
    lines += [
        "",
        _BESIDE,
        "",
        "Without a model on a system they are:",
        "",
        _LEFT_OUT,
        "|---|---|---|---|---|---|",
    ]
    ran = {result.row.group for result in own.results if not result.refused}
    for (model, system), terms in sorted((group, own.terms[group]) for group in ran):
        cells = [f"{model} on {system}", *_layers(terms.library)]
        found = terms.library.errors(load_llm(MODELS[model]))
        lines.append(f"| {' | '.join([*cells, _factors(found.prefill), _factors(found.decode)])} |")
    return lines


def _rows_of_constants(fitted: LibraryTerms) -> Iterator[tuple[str, ...]]:
    every, prompts, graphs = zip(_layers(SHIPPED.library), _layers(fitted), strict=True)
    yield "per layer with experts and norms of queries, every step", *every, _KERNELS, "rows with both"
    yield "per layer with experts, steps with prompts", *prompts, "launches outside CUDA graphs", "the same"
    yield "less per layer with latent attention, steps that decode", *graphs, _GRAPHS, "rows with it"
    yield (
        "per sequence and step, vLLM 0.12 to 0.14",
        f"{engine_terms('vllm', '0.12')['overhead']['per_sequence_s'] * 1e6:g} us and the sort of logits",
        "not fitted again",
        _BETWEEN_STEPS,
        "rows of vLLM 0.12",
    )
    for name, llm, phase, metric in _OF_RANGES:
        both = (getattr(terms.errors(load_llm(llm)), phase) for terms in (SHIPPED.library, fitted))
        yield (
            f"range of {name} (2)",
            *map(_factors, both),
            f"errors of mean {metric}",
            "rows that can have computed what they state",
        )


def _layers(terms: LibraryTerms) -> tuple[str, str, str]:
    seconds = terms.query_norm_s, terms.expert_layer_prompt_s, terms.latent_graph_s
    norm, prompt, graph = (f"{second * 1e6:g} us" for second in seconds)
    return norm, prompt, graph


def _factors(error: StepError) -> str:
    return f"x{error.low:.2f} to x{error.high:.2f}"
