"""The same requests through ServeTwin and other simulators: what each costs (see benchmarks/README.md).

python -m benchmarks.peers      the least of five runs, all tools in turn
python -m benchmarks.peers 2    of two

The first 10,000 requests of the Azure conversation trace (SERVETWIN_TRACES) on 8 replicas. DynoSim runs where
SERVETWIN_DYNAMO_PYTHON names an interpreter that has it, splitwise-sim where SERVETWIN_SPLITWISE_SIM names a
checkout of it; what is not there is left out.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.command import command, count
from benchmarks.modes import COMPILED, MODES, NO_COMPILED_CORE, available
from benchmarks.peers import dynosim, splitwise
from benchmarks.peers.ours import Ours
from benchmarks.peers.runs import Summary, Tool, ToolRun, run, summary
from benchmarks.peers.work import WORDS, PeerWork, work
from serving.vocabulary.errors import UserError

RUNS = 5
HEAD = (
    "| simulator | version | loop CPU s | process CPU s | requests per CPU-s of the loop | "
    "loop, times ours | process, times ours | mean TTFT s | mean E2E s |\n" + "|---" * 9 + "|"
)


def main(words: list[str]) -> None:
    """Print the table, and a line for what is left out."""
    if len(words) > 1:
        raise UserError(f"it takes one number of runs and {words[1]!r} was given too: leave it out")
    runs = count(words[0], "number of runs", "python -m benchmarks.peers 5") if words else RUNS
    the_work = work()
    with TemporaryDirectory() as name:
        folder = Path(name)
        tools, left_out = installed_tools(the_work, folder)
        rows = [summary(tool, of) for tool, of in in_turn(tools, runs, folder)]
    ours = rows[len(available()) - 1]
    print(f"{len(the_work)} requests ({' '.join(WORDS)}), least of {runs} runs in turn")
    print(f"times ours: ours is {ours.name}\n\n{HEAD}")
    for row in rows:
        print(line(row, ours))
    for name, why in left_out:
        print(f"{name} is left out: {why}")


def installed_tools(the_work: PeerWork, folder: Path) -> tuple[list[Tool], list[tuple[str, str]]]:
    """The simulators that are here, ours first; (name, why) of those that are not."""
    tools: list[Tool] = [Ours(mode) for mode in MODES if mode in available()]
    left_out = [] if COMPILED in available() else [(f"ServeTwin, {COMPILED}", NO_COMPILED_CORE)]
    for peer in (dynosim, splitwise):
        tool = peer.find(the_work, folder)
        if isinstance(tool, str):
            left_out.append((peer.NAME, tool))
        else:
            tools.append(tool)
    return tools, left_out


def in_turn(tools: Sequence[Tool], runs: int, folder: Path) -> list[tuple[Tool, list[ToolRun]]]:
    """Each tool once, then each again: what else the machine does hits all of them."""
    of: list[tuple[Tool, list[ToolRun]]] = [(tool, []) for tool in tools]
    for number in range(runs):
        for place, (tool, done) in enumerate(of):
            done.append(run(tool, folder / f"{place}_{number}"))
    return of


def line(row: Summary, ours: Summary) -> str:
    """A line of the table."""
    cells = (
        row.name,
        row.version,
        f"{row.loop_cpu_s:.3f}",
        f"{row.process_cpu_s:.2f}",
        f"{row.requests_per_cpu_s:,.0f}",
        f"{row.loop_cpu_s / ours.loop_cpu_s:.2f}",
        f"{row.process_cpu_s / ours.process_cpu_s:.2f}",
        f"{row.report.ttft_s:.3f}",
        f"{row.report.e2e_s:.3f}",
    )
    return f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    command("benchmarks.peers", __doc__, main)
