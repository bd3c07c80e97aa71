"""Check a GPU with one command: tests, loads, live scaling and migrations of an 8B model, a fidelity table.

python -m benchmarks.gpu out=DIR [steps=scaling,tests] [minutes=30] [KEY=VALUE ...]
    # steps: checkpoint, scaling, replay, migration, tests, loads, fidelity

Each step is a command of its own with a time limit; a step that fails or reaches its limit does not end the
others. After each step DIR/page.md and DIR/results.json have the results so far; DIR/log.txt has all output.
Without steps= all run, in this order, until minutes= are over. KEY=VALUE: keys of ``realexec run`` for every
step, such as cluster.gpu=h200, model= or model.checkpoint=DIR (default models/MODEL; if there is no such
folder, the step ``checkpoint`` writes random parameters there). Exit status 1 if a step did not pass.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from benchmarks.command import among, command, count
from serving.vocabulary.errors import UserError

MINUTES = 30
# An 8B model in bfloat16: links at cluster=local's measured rate of a CPU machine would take minutes a load.
KEYS = {
    "device": "cuda", "cluster.gpu": "h100", "cluster.nic_gbps": "50", "model": "llama3_1_8b",
    "model.dtype": "bfloat16",
}  # fmt: skip
# A single waiting prompt asks for the second instance, whatever the GPU's speed; 16 GB take 2.6 s over these
# links, long enough for live passes.
SCALING = (
    "workers=2", "system=blitzscale", "system.instances.split=false",
    "system.scaler.prefill=[0.00001,0.00002]",
    "trace=azure_conv_like", "trace.limit=24", "trace.tokens_scale=0.1", "trace.rate_per_s=40",
    "journal=true",
)  # fmt: skip
SCALED = ("loads", "live_passes", "tokens_checked")
FIDELITY = ("repeat=3", "trace.limit=48", "quick=true")
PASSED, LAST_LINES = "passed", 12


@dataclass(frozen=True)
class CheckStep:
    """One command. ``words`` follow the interpreter's name; it runs only if the step ``needs`` has passed."""

    name: str
    words: tuple[str, ...]
    limit_s: float
    needs: str | None = None
    counts: tuple[str, ...] = ()  # of the run's summary.json: without one of each the step has shown nothing


@dataclass(frozen=True, kw_only=True)
class StepResult:
    """``status``: "passed", or what happened instead. ``last``: the last lines of its output.

    ``real``: that part of the run's summary.json (tokens, loads, live passes), where the step is a run.
    """

    name: str
    command: str
    status: str
    seconds: float
    last: tuple[str, ...]
    real: dict[str, Any] | None = None


def steps_of(out: Path, words: Sequence[str]) -> list[CheckStep]:
    """All steps, in the order in which they run; ``given`` are keys of ``realexec run``."""
    keys = KEYS | dict(word.split("=", 1) for word in words)
    folder = keys.pop("model.checkpoint", None) or f"models/{keys['model']}"
    loaded = [*_words(keys), f"model.checkpoint={folder}"]
    written = None if Path(folder).exists() else "checkpoint"
    scaled, shape = out / "scaling", {key: keys[key] for key in ("device", "model", "model.dtype")}
    machine = {key: keys[key] for key in ("device", "cluster.gpu")}
    checkpoint = _real("random-checkpoint", 180, *_words(shape), f"out={folder}", name="checkpoint")
    return [
        *([checkpoint] if written else []),
        replace(
            _real("run", 300, *SCALING, *loaded, f"out={scaled}", name="scaling", needs=written),
            counts=SCALED,
        ),
        CheckStep("replay", ("-m", "servetwin.cli.main", "replay", str(scaled)), 60, "scaling"),
        CheckStep("migration", ("-m", "benchmarks.migration_down_time", "4", "4000", *loaded), 420, written),
        CheckStep("tests", ("-m", "pytest", "-q", "-m", "real and gpu", "tests/realexec"), 420),
        CheckStep("loads", ("-m", "benchmarks.loads", *loaded), 180, written),
        _real("fidelity", 900, *FIDELITY, *_words(machine), f"out={out}/fidelity", name="fidelity"),
    ]


def _words(keys: Mapping[str, str]) -> list[str]:
    return [f"{key}={value}" for key, value in keys.items()]


def _real(verb: str, limit_s: float, *words: str, name: str, needs: str | None = None) -> CheckStep:
    """A command of ``realexec``."""
    return CheckStep(name, ("-m", "servetwin.cli.realexec", verb, *words), limit_s, needs)


def main(words: list[str]) -> int:
    """Exit status."""
    for word in words:
        if "=" not in word:
            raise UserError(f"{word!r} is not KEY=VALUE: leave it out")
    keys = dict(word.split("=", 1) for word in words)
    if "out" not in keys:
        raise UserError("there is no out=DIR: write the folder for the results")
    out = Path(keys.pop("out")).expanduser().absolute()
    if out.exists():
        raise UserError(f"{out} exists: write the name of a folder that does not")
    minutes = count(keys.pop("minutes", str(MINUTES)), "number of minutes", f"minutes={MINUTES}")
    named = keys.pop("steps", None)
    steps = steps_of(out, [f"{key}={value}" for key, value in keys.items()])
    if named is not None:
        among(named.split(","), [step.name for step in steps], "step")
        steps = [step for step in steps if step.name in named.split(",")]
    out.mkdir(parents=True)
    return int(any(result.status != PASSED for result in carried_out(steps, out, 60.0 * minutes)))


def carried_out(steps: Iterable[CheckStep], out: Path, left_s: float) -> list[StepResult]:
    """Run the steps one after the other, within ``left_s`` seconds; the page is written after each."""
    machine = subprocess.run(
        [sys.executable, "-m", "servetwin.cli.realexec", "probe"],
        capture_output=True,
        text=True,
        check=False,
    ).stdout
    results: list[StepResult] = []
    ends_s = time.monotonic() + left_s
    for step in steps:
        statuses = {earlier.name: earlier.status for earlier in results}
        if step.needs is not None and statuses.get(step.needs, PASSED) != PASSED:
            result = _left_out(step, f"left out: {step.needs} did not pass")
        elif (rest_s := ends_s - time.monotonic()) <= 0:
            result = _left_out(step, "left out: no time was left")
        else:
            result = run_step(step, out / "log.txt", min(step.limit_s, rest_s))
        results.append(result)
        print(f"{result.name:12s} {result.seconds:6.0f} s   {result.status}", flush=True)
        (out / "page.md").write_text(page(results, machine), encoding="utf-8")
        report = {"machine": machine.splitlines(), "steps": [asdict(step_result) for step_result in results]}
        (out / "results.json").write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return results


def run_step(step: CheckStep, log: Path, limit_s: float) -> StepResult:
    """Run one command; when its time is over, its whole process group is killed."""
    words, began_s = [sys.executable, *step.words], time.monotonic()
    with log.open("a+b") as output:
        output.write(f"\n$ {_shown(step)}\n".encode())
        output.flush()
        start = output.tell()
        child = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
        try:
            code = child.wait(limit_s)
            status = PASSED if code == 0 else f"failed with exit status {code}"
        except subprocess.TimeoutExpired:
            status = f"stopped after {limit_s:.0f} s"
        finally:
            with suppress(ProcessLookupError):
                os.killpg(child.pid, signal.SIGKILL)
            child.wait()
        output.seek(start)
        lines = output.read().decode("utf-8", "replace").splitlines()
    real = _counted(log.parent / step.name)
    if status == PASSED and (lacks := [name for name in step.counts if not (real or {}).get(name)]):
        status = f"ran, and shows nothing: {' and '.join(lacks)} 0"
    seconds, last = round(time.monotonic() - began_s, 1), tuple(lines[-LAST_LINES:])
    return StepResult(
        name=step.name, command=_shown(step), status=status, seconds=seconds, last=last, real=real
    )


def _left_out(step: CheckStep, why: str) -> StepResult:
    return StepResult(name=step.name, command=_shown(step), status=why, seconds=0.0, last=())


def _shown(step: CheckStep) -> str:
    """The command as a user types it."""
    return " ".join(["python", *(f'"{word}"' if " " in word else word for word in step.words)])


def _counted(folder: Path) -> dict[str, Any] | None:
    summary = folder / "summary.json"
    if not summary.exists():
        return None
    values: dict[str, Any] = json.loads(summary.read_text(encoding="utf-8"))["real"]
    return values


def page(results: Sequence[StepResult], machine: str) -> str:
    """Markdown: a row for each step, then its command and the end of its output, then the machine."""
    rows = [f"| {result.name} | {result.seconds:.0f} s | {result.status} |" for result in results]
    parts = [
        f"## {result.name}\n\n```\n$ {result.command}\n"
        + "".join(f"{line}\n" for line in result.last)
        + "```\n"
        for result in results
    ]
    table = "\n".join(["| step | took | result |", "|---|---|---|", *rows])
    return f"# GPU check\n\n{table}\n\n" + "\n".join(parts) + f"\n## Machine\n\n```\n{machine}```\n"


if __name__ == "__main__":
    command("benchmarks.gpu", __doc__, main)
