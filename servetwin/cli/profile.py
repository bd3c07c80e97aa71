"""``servetwin profile``: import measured tables, check profiles and their rungs, fit coefficients."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hwmodels.errors import HardwareError
from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import help_of, tell
from servetwin.cli.subcommands import by_verb
from servetwin.config.overrides import Override, Wanted, closest, echo, parse_value
from servetwin.config.unknown_key import unknown_key
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp
    from hwmodels.profiles.profile_file import LoadedProfile
    from hwmodels.profiles.step_profile import StepProfile, Steps
    from hwmodels.step_times.held_out import PhaseError
    from hwmodels.step_times.overhead_fit import OverheadFit
    from hwmodels.step_times.step_time import StepModel


# Formats profiles: the stamp, the measured ranges, and the table of errors in Markdown.


def stamp_text(stamp: "Stamp", digest: str) -> str:
    """Return the validity, source and every assumption of a profile; one line each."""
    lines = [
        f"{stamp.llm} on {stamp.gpu} tp={stamp.tp}",
        f"{stamp.engine} {stamp.engine_version}, {stamp.precision}",
        f"source: {stamp.source}; licence: {stamp.licence}",
        f"error: {stamp.error_band}",
        f"digest: {digest}",
        *(f"file: {name} sha256 {sha256}" for name, sha256 in stamp.files),
        *(f"note: {note}" for note in stamp.notes),
    ]
    return "\n".join(f"  {line}" for line in lines)


def stamp_data(stamp: "Stamp", digest: str) -> dict[str, Any]:
    """Return the same as data for programs."""
    return {"digest": digest, "stamp": asdict(stamp)}


def errors_data(rungs: "Iterable[tuple[str, Sequence[PhaseError] | HardwareError]]") -> dict[str, Any]:
    """Map rung to its errors by phase, or to why it cannot be judged."""
    return {
        rung: {"not_judged": str(errors)}
        if isinstance(errors, HardwareError)
        else [asdict(error) for error in errors]
        for rung, errors in rungs
    }


def ranges_text(tables: "OpTables") -> str:
    """Return the measured range of each table; one line each."""
    lines = [f"dense: {_curve(tables.dense, 'tokens')}", f"head: {_curve(tables.head, 'sequences')}"]
    lines.append(
        f"all_reduce: {_curve(tables.all_reduce, 'tokens') if tables.all_reduce else 'not measured'}"
    )
    lines += _lattices("decode", tables.decode, ("sequences", "context tokens of each"))
    lines += _lattices("prefill", tables.prefill, ("new", "cached tokens"))
    mixed = ("new", "cached tokens", "decoding sequences", "context tokens of each")
    lines += _lattices("mixed", tables.mixed, mixed)
    lines += _lattices("skew", (tables.skew,) if tables.skew else (), ("new tokens", "decoding sequences"))
    return "\n".join(f"  {line}" for line in lines)


def errors_table(
    profiles: "Iterable[tuple[Profile, Iterable[tuple[str, Sequence[PhaseError] | HardwareError]]]]",
) -> str:
    """Return Markdown: error of whole steps by profile, phase and rung, on held-out grid lines."""
    lines = [
        "Error of a whole step on the grid lines kept from the model (every second one), in percent.",
        "",
        "| model | GPU | tp | phase | rung | points | mean | p95 | bias |",
        "|---|---|---|---|---|---|---|---|---|",
    ]
    not_judged = []
    for profile, rungs in profiles:
        stamp = profile.stamp
        for rung, errors in rungs:
            if isinstance(errors, HardwareError):
                not_judged.append(f"{rung} of {stamp.llm} on {stamp.gpu} tp={stamp.tp} not judged: {errors}")
                continue
            for error in errors:
                numbers = f"{error.mean_percent:.1f} | {error.p95_percent:.1f} | {error.bias_percent:+.1f}"
                where = f"{stamp.llm} | {stamp.gpu} | {stamp.tp} | {error.phase} | {rung} | {error.rows}"
                lines.append(f"| {where} | {numbers} |")
    return "\n".join([*lines, *([""] if not_judged else []), *not_judged])


def _curve(curve: "Curve", unit: str) -> str:
    return f"{curve.counts[0]} to {curve.counts[-1]} {unit}, {len(curve.counts)} points"


def _lattices(name: str, lattices: "Sequence[Lattice]", units: Sequence[str]) -> list[str]:
    if not lattices:
        return [f"{name}: not measured"]
    lines = []
    for lattice in lattices:
        axes = ", ".join(
            f"{unit} {axis[0]} to {axis[-1]} ({len(axis)})" for unit, axis in zip(units, lattice.axes)
        )
        measured = int((lattice.values == lattice.values).sum())  # NaN is not equal to itself
        lines.append(f"{name}: {axes}; {measured} of {lattice.values.size} points")
    return lines


# ``servetwin profile`` for whole steps: imports Splitwise's, checks, fits an engine's overhead.

SPLITWISE: Final = "splitwise"
_META: Final = "meta.yaml"


def is_whole(path: Path) -> bool:
    """Return whether the path is the folder of a profile of whole steps."""
    return path.is_dir() and (path / _META).is_file()


def import_splitwise(options: Mapping[str, Sequence[str]], as_json: bool) -> int:
    """Convert Splitwise's table of one GPU and tp to a folder."""
    from hwmodels.importers.step_profile_file import splitwise_steps, write_step_profile

    out = Path(options["out"][0])
    if out.exists():
        raise UserError(f"out={out} exists: write the name of a folder that does not")
    tp = parse_value(Override("tp", options["tp"][0]), Wanted(int))
    stamp, rows = splitwise_steps(Path(options["path"][0]), options["gpu"][0], options["model"][0], tp)
    write_step_profile(out, stamp, includes_overhead=True, rows=rows)
    answer = {"folder": str(out), "rows": len(rows), "stamp": asdict(stamp)}
    tell(answer, [f"profile of {len(rows)} rows in {out}"], as_json, f"; the profile is in {out}")
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
        *(f"  {line}" for line in (*_phase_lines(profile), *(f"note: {note}" for note in notes))),
        f"  answers: up to {limits.max_decode_sequences} decoding sequences, {limits.max_context_tokens} "
        f"tokens of context in all, {limits.max_prefill_tokens} prompt tokens per step, prompts of "
        f"{limits.prompt_tokens}",
        "\nError of whole steps on grid lines kept from the model, in percent.\n",
        "| phase | points | out of range | mean | p95 | bias |\n|---|---|---|---|---|---|",
    ]
    for error in errors:
        numbers = f"{error.mean_percent:.1f} | {error.p95_percent:.1f} | {error.bias_percent:+.1f}"
        lines.append(f"| {error.phase} | {error.rows} | {error.refused} | {numbers} |")
    answer = {
        "path": str(folder), **stamp_data(profile.stamp, loaded.digest), "whole_steps": len(profile.steps),
        "notes": list(notes), "errors": {"whole_steps": [asdict(error) for error in errors]},
    }  # fmt: skip
    return [*lines, ""], answer


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
    fitted = fit_overhead(profile, operations, graphs)
    overhead = {**asdict(fitted), "against": against, "stamp": asdict(profile.stamp)}
    tell(overhead, [_overhead_text(profile, operations, against, fitted)], as_json)
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
        model = step_model(against, gpu, llm, tp=stamp.tp, profile=None, imitated=imitated)
    else:
        tables = require_profile(
            load_profile(Path(against)),
            path=against,
            gpu=stamp.gpu,
            llm=stamp.llm,
            tp=stamp.tp,
            engine=stamp.engine,
            engine_version=stamp.engine_version,
            precision=stamp.precision,
        ).profile
        model = step_model("op_table", gpu, llm, tp=stamp.tp, profile=tables, imitated=imitated)
    if includes_overhead(model):
        raise UserError(
            f"against={against} is of whole steps as well, for {stamp.llm} on {stamp.gpu} tp={stamp.tp}: "
            "name a sum of operations"
        )
    return model


def _phase_lines(profile: "StepProfile") -> list[str]:
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
    shown = "no step comes twice" if spread is None else f"p95 {spread:.1%} from their mean"
    return [*lines, f"repeats of one step: {shown}"]


def _ranges(rows: "Steps") -> str:
    columns = {
        "prompt tokens": rows.prefill_tokens, "chunks": rows.prefill_sequences, "cached": rows.cached_tokens,
        "sequences": rows.decode_sequences, "context": rows.context_tokens,
    }  # fmt: skip
    ranges = [f"{name} {column.min()} to {column.max()}" for name, column in columns.items() if column.max()]
    return f"{len(rows)} steps, {', '.join(ranges)}"


def _overhead_text(
    profile: "StepProfile", operations: "StepModel", against: str, overhead: "OverheadFit"
) -> str:
    stamp = profile.stamp
    of = f"{stamp.llm} on {stamp.gpu} tp={stamp.tp}, {stamp.engine} {stamp.engine_version}"
    rung = operations.source.partition(":")[0]
    source = f"fitted to {overhead.rows} measured steps of {of}, less {against} ({rung})"
    lines = [
        f"# What an engine adds to the operations of a step: {of}.",
        f"# Fitted to {overhead.rows} steps; {overhead.refused} more are beyond what {against} answers for.",
        "# Measured less the sum of operations, and how far off sum + overhead is (held out, of the step):",
    ]
    for regime in overhead.regimes:
        mean, p95 = regime.held_out_percent
        beyond = f"{1e3 * regime.beyond_s:+.3f} ms, {regime.beyond_share:+.1%} of the step"
        lines.append(f"#   {regime.phase}: {regime.rows} steps, {beyond}; {mean:.1f} % mean, {p95:.1f} % p95")
    if not overhead.step_s and not overhead.per_sequence_s:
        lines.append("# The sum of operations is above the measured steps: no overhead is left to add.")
    return "\n".join(
        [
            *lines,
            f"step_s: {overhead.step_s:.4g}",
            "per_layer_s: 0.0",
            f"per_sequence_s: {overhead.per_sequence_s:.4g}",
            "cuda_graphs: true",
            f"error_s: {overhead.error_s:.4g}",
            f"source: {json.dumps(source)}",
        ]
    )


_IMPORT_KEYS: Final = {
    "format": "llmservingsim",
    "path": "FOLDER",
    "gpu": "rtx4090",
    "model": "llama3_1_8b",
    "tp": "1",
    "out": "FILE.json",
}
_OPTIONAL_IMPORT_KEYS: Final = ("engine_version", "aiconfigurator", "overwrite")


def profile(words: Sequence[str]) -> int:
    """Run without the first word; exit status 1 if a checked profile is stale, 2 without a verb."""
    rest, as_json = asked_for_json(words)
    carried_out = {"import": _import, "check": _check, "fit": _fit}
    verbs: dict[str, Callable[[Sequence[str]], int]] = {
        name: partial(verb, as_json=as_json) for name, verb in carried_out.items()
    }
    return by_verb("profile", rest, verbs, help_of("profile"))


def _import(words: Sequence[str], as_json: bool) -> int:
    from hwmodels.importers import ImportRequest, import_profile
    from hwmodels.profiles.profile_file import save_profile

    options = _options(words, (*_IMPORT_KEYS, *_OPTIONAL_IMPORT_KEYS), "servetwin profile import")
    for key, example in _IMPORT_KEYS.items():
        if key not in options:
            raise UserError(f"servetwin profile import lacks {key}: write {key}={example}")
    if options["format"][0] == SPLITWISE:
        return import_splitwise(options, as_json)
    out = _free(Path(options["out"][0]), _flag(options, "overwrite"))
    attention = options.get("aiconfigurator")
    request = ImportRequest(
        path=Path(options["path"][0]),
        gpu=_known_gpu(options["gpu"][0]),
        llm=options["model"][0],
        tp=parse_value(Override("tp", options["tp"][0]), Wanted(int)),
        engine_version=options.get("engine_version", [None])[0],
        aiconfigurator=Path(attention[0]) if attention else None,
    )
    imported = import_profile(options["format"][0], request)
    digest = save_profile(imported, out)
    lines = (stamp_text(imported.stamp, digest), f"profile in {out}")
    answer = {"file": str(out), **stamp_data(imported.stamp, digest)}
    tell(answer, lines, as_json, f"; the profile is in {out}")
    return 0


def _check(words: Sequence[str], as_json: bool) -> int:
    options = _options(words, ("path",), "servetwin profile check", repeated=("path",))
    if "path" not in options:
        raise UserError("servetwin profile check lacks path: write path=FILE, or path=FOLDER for all in it")
    whole = [check_whole(Path(text)) for text in options["path"] if is_whole(Path(text))]
    lines, answers = [line for text, _ in whole for line in text], [data for _, data in whole]
    texts = [text for text in options["path"] if not is_whole(Path(text))]
    loaded = [(path, _load(path, force=True)) for text in texts for path in _files(Path(text))]
    errors = [(entry.profile, _errors(entry.profile)) for _, entry in loaded]
    for (path, entry), (_, judged) in zip(loaded, errors, strict=True):
        lines += [f"{path}", stamp_text(entry.profile.stamp, entry.digest), ranges_text(entry.profile.tables)]
        lines += [*(f"  problem: {problem}" for problem in entry.problems), ""]
        stamped = stamp_data(entry.profile.stamp, entry.digest)
        answers.append(
            {"path": str(path), **stamped, "problems": list(entry.problems), "errors": errors_data(judged)}
        )
    tell({"profiles": answers}, [*lines, *([errors_table(errors)] if loaded else [])], as_json)
    return 1 if any(entry.problems for _, entry in loaded) else 0


def _errors(loaded: "Profile") -> "list[tuple[str, Sequence[PhaseError] | HardwareError]]":
    """Return each rung's errors, best rung first; a rung that cannot be judged has its error instead."""
    from hwmodels.step_times.held_out import held_out_errors, op_table_model
    from hwmodels.step_times.linear_fit import linear_model

    errors: list[tuple[str, Sequence[PhaseError] | HardwareError]] = []
    for rung, build in (("op_table", op_table_model), ("linear", linear_model)):
        try:
            errors.append((rung, held_out_errors(loaded, build)))
        except HardwareError as error:
            errors.append((rung, error))
    return errors


def _fit(words: Sequence[str], as_json: bool) -> int:
    from hwmodels.step_times.linear_fit import fit_linear

    options = _options(words, ("path", "against"), "servetwin profile fit")
    if "path" not in options:
        raise UserError("servetwin profile fit lacks path: write path=FILE with a profile")
    path = Path(options["path"][0])
    if is_whole(path) or "against" in options:
        return fit_whole(path, options.get("against", [None])[0], as_json)
    loaded = _load(path, force=False)
    coefficients = fit_linear(loaded.profile)
    stamp: Any = loaded.profile.stamp
    lines = (stamp_text(stamp, loaded.digest), *_coefficients(coefficients, 0))
    tell({**stamp_data(stamp, loaded.digest), "coefficients": asdict(coefficients)}, lines, as_json)
    return 0


def _coefficients(coefficients: object, depth: int) -> list[str]:
    """Return YAML: every number of a dataclass of coefficients, parts indented below their names."""
    assert is_dataclass(coefficients)
    lines = []
    for field in fields(coefficients):
        value = getattr(coefficients, field.name)
        if is_dataclass(value):
            lines += [f"{'  ' * depth}{field.name}:", *_coefficients(value, depth + 1)]
        else:
            text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
            lines.append(f"{'  ' * depth}{field.name}: {text}")
    return lines


def _options(
    words: Sequence[str], known: Sequence[str], command: str, repeated: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return values by key; UserError for a word other than ``key=value``, an unknown or repeated key."""
    options: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            near = closest(word, known) or known[0]
            raise UserError(f"'{echo(word)}' has no '=': write {near}=VALUE")
        if key not in known:
            raise unknown_key(key, known, command)
        if not text:
            raise UserError(f"{key}= has no value: write {key}=VALUE")
        if key in options and key not in repeated:
            raise UserError(f"{key} is given twice ({echo(options[key][0])} and {echo(text)}): write it once")
        options.setdefault(key, []).append(text)
    return options


def _flag(options: Mapping[str, list[str]], key: str) -> bool:
    return key in options and bool(parse_value(Override(key, options[key][0]), Wanted(bool)))


def _free(out: Path, overwrite: bool) -> Path:
    """Return ``out`` if a file may be written there; checked before the work, not after it."""
    if out.is_dir():
        raise UserError(f"out={out} is a folder: write out= with the name of a file in it")
    if out.exists() and not overwrite:
        raise UserError(f"out={out} exists: write another name, or overwrite=true to replace it")
    return out


def _known_gpu(name: str) -> str:
    from hwmodels.catalogue import load_gpu

    return load_gpu(name).name


def _files(path: Path) -> list[Path]:
    """Return the file itself, or every .json in a folder, sorted."""
    if not path.is_dir():
        return [path]
    files = sorted(path.glob("*.json"))
    if not files:
        raise UserError(f"path={path} is a folder without .json files: write a profile or a folder of them")
    return files


def _load(path: Path, force: bool) -> "LoadedProfile":
    from hwmodels.profiles.profile_file import load_profile

    return load_profile(path, force)
