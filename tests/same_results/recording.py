"""Runs every configuration of this checkout and keeps hashes of what came out."""

import contextlib
import io
import json
import os
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from time import process_time
from typing import Any

from tests.same_results.configurations import CONFIGURATIONS, TOY_PROFILE, recorded
from tests.same_results.outputs import Outputs, folder_outputs

ROOT = Path(__file__).resolve().parents[2]
OFF = ("uncertainty=off",)  # two more runs say nothing that the first would not
MOST_CPU_S = 2.0  # of a configuration, on a usual machine; more is told
CORE = ("serving", "policies", "hwmodels", "simcore")  # packages that may be compiled


class RunFailed(Exception):
    """A configuration ended with a sentence instead of results."""


def all_configurations() -> dict[str, str]:
    """name -> the words of a run, "" for drawn worlds."""
    from tests.same_results.drawn import DRAWN

    return {**CONFIGURATIONS, **dict.fromkeys(DRAWN, ""), **recorded()}


def chosen(names: Sequence[str]) -> list[str]:
    """Those named, all without names. Raises KeyError for one there is not."""
    there = all_configurations()
    for name in names:
        if name not in there:
            raise KeyError(f"there is no configuration {name!r}: write one of {', '.join(there)}")
    return list(names) or list(there)


def record(
    names: Iterable[str], say: Callable[[str], None] = lambda line: None, keep_going: bool = False
) -> dict[str, Any]:
    """``head``: where the results are from; ``configurations``: name -> outputs.

    Raises RunFailed when a run ends otherwise; with ``keep_going`` it is in ``failed``, with the reason.
    """
    from tests.worlds.drawing import set_up_hypothesis

    set_up_hypothesis()
    found, failed = dict[str, Outputs](), dict[str, str]()
    with _work_folder() as folder:
        for name in names:
            began_s = process_time()
            try:
                found[name] = _outputs(name, folder)
            except RunFailed as fault:
                if not keep_going:
                    raise
                failed[name] = str(fault)
            cpu_s = process_time() - began_s
            say(f"{cpu_s:5.2f} s  {name}{'  (long)' if cpu_s > MOST_CPU_S else ''}")
    return {"head": head(), "configurations": found, "failed": failed}


def head() -> dict[str, str]:
    """Which core ran and on what; not compared. To be called when all that runs need is imported."""
    import numpy

    import experiments

    if ROOT not in Path(str(experiments.__file__)).resolve().parents:
        raise RunFailed(f"{experiments.__file__} is not of this checkout: start in {ROOT}")
    core_modules = [one for name, one in sys.modules.items() if name.partition(".")[0] in CORE]
    files = [getattr(one, "__file__", None) for one in core_modules]
    core = "interpreted" if all(name.endswith(".py") for name in files if name) else "compiled"
    return {"core": core, "python": sys.version.split()[0], "numpy": numpy.__version__}


def write(found: dict[str, Any], path: Path) -> None:
    """Sorted, a line per output."""
    path.write_text(json.dumps(found, indent=0, sort_keys=True) + "\n", encoding="utf-8")


def _outputs(name: str, folder: Path) -> Outputs:
    words = all_configurations()[name]
    if not words:
        from tests.same_results.drawn import DRAWN

        try:
            return DRAWN[name]()
        except Exception as error:  # an invariant that does not hold, or whatever the change has broken
            raise RunFailed(f"{name} raised {type(error).__name__}: {error}") from error
    return _simulated(name, words, folder)


def _simulated(name: str, words: str, folder: Path) -> Outputs:
    from servetwin.cli import main as cli

    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as said:
        status = cli.run(["simulate", *words.split(), *OFF, "out=run", "overwrite=true"])
    if status:
        raise RunFailed(f"{name} ended with status {status}: {said.getvalue().strip()}")
    return folder_outputs(folder / "run")


@contextlib.contextmanager
def _work_folder() -> Iterator[Path]:
    """The current folder of all runs, since config.yaml and the journal's header depend on their paths."""
    before = Path.cwd()
    with tempfile.TemporaryDirectory() as name:
        os.chdir(name)
        try:
            _write_toy_profile(Path(name) / TOY_PROFILE)
            yield Path(name)
        finally:
            os.chdir(before)


def _write_toy_profile(path: Path) -> None:
    import numpy as np

    from hwmodels.profiles.profile import Lattice, Stamp
    from hwmodels.profiles.profile_file import save_profile
    from tests.worlds.toy_profile import toy_profile

    stamp = Stamp(
        gpu="a100_80g",
        llm="llama3_8b",
        tp=1,
        engine="vllm",
        engine_version="0.19.0",
        precision="bf16",
        source="made up",
        licence="CC0",
        files=(),
    )
    skew = Lattice(((0, 16, 64), (2, 8)), np.array([[0.1, 0.3], [0.4, 0.6], [0.8, 0.5]]))
    save_profile(replace(toy_profile(skew=skew), stamp=stamp), path)
