"""The ``servetwin`` command."""

import sys
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import Command, as_process, dispatch, tell, telling
from serving.vocabulary.errors import PlaceError, UserError

USAGE = """servetwin: a laboratory for elastic LLM serving

  servetwin simulate KEY=VALUE ... out=DIR    run a trace on a simulated cluster (simulate --help: every key)
  servetwin plan trace=T model=M gpu=G slo.ttft_p99_ms=500    fewest GPUs, or cheapest layout (plan --help)
  servetwin sweep KEY=A,B ... out=DIR         many runs: every combination, resumable (sweep --help)
  servetwin replay DIR                        feed a run's journal to a fresh controller, compare every action
                                              (name policies of your own again: system/dispatch=module:Class)
  servetwin story DIR request=17              what happened to one request (or instance=3) (story --help)
  servetwin timeline DIR                      the journal for Perfetto: instances, loads, transfers, decisions
  servetwin export DIR to=aiperf out=FILE     under the names of AIPerf, inference-perf or vLLM's benchmark
  servetwin compare DIR DIR ...               runs side by side: who is better, by how much, what differs
  servetwin compare DIR MEASURED              how far a run is from a measured one (compare --help)
  servetwin support model=M gpu=G tp=N        which step times and how much KV memory a combination has
  servetwin profile import | check | fit ...  measured operation times (profile --help)
  servetwin traces list | fetch | describe | convert | sample ...  workloads (traces --help)
  servetwin new-policy dispatch NAME          a policy of your own to start from, with a test
  servetwin doctor                            what is installed, what is missing, how to get it
  servetwin completion bash | zsh             for your shell: eval "$(servetwin completion bash)"
  servetwin reproduce blitzscale FIGURE ...   figures of a paper, ours beside the paper's (reproduce --help)

--json on every command: one document in place of text (of story one a line); -q prints errors alone, -v
tracebacks too.
Exit status: 0 done, 1 the answer is no (replay found differences, nothing meets a plan's objective), 2 you
must change something, 3 a fault of the program, 130 Ctrl-C.

Groups: engine, system (system/dispatch, system/batcher, system/admission, system/scaler, system/provision,
system/cache, system/live, system/migration, system/stages), model, models, cluster, trace, slo, faults.
Example: servetwin simulate system=vllm cluster=a100_x8 model=llama3_8b trace=azure_conv out=out/first
Real workers on this machine: realexec run ...
"""


def main() -> None:
    """Entry point of the console script."""
    sys.exit(as_process(run))


def run(words: Sequence[str]) -> int:
    """Run one command. Exit status: 0 success, 1 replay differs, 2 user error, 3 internal error.

    130 after Ctrl-C, 143 after SIGTERM, 129 after SIGHUP.
    """
    return dispatch(words, commands(), USAGE, "servetwin")


def commands() -> dict[str, Command]:
    """Map the first word of every command to its implementation."""
    found: dict[str, Command] = {
        "simulate": _simulate,
        "plan": _plan,
        "sweep": _sweep,
        "replay": _replay,
        "story": _story,
        "timeline": _timeline,
        "export": _export,
        "compare": _compare,
        "support": _support,
        "profile": _profile,
        "traces": _traces,
        "reproduce": _reproduce,
        "new-policy": _new_policy,
        "doctor": _doctor,
        "completion": _completion,
    }
    return found


def _simulate(words: Sequence[str]) -> int:
    from servetwin.config.compose.compose import load_config
    from servetwin.report.table import print_summary
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run.first_mistake import both, mistake_in
    from servetwin.run.progress import progress_bar
    from servetwin.run.simulate import simulate

    words, as_json = asked_for_json(words)
    try:
        config = load_config(words, "simulate", alone=True)
        with ResultFolder(config.out, config.overwrite) as folder:
            with progress_bar("simulating") as on_progress:
                summary = simulate(config, folder.path, on_progress)
            target = folder.commit()
    except PlaceError as error:
        raise both(error, mistake_in(words, alone=True)) from error
    kept = f"; the results are in {target}"
    if not as_json:
        with telling(kept):
            print_summary(summary)
    tell(summary, [f"results in {target} (open report.html)"], as_json, kept)
    return 0


def _plan(words: Sequence[str]) -> int:
    from servetwin.cli.plan import plan

    return plan(words)


def _sweep(words: Sequence[str]) -> int:
    from servetwin.cli.sweep import sweep

    return sweep(words)


def _replay(words: Sequence[str]) -> int:
    from servetwin.run.replay_run import replay_run

    words, as_json = asked_for_json(words)
    if not words:
        raise UserError("replay takes one folder: write servetwin replay DIR with the out= of a run")
    report = replay_run(Path(words[0]), words[1:])
    lines = [f"{report.actions} actions of {report.events} events compared, {report.different} differ"]
    if report.first_difference is not None:
        lines.append(f"first difference: {report.first_difference}")
    if report.cut is not None:
        lines.append(report.cut)
    tell(asdict(report), lines, as_json)
    return 1 if report.different or report.cut is not None else 0


def _story(words: Sequence[str]) -> int:
    from servetwin.cli.story import story

    return story(words)


def _compare(words: Sequence[str]) -> int:
    from servetwin.cli.compare import compare

    return compare(words)


def _support(words: Sequence[str]) -> int:
    from servetwin.cli.support import support

    return support(words)


def _profile(words: Sequence[str]) -> int:
    from servetwin.cli.profile import profile

    return profile(words)


def _traces(words: Sequence[str]) -> int:
    from servetwin.cli.traces import traces

    return traces(words)


def _reproduce(words: Sequence[str]) -> int:
    from experiments.reproduce import reproduce

    return reproduce(words)


def _new_policy(words: Sequence[str]) -> int:
    from servetwin.cli.new_policy import new_policy

    return new_policy(words)


def _timeline(words: Sequence[str]) -> int:
    from servetwin.cli.timeline import timeline

    return timeline(words)


def _export(words: Sequence[str]) -> int:
    from servetwin.cli.export import export

    return export(words)


def _doctor(words: Sequence[str]) -> int:
    from servetwin.cli.doctor import doctor

    return doctor(words)


def _completion(words: Sequence[str]) -> int:
    from servetwin.cli.completion import completion

    return completion(words, list(commands()))


if __name__ == "__main__":
    main()
