"""``servetwin profile``: import measured tables, check profiles and their rungs, fit coefficients."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, fields, is_dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from hwmodels.errors import HardwareError
from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from servetwin.cli.profile_text import errors_data, errors_table, ranges_text, stamp_data, stamp_text
from servetwin.cli.profile_whole import SPLITWISE, check_whole, fit_whole, import_splitwise, is_whole
from servetwin.cli.verbs import by_verb
from servetwin.config.overrides import Override, Wanted, closest, echo, parse_value, unknown_key
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    from hwmodels.profiles.profile import Profile
    from hwmodels.profiles.profile_file import LoadedProfile
    from hwmodels.step_times.held_out import PhaseError

USAGE: Final = """servetwin profile: measured step times of one (GPU, model, tensor-parallel size)

  servetwin profile import KEY=VALUE ...       published tables become a profile, one JSON file
  servetwin profile check path=FILE_OR_FOLDER  what profiles hold, and errors on grid lines kept from a model
  servetwin profile fit path=FILE              coefficients of the linear rung fitted to a profile
  servetwin profile fit path=FOLDER against=X  what an engine adds to a step: whole steps less operations

A FOLDER with meta.yaml and steps.csv is a profile of whole steps (docs/PROFILES.md), any other is searched
for profiles. against is a profile's FILE, linear (the catalogue's) or roofline; fit then prints a file for
engine.overhead=FILE.

import takes format, path, gpu, model, tp and out; where the tables do not say it, engine_version; to replace
a file, overwrite=true; format=vidur also aiconfigurator, the folder that attention and all-reduce come from.
check takes path any number of times. Formats: aiconfigurator, llmservingsim, splitwise (whole steps), vidur.

Example:
  servetwin profile import format=llmservingsim path=profiles/RTX4090/meta-llama/Llama-3.1-8B \\
    gpu=rtx4090 model=llama3_1_8b tp=1 out=llama3_1_8b.json
  servetwin profile check path=llama3_1_8b.json
"""

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
    return by_verb("profile", rest, verbs, USAGE)


def _import(words: Sequence[str], as_json: bool) -> int:
    from hwmodels.importers import ImportRequest, import_profile
    from hwmodels.profiles.profile_file import save_profile

    given = _given(words, (*_IMPORT_KEYS, *_OPTIONAL_IMPORT_KEYS), "servetwin profile import")
    for key, example in _IMPORT_KEYS.items():
        if key not in given:
            raise UserError(f"servetwin profile import lacks {key}: write {key}={example}")
    if given["format"][0] == SPLITWISE:
        return import_splitwise(given, as_json)
    out = _free(Path(given["out"][0]), _flag(given, "overwrite"))
    others = given.get("aiconfigurator")
    request = ImportRequest(
        path=Path(given["path"][0]),
        gpu=_known_gpu(given["gpu"][0]),
        llm=given["model"][0],
        tp=parse_value(Override("tp", given["tp"][0]), Wanted(int)),
        engine_version=given.get("engine_version", [None])[0],
        aiconfigurator=Path(others[0]) if others else None,
    )
    imported = import_profile(given["format"][0], request)
    digest = save_profile(imported, out)
    lines = (stamp_text(imported.stamp, digest), f"profile in {out}")
    found = {"file": str(out), **stamp_data(imported.stamp, digest)}
    tell(found, lines, as_json, f"; the profile is in {out}")
    return 0


def _check(words: Sequence[str], as_json: bool) -> int:
    given = _given(words, ("path",), "servetwin profile check", repeated=("path",))
    if "path" not in given:
        raise UserError("servetwin profile check lacks path: write path=FILE, or path=FOLDER for all in it")
    whole = [check_whole(Path(text)) for text in given["path"] if is_whole(Path(text))]
    lines, found = [line for text, _ in whole for line in text], [data for _, data in whole]
    texts = [text for text in given["path"] if not is_whole(Path(text))]
    loaded = [(path, _load(path, force=True)) for text in texts for path in _files(Path(text))]
    errors = [(one.profile, _errors(one.profile)) for _, one in loaded]
    for (path, one), (_, judged) in zip(loaded, errors, strict=True):
        lines += [f"{path}", stamp_text(one.profile.stamp, one.digest), ranges_text(one.profile.tables)]
        lines += [*(f"  problem: {problem}" for problem in one.problems), ""]
        stamped = stamp_data(one.profile.stamp, one.digest)
        found.append(
            {"path": str(path), **stamped, "problems": list(one.problems), "errors": errors_data(judged)}
        )
    tell({"profiles": found}, [*lines, *([errors_table(errors)] if loaded else [])], as_json)
    return 1 if any(one.problems for _, one in loaded) else 0


def _errors(loaded: "Profile") -> "list[tuple[str, Sequence[PhaseError] | HardwareError]]":
    """Return each rung's errors, best rung first; a rung that cannot be judged has its error instead."""
    from hwmodels.step_times.held_out import held_out_errors, op_table_model
    from hwmodels.step_times.linear_fit import linear_model

    found: list[tuple[str, Sequence[PhaseError] | HardwareError]] = []
    for rung, build in (("op_table", op_table_model), ("linear", linear_model)):
        try:
            found.append((rung, held_out_errors(loaded, build)))
        except HardwareError as error:
            found.append((rung, error))
    return found


def _fit(words: Sequence[str], as_json: bool) -> int:
    from hwmodels.step_times.linear_fit import fit_linear

    given = _given(words, ("path", "against"), "servetwin profile fit")
    if "path" not in given:
        raise UserError("servetwin profile fit lacks path: write path=FILE with a profile")
    path = Path(given["path"][0])
    if is_whole(path) or "against" in given:
        return fit_whole(path, given.get("against", [None])[0], as_json)
    loaded = _load(path, force=False)
    found = fit_linear(loaded.profile)
    stamp: Any = loaded.profile.stamp
    lines = (stamp_text(stamp, loaded.digest), *_coefficients(found, 0))
    tell({**stamp_data(stamp, loaded.digest), "coefficients": asdict(found)}, lines, as_json)
    return 0


def _coefficients(found: object, depth: int) -> list[str]:
    """Return YAML: every number of a dataclass of coefficients, parts indented below their names."""
    assert is_dataclass(found)
    lines = []
    for field in fields(found):
        value = getattr(found, field.name)
        if is_dataclass(value):
            lines += [f"{'  ' * depth}{field.name}:", *_coefficients(value, depth + 1)]
        else:
            text = "null" if value is None else f"{value:.6g}" if isinstance(value, float) else str(value)
            lines.append(f"{'  ' * depth}{field.name}: {text}")
    return lines


def _given(
    words: Sequence[str], known: Sequence[str], command: str, repeated: Sequence[str] = ()
) -> dict[str, list[str]]:
    """Return values by key; UserError for a word other than ``key=value``, an unknown or repeated key."""
    given: dict[str, list[str]] = {}
    for word in words:
        key, equals, text = word.partition("=")
        if not equals:
            near = closest(word, known) or known[0]
            raise UserError(f"'{echo(word)}' has no '=': write {near}=VALUE")
        if key not in known:
            raise unknown_key(key, known, command)
        if not text:
            raise UserError(f"{key}= has no value: write {key}=VALUE")
        if key in given and key not in repeated:
            raise UserError(f"{key} is given twice ({echo(given[key][0])} and {echo(text)}): write it once")
        given.setdefault(key, []).append(text)
    return given


def _flag(given: Mapping[str, list[str]], key: str) -> bool:
    return key in given and bool(parse_value(Override(key, given[key][0]), Wanted(bool)))


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
    found = sorted(path.glob("*.json"))
    if not found:
        raise UserError(f"path={path} is a folder without .json files: write a profile or a folder of them")
    return found


def _load(path: Path, force: bool) -> "LoadedProfile":
    from hwmodels.profiles.profile_file import load_profile

    return load_profile(path, force)
