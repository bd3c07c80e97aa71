"""``servetwin profile`` for whole steps: imports Splitwise's, checks, fits an engine's overhead."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from servetwin.cli.process import tell
from servetwin.cli.profile_text import stamp_data, stamp_text
from servetwin.config.overrides import Override, Wanted, parse_value
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from hwmodels.profiles.step_profile import StepProfile, Steps
    from hwmodels.step_times.overhead_fit import OverheadFit
    from hwmodels.step_times.step_time import StepModel

SPLITWISE: Final = "splitwise"
_META: Final = "meta.yaml"


def is_whole(path: Path) -> bool:
    """Return whether the path is the folder of a profile of whole steps."""
    return path.is_dir() and (path / _META).is_file()


def import_splitwise(given: Mapping[str, Sequence[str]], as_json: bool) -> int:
    """Convert Splitwise's table of one GPU and tp to a folder."""
    from hwmodels.importers.step_profile_write import splitwise_steps, write_step_profile

    out = Path(given["out"][0])
    if out.exists():
        raise UserError(f"out={out} exists: write the name of a folder that does not")
    tp = parse_value(Override("tp", given["tp"][0]), Wanted(int))
    stamp, rows = splitwise_steps(Path(given["path"][0]), given["gpu"][0], given["model"][0], tp)
    write_step_profile(out, stamp, True, rows)
    found = {"folder": str(out), "rows": len(rows), "stamp": asdict(stamp)}
    tell(found, [f"profile of {len(rows)} rows in {out}"], as_json, f"; the profile is in {out}")
    return 0


def check_whole(folder: Path) -> tuple[list[str], dict[str, Any]]:
    """Return the content and the step-time model's error on held-out lines: as text lines, and as data."""
    from hwmodels.importers.step_profile_file import read_step_profile
    from hwmodels.step_times.whole_step import fitted_whole_steps
    from hwmodels.step_times.whole_step_error import held_out_whole_steps, whole_step_model

    loaded = read_step_profile(folder)
    profile = loaded.profile
    model, notes = whole_step_model(profile), fitted_whole_steps(profile.steps, profile.apart)[1]
    limits, errors = model.limits, list(held_out_whole_steps(profile.steps, profile.apart))
    lines = [
        f"{folder}",
        stamp_text(profile.stamp, loaded.digest),
        *(f"  {line}" for line in (*_held(profile), *(f"note: {note}" for note in notes))),
        f"  answers: up to {limits.max_decode_sequences} decoding sequences, {limits.max_context_tokens} "
        f"tokens of context in all, {limits.max_prefill_tokens} prompt tokens per step, prompts of "
        f"{limits.prompt_tokens}",
        "\nError of whole steps on grid lines kept from the model, in percent.\n",
        "| phase | points | out of range | mean | p95 | bias |\n|---|---|---|---|---|---|",
    ]
    for one in errors:
        numbers = f"{one.mean_percent:.1f} | {one.p95_percent:.1f} | {one.bias_percent:+.1f}"
        lines.append(f"| {one.phase} | {one.rows} | {one.refused} | {numbers} |")
    found = {
        "path": str(folder), **stamp_data(profile.stamp, loaded.digest), "whole_steps": len(profile.steps),
        "notes": list(notes), "errors": {"whole_steps": [asdict(one) for one in errors]},
    }  # fmt: skip
    return [*lines, ""], found


def fit_whole(folder: Path, against: str | None, as_json: bool) -> int:
    """Print an engine's overhead as a file for ``engine.overhead``; its errors are comments."""
    from hwmodels.importers.step_profile_file import read_step_profile
    from hwmodels.step_times.engine_overhead import vllm_graph_batches
    from hwmodels.step_times.overhead_fit import fit_overhead

    if not is_whole(folder):
        raise UserError(f"path={folder} has no {_META}: against= is for a folder of whole steps")
    if against is None:
        raise UserError(
            f"path={folder} holds whole steps, and an engine's overhead is what they take beyond a sum of "
            "operations: write against=FILE with a profile of operations, against=linear or against=roofline"
        )
    profile = read_step_profile(folder).profile
    operations = _operations(profile, against)
    graphs = vllm_graph_batches(operations.limits.max_decode_sequences)
    found = fit_overhead(profile, operations, graphs)
    overhead = {**asdict(found), "against": against, "stamp": asdict(profile.stamp)}
    tell(overhead, [_overhead_text(profile, operations, against, found)], as_json)
    return 0


def _operations(profile: "StepProfile", against: str) -> "StepModel":
    """Return the named sum of operations for the profile's GPU, model, tp, and engine (if it has one)."""
    from hwmodels.catalogue import load_gpu, load_llm
    from hwmodels.profiles.profile_check import require_profile
    from hwmodels.profiles.profile_file import load_profile
    from hwmodels.step_times.all_reduce_catalogue import Imitated
    from hwmodels.step_times.select import includes_overhead, step_model

    stamp = profile.stamp
    gpu, llm = load_gpu(stamp.gpu), load_llm(stamp.llm)
    imitated = Imitated(stamp.engine, stamp.engine_version)
    if against in ("linear", "roofline"):
        model = step_model(against, gpu, llm, stamp.tp, None, imitated)
    else:
        of = stamp.gpu, stamp.llm, stamp.tp, stamp.engine, stamp.engine_version, stamp.precision
        tables = require_profile(load_profile(Path(against)), against, *of).profile
        model = step_model("op_table", gpu, llm, stamp.tp, tables, imitated)
    if includes_overhead(model):
        raise UserError(
            f"against={against} is of whole steps as well, for {stamp.llm} on {stamp.gpu} tp={stamp.tp}: "
            "name a sum of operations"
        )
    return model


def _held(profile: "StepProfile") -> list[str]:
    """Return the rows by phase with their ranges, and the spread of repeats."""
    from hwmodels.profiles.step_profile import PHASES

    steps, lines = profile.steps, list[str]()
    lines.append(f"holds: {'whole steps' if profile.includes_overhead else 'sums of operations'}")
    if profile.apart:
        lines.append("chunks and decodes of a step: one after the other")
    for phase in PHASES:
        rows = steps.where(steps.phase(phase))
        lines.append(f"{phase}: {_ranges(rows) if len(rows) else 'not measured'}")
    spread = profile.repeat_spread
    told = "no step comes twice" if spread is None else f"p95 {spread:.1%} from their mean"
    return [*lines, f"repeats of one step: {told}"]


def _ranges(rows: "Steps") -> str:
    columns = {
        "prompt tokens": rows.prefill_tokens, "chunks": rows.prefill_sequences, "cached": rows.cached_tokens,
        "sequences": rows.decode_sequences, "context": rows.context_tokens,
    }  # fmt: skip
    ranges = [f"{name} {column.min()} to {column.max()}" for name, column in columns.items() if column.max()]
    return f"{len(rows)} steps, {', '.join(ranges)}"


def _overhead_text(
    profile: "StepProfile", operations: "StepModel", against: str, found: "OverheadFit"
) -> str:
    stamp = profile.stamp
    of = f"{stamp.llm} on {stamp.gpu} tp={stamp.tp}, {stamp.engine} {stamp.engine_version}"
    rung = operations.source.partition(":")[0]
    source = f"fitted to {found.rows} measured steps of {of}, less {against} ({rung})"
    lines = [
        f"# What an engine adds to the operations of a step: {of}.",
        f"# Fitted to {found.rows} steps; {found.refused} more are beyond what {against} answers for.",
        "# Measured less the sum of operations, and how far off sum + overhead is (held out, of the step):",
    ]
    for one in found.regimes:
        mean, p95 = one.held_out_percent
        beyond = f"{1e3 * one.beyond_s:+.3f} ms, {one.beyond_share:+.1%} of the step"
        lines.append(f"#   {one.phase}: {one.rows} steps, {beyond}; {mean:.1f} % mean, {p95:.1f} % p95")
    if not found.step_s and not found.per_sequence_s:
        lines.append("# The sum of operations is above the measured steps: no overhead is left to add.")
    return "\n".join(
        [
            *lines,
            f"step_s: {found.step_s:.4g}",
            "per_layer_s: 0.0",
            f"per_sequence_s: {found.per_sequence_s:.4g}",
            "cuda_graphs: true",
            f"error_s: {found.error_s:.4g}",
            f"source: {json.dumps(source)}",
        ]
    )
