"""docs/SILICON.md and what is printed: errors beside AIConfigurator's, coverage, refusals, constants."""

from collections.abc import Mapping, Sequence
from typing import Final

from benchmarks.silicon.judged import METRICS, Errors, by, clients, of_ours, of_theirs
from benchmarks.silicon.runs import SHIPPED, Result, Terms

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


def report(title: str, results: Sequence[Result]) -> list[str]:
    """Errors of all rows, of the rows that AIConfigurator answers, with refusals, and by each kind."""
    answered = [result for result in results if result.row.aic_ttft_ms is not None]
    whole = {"rows that ran": results, "of them those that AIConfigurator answers": answered}
    lines = [f"## {title}", "", *table(whole), "", "With every refused row as 100 % wrong:", ""]
    lines += [*table({"all rows": results}, refused_too=True), "", *coverage(results)]
    ran = [result for result in results if not result.refused]
    for kind, name in _KINDS.items():
        lines += ["", f"By {kind}:", "", *table(by(ran, name))]
    return lines


def constants(left_out: Mapping[tuple[str, str], Terms]) -> list[str]:
    """The fitted constants as shipped, and as fitted without each model on a system."""
    lines = [
        "## Constants",
        "",
        "| constant | shipped | reason | fitted on |",
        "|---|---|---|---|",
        f"| per layer with experts, every step | {SHIPPED.expert_layer_s * 1e6:g} us | kernels that the "
        "library lacks: norms and rotary embedding of queries and keys, choice of experts, quantisation of "
        "their inputs | rows with experts |",
        f"| per layer with experts, steps with prompts | {SHIPPED.expert_layer_prompt_s * 1e6:g} us | "
        "launches outside CUDA graphs | rows with experts |",
        "| per sequence and step, vLLM 0.12 to 0.14 | 55 us | scheduler and sampler run between its steps, "
        "not beside them | rows of vLLM 0.12 |",
        "",
        "None depends on clients, lengths or a model. Beside them stands what a harness did: the runs of the "
        "AIConfigurator team are loaded with 2,048 tokens a step, as 45 rows of Qwen3-32B say; that is not "
        "left out when these rows are judged.",
        "",
        "Without a model on a system they are:",
        "",
        "| left out | every step | steps with prompts |",
        "|---|---|---|",
    ]
    for (model, system), terms in sorted(left_out.items()):
        layer, prompt = terms.expert_layer_s * 1e6, terms.expert_layer_prompt_s * 1e6
        lines.append(f"| {model} on {system} | {layer:g} us | {prompt:g} us |")
    return lines
