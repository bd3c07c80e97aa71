"""A scenario measured in several modes: a fresh process each, asked for one run after the other in turn.

Other load of the machine then affects both modes alike, and each mode has the unit of its own process.
"""

import json
import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from benchmarks.modes import NO_COMPILED_CORE, available, environment
from benchmarks.raw import Repeats
from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class ModeRuns:
    """What the runs of one mode took, per request; ``peak_mb``: memory of the process after the first run."""

    runs: Repeats
    events: float
    peak_mb: float


Measured = dict[str, ModeRuns | str]
"""Mode -> its runs, or why it was left out."""


class Child:
    """A process of ``benchmarks.speed_child``."""

    def __init__(self, name: str, mode: str) -> None:
        self.name, self.mode = name, mode
        self.process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.speed_child", name],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, env=environment(mode),
        )  # fmt: skip

    def __enter__(self) -> "Child":
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()

    def answer(self) -> dict[str, Any]:
        """The next line that it writes."""
        assert self.process.stdout is not None
        line = self.process.stdout.readline()
        if not line:
            status = self.process.wait()
            raise UserError(f"{self.name}, {self.mode}: its process ended with exit status {status}")
        fields: dict[str, Any] = json.loads(line)
        if fields.get("ran", self.mode) != self.mode:
            raise UserError(f"{self.name}: asked for the {self.mode} core, its process used {fields['ran']}")
        return fields

    def run(self) -> dict[str, Any]:
        """Have one run made."""
        assert self.process.stdin is not None
        self.process.stdin.write("run\n")
        self.process.stdin.flush()
        return self.answer()


def measure(name: str, modes: Sequence[str]) -> Measured:
    """The scenario in each of ``modes``."""
    measured: Measured = {mode: NO_COMPILED_CORE for mode in modes if mode not in available()}
    with ExitStack() as stack:
        children = [stack.enter_context(Child(name, mode)) for mode in modes if mode in available()]
        first = {child: child.answer() for child in children}
        for child, fields in first.items():
            if "left_out" in fields:
                measured[child.mode] = fields["left_out"]
        waiting = [child for child in children if child.mode not in measured]
        runs: dict[Child, list[dict[str, Any]]] = {child: [] for child in waiting}
        for _ in range(max((first[child]["repeats"] for child in waiting), default=0)):
            for child in waiting:
                runs[child].append(child.run())
        for child in waiting:
            measured[child.mode] = _mode_runs(first[child]["raw_s"], runs[child])
    return {mode: measured[mode] for mode in modes}


def _mode_runs(raw_s: float, runs: list[dict[str, Any]]) -> ModeRuns:
    cpu_s = tuple(run["cpu_s"] for run in runs)
    return ModeRuns(
        Repeats(cpu_s, (raw_s, *(run["raw_s"] for run in runs))), runs[0]["events"], runs[0]["peak_mb"]
    )
