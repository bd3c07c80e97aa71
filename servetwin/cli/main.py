"""The ``servetwin`` command."""

import sys
from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import Command, as_process, dispatch, loaded_when_run

USAGE: Final = """servetwin: a laboratory for elastic LLM serving

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


# First word -> where its function is, loaded when the command runs. The papers' figures are experiments'.
COMMANDS: Final = {
    "simulate": "servetwin.cli.simulate:simulate",
    "plan": "servetwin.cli.plan:plan",
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
}


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
    return {word: loaded_when_run(place) for word, place in COMMANDS.items()} | {"completion": _completion}


def _completion(words: Sequence[str]) -> int:
    from servetwin.cli.completion import completion

    return completion(words, list(commands()))


if __name__ == "__main__":
    main()
