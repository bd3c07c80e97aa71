"""The ``servetwin`` command."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hwmodels.errors import HardwareError
from serving.errors import UserError
from traces.errors import TraceError

USAGE = """servetwin: a laboratory for elastic LLM serving

  servetwin simulate KEY=VALUE ... out=DIR    run a trace on a simulated cluster
  servetwin replay DIR                        feed a run's journal to a fresh controller, compare every action

Groups: engine, system (system/dispatch, system/batcher, system/admission), model, cluster, trace, slo.
Example: servetwin simulate system=vllm cluster=a100_x8 model=llama3_8b trace=azure_conv out=out/first
Real workers on this machine: realexec run ...
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(run(sys.argv[1:]))


def run(words: Sequence[str]) -> int:
    """Exit status: 0 done, 1 replay found differences, 2 the user must change something, 130 Ctrl-C."""
    return dispatch(words, {"simulate": _simulate, "replay": _replay}, USAGE, "servetwin")


def dispatch(
    words: Sequence[str], commands: dict[str, Callable[[Sequence[str]], int]], usage: str, name: str
) -> int:
    """Run the command that the first word names; every expected failure is one sentence on stderr."""
    if not words or words[0] in ("-h", "--help", "help"):
        print(usage, end="")
        return 0 if words else 2
    command = commands.get(words[0])
    try:
        if command is None:
            raise UserError(f"there is no command {words[0]!r}: write {name} {' | '.join(commands)}")
        return command(words[1:])
    except (UserError, HardwareError, TraceError) as error:
        print(f"{name}: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print(f"{name}: stopped; nothing was written", file=sys.stderr)
        return 130


def _simulate(words: Sequence[str]) -> int:
    from experiments.compose import load_config
    from experiments.progress import progress_bar
    from experiments.result_folder import ResultFolder
    from experiments.simulate import simulate
    from experiments.table import print_summary

    config = load_config(words, "simulate")
    with ResultFolder(config.out, config.overwrite) as folder:
        with progress_bar("simulating") as on_progress:
            summary = simulate(config, folder.path, on_progress)
        target = folder.commit()
    print_summary(summary)
    print(f"results in {target} (open report.html)")
    return 0


def _replay(words: Sequence[str]) -> int:
    from experiments.replay_run import replay_run

    if len(words) != 1:
        raise UserError("replay takes one folder: write servetwin replay DIR with the out= of a run")
    report = replay_run(Path(words[0]))
    print(f"{report.actions} actions of {report.events} events compared, {report.different} differ")
    if report.first_difference is not None:
        print(f"first difference: {report.first_difference}")
    return 1 if report.different else 0
