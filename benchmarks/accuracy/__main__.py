"""Simulate every measured run that may be used and write docs/ACCURACY.md: errors, ranges, worst runs, causes.

python -m benchmarks.accuracy [FOLDER]   (out/accuracy if left out; needs SERVETWIN_REAL_RUNS and
                                          SERVETWIN_PROFILES; some minutes, and goes on where it stopped)
"""

import os
from pathlib import Path
from typing import Final

from benchmarks.accuracy.errors import broken, errors_of
from benchmarks.accuracy.fit import fitted, samples_of
from benchmarks.accuracy.measured import folder, measured_runs
from benchmarks.accuracy.page import head_line, page
from benchmarks.accuracy.runs import Evaluation, SimulatedRun
from benchmarks.command import command
from serving.vocabulary.errors import UserError

FOLDER: Final = Path("out") / "accuracy"
PAGE: Final = Path(__file__).resolve().parents[2] / "docs" / "ACCURACY.md"


def evaluation_in(place: Path, words: tuple[str, ...] = ()) -> Evaluation:
    """The evaluation whose files lie in ``place``."""
    profiles = os.environ.get("SERVETWIN_PROFILES")
    if not profiles:
        raise UserError("SERVETWIN_PROFILES is not set: name the folder that holds aiconfigurator/h100_sxm")
    return Evaluation(folder(), Path(profiles) / "aiconfigurator" / "h100_sxm", place, words)


def main(words: list[str]) -> int:
    """Write the page; 1 if it is red."""
    place = Path(words[0]) if words else FOLDER
    evaluation = evaluation_in(place)
    runs = measured_runs(evaluation.root)
    samples = samples_of(runs, evaluation)
    models = ["", *dict.fromkeys(run.model for run in runs)]
    terms = {model: fitted(samples, model) for model in models}
    as_shipped = [_told(evaluation.simulated(run)) for run in runs]
    judged = [run for run in runs if run.name in {one.run.name for one in as_shipped} and _is_judged(run)]
    left_out = [evaluation.simulated(run, terms[run.model].words()) for run in judged]
    errors = errors_of(left_out)
    PAGE.write_text(
        page(left_out=left_out, as_shipped=as_shipped, unfitted=errors, terms=terms, kv=()), encoding="utf-8"
    )
    print(head_line(errors))
    found = broken(errors)
    print("\n".join(found) or f"within all limits: {PAGE}")
    return 1 if found else 0


def _is_judged(run: object) -> bool:
    from benchmarks.accuracy.measured import STAGES, MeasuredRun

    assert isinstance(run, MeasuredRun)
    return run.source == STAGES and not run.saturated


def _told(one: SimulatedRun) -> SimulatedRun:
    for error in errors_of([one])[:1]:
        print(f"{one.run.title}: {error.metric} {error.percent:+.1f} %", flush=True)
    return one


if __name__ == "__main__":
    command("accuracy", __doc__, main)
