"""The ``servetwin`` command."""

import sys
from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import as_process, dispatch

# First word -> module and function of the command. The papers' figures are experiments'.
COMMANDS: Final = {
    "simulate": "servetwin.cli.simulate:simulate",
    "plan": "servetwin.cli.plan:plan",
    "advise": "servetwin.cli.advise:advise",
    "plot": "servetwin.cli.plot:plot",
    "explore": "servetwin.cli.explore:explore",
    "sweep": "servetwin.cli.sweep:sweep",
    "replay": "servetwin.cli.replay:replay",
    "story": "servetwin.cli.story:story",
    "timeline": "servetwin.cli.timeline:timeline",
    "export": "servetwin.cli.export:export",
    "compare": "servetwin.cli.compare:compare",
    "support": "servetwin.cli.support:support",
    "profile": "servetwin.cli.profile:profile",
    "traces": "servetwin.cli.traces:traces",
    "reproduce": "experiments.reproduce:reproduce",
    "new-policy": "servetwin.cli.new_policy:new_policy",
    "doctor": "servetwin.cli.doctor:doctor",
    "completion": "servetwin.cli.completion:completion",
}


def main() -> None:
    """Entry point of the console script."""
    sys.exit(as_process(run))


def run(words: Sequence[str]) -> int:
    """Run one command. Exit status: 0 success, 1 replay differs, 2 user error, 3 internal error.

    130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    return dispatch(words, COMMANDS, "servetwin")


if __name__ == "__main__":
    main()
