"""Prints the linear step-time coefficients of a table of iteration times, with their errors.

python -m scripts.fit_step_times CSV
"""

import sys
from collections.abc import Sequence
from pathlib import Path

from hwmodels.errors import HardwareError
from hwmodels.fit import report


def main(arguments: Sequence[str]) -> int:
    """Exit status 2 when the call or the file is wrong."""
    if len(arguments) != 1:
        print("usage: python -m scripts.fit_step_times CSV", file=sys.stderr)
        return 2
    try:
        print(report(Path(arguments[0])))
    except HardwareError as error:
        print(error, file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
