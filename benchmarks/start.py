"""What a command costs beside the event loop: imports, composing, reading, writing (benchmarks/README.md).

python -m benchmarks.start            10,000 requests without journal and range, and --help of every command
python -m benchmarks.start run        some of the rows: run, run_anew, one, plan, help, help_anew

Each is a process of its own, and counted is all its CPU time, user and system, with that of its children.
``_anew``: nothing was kept between commands (SERVETWIN_CACHE=off), as the first time. ``one``: a run of one
drawn request with its range, nearly all of it start-up. ``plan``: README's plan, two processes and all. The
aims are 1.2 s interpreted and 0.8 s compiled for the run, 0.45 s for one request, 9 s for the plan, 0.3 s for
each --help.
"""

import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.command import among, command
from benchmarks.modes import available, environment
from benchmarks.raw import measured
from traces.errors import TraceError
from traces.find import find_trace

REPEATS = 7
REQUESTS = 10_000
ROWS = ("run", "run_anew", "one", "plan", "help", "help_anew")
PLAN = ("model=llama3_70b", "gpu=h100", "slo.ttft_p99_ms=500")
SERVETWIN = "from servetwin.cli.main import main; main()"
REALEXEC = "from servetwin.cli.realexec import main; main()"
HELPED = ("", "simulate", "replay", "support", "profile", "traces", "reproduce", "reproduce blitzscale")


def cpu_s(code: str, words: list[str], environ: Mapping[str, str]) -> float:
    """CPU seconds of a fresh process that runs ``code`` with these words, and of its children."""
    started = subprocess.Popen(
        [sys.executable, "-c", code, *words], env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE
    )
    assert started.stderr is not None
    errors = started.stderr.read().decode()
    _, status, usage = os.wait4(started.pid, 0)
    started.returncode = os.waitstatus_to_exitcode(status)
    if started.returncode:
        raise TraceError(f"{' '.join(words)} failed ({errors.strip()}): run it by itself")
    return usage.ru_utime + usage.ru_stime


def trace_words() -> list[str]:
    """The first requests of the recorded trace where it is, else as many drawn ones."""
    try:
        find_trace("azure_conv")
    except TraceError:
        return ["trace=azure_conv_like", f"trace.requests={REQUESTS}"]
    return ["trace=azure_conv", f"trace.limit={REQUESTS}"]


def tell(name: str, code: str, words: list[str], environ: Mapping[str, str], mode: str) -> None:
    """Print one row; the first process is not counted, for it compiles and fills what is kept."""
    cpu_s(code, words, environ)
    runs = measured(lambda: cpu_s(code, words, environ), REPEATS)
    print(
        f"{name:<40} {mode:<11} {runs.best_cpu_s:5.2f} s CPU   {runs.best / 1e3:7,.0f} (median "
        f"{runs.median / 1e3:,.0f}) thousand raw   raw {runs.best_raw_s * 1e6:.3f} us",
        flush=True,
    )


def main(words: list[str]) -> None:
    """Print the rows asked for, interpreted and compiled."""
    among(words, ROWS, "row")
    rows = words or list(ROWS)
    with TemporaryDirectory() as folder:
        out = ["overwrite=true", f"out={Path(folder) / 'run'}"]
        run = [
            "simulate",
            "system=vllm",
            "cluster=a100_x8",
            "model=llama3_8b",
            *trace_words(),
            "uncertainty=off",
            *out,
        ]
        for mode in available():
            cached = environment(mode) | {"SERVETWIN_CACHE": str(Path(folder) / "cache")}
            cached.pop("PYTHONDONTWRITEBYTECODE", None)  # else every process compiles its modules anew
            anew = cached | {"SERVETWIN_CACHE": "off"}
            for name, environ in (("run", cached), ("run_anew", anew)):
                if name in rows:
                    tell(f"{name}: {' '.join(run[4:6])}", SERVETWIN, run, environ, mode)
            if "one" in rows:
                one = ["simulate", "trace=azure_conv_like", "trace.requests=1", *out]
                tell("one: trace.requests=1", SERVETWIN, one, cached, mode)
            if "plan" in rows:
                tell("plan: the whole trace", SERVETWIN, ["plan", trace_words()[0], *PLAN], cached, mode)
            if "help" in rows:
                for helped in HELPED:
                    tell(f"help: servetwin {helped}", SERVETWIN, [*helped.split(), "--help"], cached, mode)
                for helped in ("", "run"):
                    tell(f"help: realexec {helped}", REALEXEC, [*helped.split(), "--help"], cached, mode)
            if "help_anew" in rows:
                tell("help_anew: servetwin simulate", SERVETWIN, ["simulate", "--help"], anew, mode)


if __name__ == "__main__":
    command("benchmarks.start", __doc__, main)
