"""The ``realexec`` command."""

import sys
from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import as_process, dispatch

COMMANDS: Final = {
    "run": "servetwin.cli.real_run:run",
    "observe": "servetwin.cli.real_run:observe",
    "calibrate": "servetwin.cli.calibrate:calibrate",
    "fidelity": "servetwin.cli.fidelity:fidelity",
    "probe": "servetwin.cli.probe:probe",
    "fetch-model": "servetwin.cli.checkpoints:fetch_model",
    "random-checkpoint": "servetwin.cli.checkpoints:random_checkpoint",
    "completion": "servetwin.cli.completion:realexec_completion",
}


def main() -> None:
    """Entry point of the console script."""
    sys.exit(as_process(run))


def run(words: Sequence[str]) -> int:
    """Run one command. Exit status: 0 success, 1 a checked token differs, 4 requests lost with a worker.

    Otherwise as ``servetwin.cli.main.run``.
    """
    return dispatch(words, COMMANDS, "realexec")


if __name__ == "__main__":
    main()
