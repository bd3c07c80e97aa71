"""DynoSim, NVIDIA Dynamo's replay of mock engines (ai-dynamo on PyPI, Apache-2.0; written in Rust).

``python -m dynamo.replay`` reads requests in Mooncake's JSON lines and takes step times as tables, so it gets
ours. SERVETWIN_DYNAMO_PYTHON is an interpreter that can import it.
"""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Final

import numpy as np

from benchmarks.peers.runs import Command, ToolReport
from benchmarks.peers.work import POINTS, REPLICAS, PeerWork
from serving.vocabulary.errors import UserError

NAME: Final = "DynoSim"
VARIABLE: Final = "SERVETWIN_DYNAMO_PYTHON"
TRACE_BLOCK: Final = 512  # prompt tokens per hash in the trace, dynamo.replay's default
VERSION: Final = (
    "from importlib.metadata import version; import dynamo.replay.main; print(version('ai-dynamo'))"
)
# python -m dynamo.replay, with the CPU time of the call that simulates. It reads the trace too; the
# report's wall_time_ms is the loop alone, and its share of the call's wall time is taken of the CPU time.
CHILD: Final = """
import json, sys, time
import dynamo.replay.main as replay
loop = sys.argv.pop(1)
simulate = replay.run_trace_replay
def timed(*words, **options):
    cpu_s, wall_s = time.process_time(), time.perf_counter()
    report = simulate(*words, **options)
    cpu_s, wall_s = time.process_time() - cpu_s, time.perf_counter() - wall_s
    with open(loop, "w") as file:
        json.dump({"cpu_s": cpu_s, "wall_s": wall_s}, file)
    return report
replay.run_trace_replay = timed
sys.exit(replay.main(sys.argv[1:]))
"""


class DynoSim:
    """Files of the work are written into ``folder`` once."""

    name = NAME

    def __init__(self, python: str, version: str, work: PeerWork, folder: Path) -> None:
        self.python, self.version, self.work = python, version, work
        self.trace, self.tables = folder / "mooncake.jsonl", folder / "steps.npz"
        write_trace(work, self.trace)
        write_tables(work, self.tables)

    def command(self, out: Path) -> Command:
        """Offline, one worker per replica in turn, everything else at its default."""
        engine = {
            "block_size": self.work.block_tokens,
            "num_gpu_blocks": self.work.kv_blocks,
            "max_num_seqs": self.work.max_num_seqs,
            "max_num_batched_tokens": self.work.max_num_batched_tokens,
            "planner_profile_data": str(self.tables),
        }
        words = [
            self.python, "-c", CHILD, str(out / "loop.json"), str(self.trace),
            "--replay-mode", "offline",
            "--num-workers", str(REPLICAS),
            "--router-mode", "round_robin",
            "--trace-format", "mooncake",
            "--trace-block-size", str(TRACE_BLOCK),
            "--report-json", str(out / "report.json"),
            "--extra-engine-args", json.dumps(engine),
        ]  # fmt: skip
        return Command(words, out, os.environ)

    def report(self, out: Path) -> ToolReport:
        """From its report."""
        loop = json.loads((out / "loop.json").read_text(encoding="utf-8"))
        report = json.loads((out / "report.json").read_text(encoding="utf-8"))
        share = min(1.0, report["wall_time_ms"] / 1e3 / loop["wall_s"])
        ttft_s, e2e_s = (report[name] / 1e3 for name in ("mean_ttft_ms", "mean_e2e_latency_ms"))
        return ToolReport(loop["cpu_s"] * share, ttft_s, e2e_s, report["completed_requests"])


def write_trace(work: PeerWork, path: Path) -> None:
    """Mooncake's format; no two prompts share a block."""
    tokens_given = 0
    with path.open("w", encoding="utf-8") as file:
        for arrival_ns, prompt, output in work.requests:
            blocks = -(-prompt // TRACE_BLOCK)
            line = {
                "timestamp": arrival_ns / 1e6,
                "input_length": prompt,
                "output_length": output,
                "hash_ids": list(range(tokens_given, tokens_given + blocks)),
            }
            tokens_given += blocks
            file.write(json.dumps(line) + "\n")


def write_tables(work: PeerWork, path: Path) -> None:
    """Our step times: prefill by tokens; decode by tokens in all and tokens per sequence."""
    tokens = work.prefill_tokens()
    in_all = np.linspace(0, work.kv_blocks * work.block_tokens, POINTS)
    each = np.linspace(1, work.largest_context, POINTS)
    np.savez(
        path,
        prefill_isl=tokens.astype(float),
        prefill_ttft_ms=np.array([work.prefill_ms(int(token)) for token in tokens]),
        decode_active_kv_tokens=in_all,
        decode_context_length=each,
        decode_itl=np.array([[work.decode_ms(total / piece, total) for piece in each] for total in in_all]),
    )


def find(work: PeerWork, folder: Path) -> DynoSim | str:
    """The tool, or why it is left out."""
    python = os.environ.get(VARIABLE)
    if not python:
        return f"{VARIABLE} names no interpreter that can import it (pip install ai-dynamo==1.4.2)"
    try:
        answer = subprocess.run([python, "-c", VERSION], capture_output=True, text=True)
    except OSError as error:
        raise UserError(f"{VARIABLE}={python} cannot be started: {error.strerror}") from None
    if answer.returncode:
        return f"{python} cannot import dynamo.replay: {answer.stderr.strip().splitlines()[-1]}"
    return DynoSim(python, answer.stdout.split()[-1], work, folder)
