"""Prints the linear step-time coefficients of a table of iteration times or of a profile, with their errors.

python -m scripts.fit_step_times CSV            iteration_times or Splitwise's end-to-end table
python -m scripts.fit_step_times PROFILE.json   a profile that was imported before
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hwmodels.errors import HardwareError
from hwmodels.importers.splitwise import read_splitwise
from hwmodels.profiles.profile_file import load_profile
from hwmodels.step_times.fit import report, report_rows
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.linear_fit import fit_linear, linear_model

# Splitwise's kinds of hardware and tensor-parallel sizes that were measured.
SPLITWISE = (("a100-80gb", 2), ("a100-80gb", 8), ("h100-80gb", 2), ("h100-80gb", 8))


def main(arguments: Sequence[str]) -> int:
    """Exit status 2 when the call or the file is wrong."""
    if len(arguments) != 1:
        print("usage: python -m scripts.fit_step_times CSV or PROFILE.json", file=sys.stderr)
        return 2
    try:
        print(fitted(Path(arguments[0])))
    except HardwareError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


def fitted(path: Path) -> str:
    """Coefficients and errors of what ``path`` holds, as text."""
    if path.suffix == ".json":
        return of_profile(path)
    if path.name.startswith("splitwise"):
        return report_rows([row for kind, tp in SPLITWISE for row in read_splitwise(path, kind, tp)[0]])
    return report(path)


def of_profile(path: Path) -> str:
    """The parts of hwmodels.step_times.linear_fit and their errors on every second grid line, held out."""
    profile = load_profile(path).profile
    fit = fit_linear(profile)
    parts = [str(part) for part in (fit.dense, fit.decode, fit.prefill, fit.mixed)]
    errors = [
        f"{error.phase} {error.rows} held out: {error.mean_percent:.2f}/{error.p95_percent:.2f} % mean/p95"
        for error in held_out_errors(profile, linear_model)
    ]
    return "\n".join([*parts, *errors])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
