"""The folder of ``realexec fidelity``: under which settings it was begun, and which runs it has."""

import json
import os
import sys
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from servetwin.config.read_file import json_in
from serving.vocabulary.errors import UserError

ASKED: Final = "asked.json"
SUMMARY_FILE: Final = "summary.json"
# Variables of the environment that servers and libraries of tensors read; keys are not written down.
_READ_BY_SERVERS: Final = ("VLLM_", "SGLANG_", "OMP_", "MKL_", "OPENBLAS_")
_SECRET: Final = ("KEY", "TOKEN", "SECRET", "PASSWORD")


def begin(out: Path, words: Sequence[str], fixed: Mapping[str, Any]) -> None:
    """Check that the folder is new, or was begun under the same settings: then the command goes on.

    ``fixed``: constants of the code and facts of the machine that the results depend on. Raises UserError.
    """
    mark = out / ASKED
    settings = {
        "words": sorted(word for word in words if not word.startswith("title=")),
        "environment": environment(),
        **fixed,
    }
    settings = json.loads(json.dumps(settings))
    with suppress(OSError, ValueError):  # the folder is new, or asked.json is no JSON
        found = json_in(mark)
        if isinstance(found, dict) and found != settings:
            raise UserError(
                f"out={out} has results of other settings ({_differing(found, settings)}): {_USE}"
            )
        if found == settings:
            return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(f"out={out} has something else in it: {_USE}")
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps(settings, indent=1) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"out={out} cannot be made ({error.strerror}): write a folder in a place you may write to"
        ) from None


_USE: Final = "write another folder, or the words it was begun with"


def _differing(found: Mapping[str, Any], settings: Mapping[str, Any]) -> str:
    """Name the first setting that differs, with both values."""
    for name in {**found, **settings}:
        before, now = found.get(name), settings.get(name)
        if before != now and isinstance(before, list) and isinstance(now, list):
            gone, new = ([one for one in a if one not in b] for a, b in ((before, now), (now, before)))
            then, today = (" ".join(map(str, some)) or "nothing" for some in (gone, new))
            return f"{name}: {then} then, {today} now"
        if before != now:
            return f"{name}: {json.dumps(before)} then, {json.dumps(now)} now"
    return "the order of words"


def environment() -> dict[str, str]:
    """Return the variables that change what servers do."""
    return {
        name: value
        for name, value in sorted(os.environ.items())
        if name.startswith(_READ_BY_SERVERS) and not any(word in name for word in _SECRET)
    }


def has_summary(folder: Path) -> bool:
    """Return whether the run of this folder is complete."""
    return (folder / SUMMARY_FILE).is_file()


def summary_of(folder: Path) -> dict[str, Any]:
    """Return the summary of a complete run."""
    answer: dict[str, Any] = json.loads((folder / SUMMARY_FILE).read_text(encoding="utf-8"))
    return answer


def reals_of(out: Path, case: str, repeats: int) -> list[Path]:
    """Return the folders of a case's real runs."""
    return [out / case / f"real-{number}" for number in range(1, repeats + 1)]


def codes_of(out: Path, cases: Iterable[str], repeats: int) -> list[str]:
    """Return the code that made the real runs: one version, unless it changed before the command went on."""
    made = [summary_of(folder)["code"] for case in cases for folder in reals_of(out, case, repeats)]
    return list(dict.fromkeys(" ".join(str(part) for part in code.values() if part) for code in made))


def quiet_file(real: Path) -> Path:
    """Return the file with what was seen of other programs before this run."""
    return real.with_name(f"quiet-{real.name}.json")


def without_host(machine: Mapping[str, Any]) -> dict[str, Any]:
    """Remove the machine's name: readers of the page do not need it."""
    return {key: value for key, value in machine.items() if key != "host"}


def print_progress(line: str) -> None:
    """Print progress to stderr during a run of minutes; standard output has only the result."""
    if sys.stderr is not None:
        print(line, file=sys.stderr, flush=True)
