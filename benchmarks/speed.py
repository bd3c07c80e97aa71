"""How fast the simulator is, in raw SimPy timeouts per request (see benchmarks/README.md).

python -m benchmarks.speed                 all scenarios but the large ones
python -m benchmarks.speed static journal  some of them
python -m benchmarks.speed large           up to 1.43 million requests
python -m benchmarks.speed --check [...]   hold the ratios against benchmarks/baseline.json
python -m benchmarks.speed --record [...]  write them there

A check ends with exit status 1 when a row is more than 20 % above what is recorded. Every scenario runs
interpreted and, where there is a compiled core, compiled, each in a fresh process, the runs of both in turn.
"""

import platform
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from functools import partial

from benchmarks import baseline
from benchmarks.baseline import Entries, Verdict, judge
from benchmarks.command import among, command
from benchmarks.modes import COMPILED, INTERPRETED, MODES
from benchmarks.scenarios import ALL, LARGE, SCENARIOS
from benchmarks.speed_runs import Measured, ModeRuns, measure
from servetwin.config.version import code_version
from serving.vocabulary.errors import UserError

OPTIONS = ("--check", "--record")
HEAD = (
    "| scenario | interpreted raw (median) | compiled raw (median) | us CPU | raw us | budget | "
    "requests per CPU-s | events | peak MB |\n|---|---|---|---|---|---|---|---|---|"
)


def main(words: list[str]) -> int:
    """Print one line per scenario; record or compare."""
    options = [word for word in words if word.startswith("-")]
    among(options, OPTIONS, "option")
    if len(options) > 1:
        raise UserError("it takes --check or --record, once: leave one out")
    names = _names([word for word in words if word not in options])
    if options == ["--check"]:
        return check(names)
    print(HEAD, flush=True)
    for name in names:
        measured = measure(name, MODES)
        print(row(name, measured), flush=True)
        if options == ["--record"]:
            record(name, measured)
    return 0


def _names(words: Sequence[str]) -> list[str]:
    among(words, ["large", *ALL], "scenario")
    named = [name for word in words for name in (LARGE if word == "large" else [word])]
    return named or list(SCENARIOS)


def row(name: str, measured: Measured) -> str:
    """A line of the table; pairs are interpreted / compiled."""
    known = {mode: runs for mode, runs in measured.items() if isinstance(runs, ModeRuns)}
    if not known:
        return f"| `{name}` | left out: {measured[INTERPRETED]} |"
    budget = ALL[name].budget

    def ratio(mode: str) -> str:
        return f"{known[mode].runs.best:.1f} ({known[mode].runs.median:.1f})" if mode in known else "-"

    def pair(values: Iterable[str]) -> str:
        return " / ".join(values)

    cells = (
        f"`{name}`",
        ratio(INTERPRETED),
        ratio(COMPILED),
        pair(f"{runs.runs.best_cpu_s * 1e6:.2f}" for runs in known.values()),
        pair(f"{runs.runs.best_raw_s * 1e6:.3f}" for runs in known.values()),
        "-" if budget is None else pair(f"{raw:g}" for raw in budget),
        pair(f"{1 / runs.runs.best_cpu_s:,.0f}" for runs in known.values()),
        pair(dict.fromkeys(f"{runs.events:.2f}" for runs in known.values())),
        pair(f"{runs.peak_mb:.0f}" for runs in known.values()),
    )
    return f"| {' | '.join(cells)} |"


def record(name: str, measured: Measured) -> None:
    """Put what was measured into the file; what was left out stays as it was."""
    entries = baseline.read()
    for mode, runs in measured.items():
        if isinstance(runs, ModeRuns):
            entries.setdefault(name, {})[mode] = {
                "raw": round(runs.runs.best, 2),
                "cpu_us": round(runs.runs.best_cpu_s * 1e6, 2),
                "raw_us": round(runs.runs.best_raw_s * 1e6, 4),
                "events_per_request": round(runs.events, 3),
                "date": datetime.now(UTC).date().isoformat(),
                "python": platform.python_version(),
                "commit": code_version()["commit"],
            }
    order = [*ALL, *entries]
    baseline.write(dict(sorted(entries.items(), key=lambda entry: order.index(entry[0]))))


def check(names: Sequence[str]) -> int:
    """Print one line per scenario and mode; 1 when one is slower than recorded."""
    entries, verdicts = baseline.read(), list[Verdict]()
    for name in names:
        for verdict in _judged(name, entries):
            print(verdict.line(), flush=True)
            verdicts.append(verdict)
    line, status = baseline.ending(verdicts)
    print(line)
    return status


def _judged(name: str, entries: Entries) -> Iterator[Verdict]:
    for mode, runs in measure(name, MODES).items():
        ratio = runs if isinstance(runs, str) else runs.runs.best
        yield judge(name, mode, ratio, entries, partial(_again, name, mode))


def _again(name: str, mode: str) -> float:
    runs = measure(name, [mode])[mode]
    assert isinstance(runs, ModeRuns), "it was measured a moment ago"
    return runs.runs.best


if __name__ == "__main__":
    command("benchmarks.speed", __doc__, main)
