"""Simulate every measured run that may be used and write docs/explanation/ACCURACY.md and its lab note.

python -m benchmarks.accuracy [out=FOLDER]   (out/accuracy if left out; needs SERVETWIN_REAL_RUNS and
                                              SERVETWIN_PROFILES; minutes, and goes on where it stopped)

The exit status is 1 if the page is red.
"""

import os
from pathlib import Path
from typing import Final

from benchmarks.accuracy.errors import broken, broken_memory, errors_of
from benchmarks.accuracy.fit import fitted, samples_of
from benchmarks.accuracy.measured import STAGES, folder, measured_runs
from benchmarks.accuracy.page import head_line, lab_note, page
from benchmarks.accuracy.runs import Evaluation
from benchmarks.command import command
from benchmarks.kv_memory import logged_values
from serving.vocabulary.errors import UserError

FOLDER: Final = Path("out") / "accuracy"
DOCS: Final = Path(__file__).resolve().parents[2] / "docs"
PAGE: Final = DOCS / "explanation" / "ACCURACY.md"
LAB_NOTE: Final = DOCS / "contributing" / "lab" / "ACCURACY.md"


def evaluation_in(place: Path, words: tuple[str, ...] = ()) -> Evaluation:
    """The evaluation whose files lie in ``place``; ``words`` are added to every run."""
    profiles = os.environ.get("SERVETWIN_PROFILES")
    if not profiles:
        raise UserError("SERVETWIN_PROFILES is not set: name the folder that holds aiconfigurator/h100_sxm")
    return Evaluation(folder(), Path(profiles) / "aiconfigurator" / "h100_sxm", place, words)


def _folder(words: list[str]) -> Path:
    given = [word for word in words if word.startswith("out=") and word != "out="]
    if len(given) != len(words) or len(words) > 1:
        raise UserError(f"it takes out=FOLDER and was given {words[0]!r}: write out={FOLDER}, or nothing")
    return Path(given[0].removeprefix("out=")) if given else FOLDER


def main(words: list[str]) -> int:
    """Write the page; 1 if it is red."""
    place = _folder(words)
    evaluation = evaluation_in(place)
    runs = measured_runs(evaluation.root)
    samples = samples_of(runs, evaluation)
    terms = {model: fitted(samples, model) for model in ["", *dict.fromkeys(run.model for run in runs)]}
    as_shipped = [evaluation.simulated(run) for run in runs]
    judged = [run for run in runs if run.source == STAGES and not run.saturated]
    left_out = [evaluation.simulated(run, terms[run.model].words()) for run in judged]
    logged = list(logged_values())
    text = page(left_out=left_out, as_shipped=as_shipped, logged=logged)
    PAGE.write_text(text, encoding="utf-8")
    LAB_NOTE.write_text(lab_note(as_shipped, terms), encoding="utf-8")
    errors = errors_of(left_out)
    found = [*broken(errors), *broken_memory(logged)]
    print(head_line(errors))
    print("\n".join(found) or f"within all limits: {PAGE}")
    return 1 if found else 0


if __name__ == "__main__":
    command("benchmarks.accuracy", __doc__, main)
