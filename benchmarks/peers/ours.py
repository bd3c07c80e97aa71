"""ServeTwin: ``servetwin simulate`` as a user runs it, journal off."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from benchmarks.modes import environment
from benchmarks.peers.runs import Command, ToolReport
from benchmarks.peers.work import WORDS
from servetwin.config.version import code_version

MAIN = "from servetwin.cli.main import main; main()"


class Ours:
    """One of the two cores."""

    def __init__(self, mode: str) -> None:
        self.mode, self.name = mode, f"ServeTwin, {mode}"
        self.version = str(code_version()["version"])

    def command(self, out: Path) -> Command:
        """The result folder is ``out``/run."""
        words = [sys.executable, "-c", MAIN, "simulate", *WORDS, "uncertainty=off", f"out={out / 'run'}"]
        return Command(words, Path.cwd(), environment(self.mode) | {"PYTHONPATH": _path()})

    def report(self, out: Path) -> ToolReport:
        """From summary.json: from the first event to the last metric."""
        summary = json.loads((out / "run" / "summary.json").read_text(encoding="utf-8"))
        ttft_s, e2e_s = (summary[name]["mean"] / 1e3 for name in ("ttft_ms", "e2e_ms"))
        return ToolReport(summary["sim"]["cpu_s"], ttft_s, e2e_s, summary["requests"]["finished"])


def _path() -> str:
    """This checkout first."""
    here = str(Path(__file__).resolve().parents[2])
    return os.pathsep.join([here, *filter(None, [os.environ.get("PYTHONPATH")])])
