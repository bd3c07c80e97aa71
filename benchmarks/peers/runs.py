"""One run of one simulator in a process of its own, and what it cost."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Protocol

from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class ToolReport:
    """What a run reports. loop_cpu_s: CPU of the events alone. Means over all requests, in seconds."""

    loop_cpu_s: float
    ttft_s: float
    e2e_s: float
    requests: int


@dataclass(frozen=True, slots=True)
class ToolRun:
    """``process_cpu_s``: user and system time of the whole process, as the operating system counted it."""

    report: ToolReport
    process_cpu_s: float


@dataclass(frozen=True, slots=True)
class Command:
    """A process to start."""

    words: Sequence[str]
    folder: Path
    env: Mapping[str, str]


class Tool(Protocol):
    """A simulator that can run here."""

    name: str
    version: str

    def command(self, out: Path) -> Command:
        """The process that simulates once and writes below ``out``."""

    def report(self, out: Path) -> ToolReport:
        """Read what it wrote."""


def run(tool: Tool, out: Path) -> ToolRun:
    """Simulate once; ``out`` is made. UserError when the process fails."""
    out.mkdir(parents=True)
    command = tool.command(out)
    log = out / "log.txt"
    with log.open("wb") as file:
        process = subprocess.Popen(
            command.words, cwd=command.folder, env=dict(command.env),
            stdin=subprocess.DEVNULL, stdout=file, stderr=subprocess.STDOUT,
        )  # fmt: skip
        _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode:
        lines = log.read_text(encoding="utf-8", errors="replace").strip().splitlines() or ["it said nothing"]
        raise UserError(f"{tool.name} ended with exit status {process.returncode}: {lines[-1]}")
    return ToolRun(tool.report(out), usage.ru_utime + usage.ru_stime)


@dataclass(frozen=True, slots=True)
class Summary:
    """The least of several runs, each number on its own, since noise only adds. report: of any run."""

    name: str
    version: str
    loop_cpu_s: float
    process_cpu_s: float
    report: ToolReport

    @property
    def requests_per_cpu_s(self) -> float:
        """Of the loop."""
        return self.report.requests / self.loop_cpu_s


def summary(tool: Tool, runs: Sequence[ToolRun]) -> Summary:
    """Of the runs of one tool."""
    loop, process = min(each.report.loop_cpu_s for each in runs), min(each.process_cpu_s for each in runs)
    return Summary(tool.name, tool.version, loop, process, runs[0].report)


def mean_s(values: Sequence[float]) -> float:
    """Their mean; UserError where there are none."""
    if not values:
        raise UserError("the simulator reports no request: its results cannot be compared")
    return fmean(values)
