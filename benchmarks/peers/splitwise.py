"""splitwise-sim (github.com/Mutinifni/splitwise-sim, MIT): ``run.py`` of a checkout, with Hydra overrides.

SERVETWIN_SPLITWISE_SIM is the checkout, SERVETWIN_SPLITWISE_PYTHON an interpreter with what it requires (this
one if it is not set). Its replica is a server of eight GPUs, so there are eight servers; its Llama-2-70B gets
our step times of Llama-3-8B.
"""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Final

from benchmarks.peers.runs import Command, ToolReport, mean_s
from benchmarks.peers.work import REPLICAS, PeerWork
from serving.vocabulary.errors import UserError

NAME: Final = "splitwise-sim"
VARIABLE: Final = "SERVETWIN_SPLITWISE_SIM"
PYTHON: Final = "SERVETWIN_SPLITWISE_PYTHON"
FIRST_S: Final = 1.0  # it lets a request of time 0 arrive before its instances exist
MODEL: Final = ("llama2-70b", "a100-80gb", 8)  # as performance_model.py looks rows up
TRACE_HEAD: Final = (
    "request_id", "request_type", "application_id", "arrival_timestamp", "batch_size", "prompt_size",
    "token_size",
)  # fmt: skip
TABLE_HEAD: Final = (
    "model", "hardware", "tensor_parallel", "prompt_size", "batch_size", "token_size", "prompt_time",
    "token_time",
)  # fmt: skip
# run.py, with the CPU time of its event loop: reading the trace and writing results are outside.
CHILD: Final = """
import json, os, runpy, sys, time
sys.path[0] = os.getcwd()  # Hydra changes the folder before the last modules are imported
loop = sys.argv.pop(1)
import simulator
events = simulator.Simulator.run
def timed(self):
    cpu_s = time.process_time()
    events(self)
    with open(loop, "w") as file:
        json.dump({"cpu_s": time.process_time() - cpu_s}, file)
simulator.Simulator.run = timed
runpy.run_path("run.py", run_name="__main__")
"""


class SplitwiseSim:
    """Files of the work are written into ``folder`` once."""

    name = NAME

    def __init__(self, checkout: Path, python: str, work: PeerWork, folder: Path) -> None:
        self.checkout, self.python, self.version = checkout, python, commit_of(checkout)
        self.trace, self.table = folder / "splitwise_trace.csv", folder / "splitwise_steps.csv"
        self.work = work
        write_trace(work, self.trace)
        write_table(work, self.table)

    def command(self, out: Path) -> Command:
        """Its README's baseline: mixed batches, the server with the fewest pending tokens."""
        words = [
            self.python, "-c", CHILD, str(out / "loop.json"),
            "cluster=half_half",
            f"cluster.servers.0.count={REPLICAS}",
            "cluster.servers.1.count=0",
            "applications.0.scheduler=token_jsq",
            f"applications.0.model_architecture={MODEL[0]}",
            f"applications.0.model_size={MODEL[0]}-fp16",
            "start_state=baseline",
            f"start_state.instance.max_batch_size={self.work.max_num_seqs}",
            f"start_state.instance.max_batch_tokens={self.work.max_num_batched_tokens}",
            "performance_model=db",
            f"performance_model.db_path={self.table}",
            f"trace.path={self.trace}",
            f"output_dir={out / 'run'}",
            "seed=0",
        ]  # fmt: skip
        return Command(words, self.checkout, os.environ | {"HYDRA_FULL_ERROR": "1"})

    def report(self, out: Path) -> ToolReport:
        """From detailed/0.csv, one line per request."""
        loop = json.loads((out / "loop.json").read_text(encoding="utf-8"))
        with (out / "run" / "detailed" / "0.csv").open(encoding="utf-8", newline="") as file:
            rows = list(csv.DictReader(file))
        ttft_s, e2e_s = (
            mean_s([float(row[name]) for row in rows]) for name in ("ttft_times", "response_times")
        )
        return ToolReport(loop["cpu_s"], ttft_s, e2e_s, len(rows))


def write_trace(work: PeerWork, path: Path) -> None:
    """Its README's format, arrivals in seconds; request type 2 is a generating model."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(TRACE_HEAD)
        for number, (arrival_ns, prompt, output) in enumerate(work.requests):
            lines.writerow((number, 2, 0, FIRST_S + arrival_ns / 1e9, 1, prompt, output))


def write_table(work: PeerWork, path: Path) -> None:
    """Our step times in ms by tokens of a batch: of a prompt, and of a decode step of so many sequences."""
    with path.open("w", encoding="utf-8", newline="") as file:
        lines = csv.writer(file)
        lines.writerow(TABLE_HEAD)
        for tokens in work.prefill_tokens().tolist():
            decode_ms = work.decode_ms(tokens, min(tokens, work.max_num_seqs) * work.mean_context)
            lines.writerow((*MODEL, tokens, 1, 1, work.prefill_ms(tokens), decode_ms))


def commit_of(checkout: Path) -> str:
    """The commit that is checked out, in short."""
    if not (checkout / ".git").exists():  # it may lie in a checkout of something else
        return "unknown"
    words = ["git", "-C", str(checkout), "rev-parse", "--short", "HEAD"]
    try:
        answer = subprocess.run(words, capture_output=True, text=True)
    except OSError:
        return "unknown"
    return answer.stdout.strip() if answer.returncode == 0 else "unknown"


def find(work: PeerWork, folder: Path) -> SplitwiseSim | str:
    """The tool, or why it is left out."""
    checkout = os.environ.get(VARIABLE)
    if not checkout:
        return f"{VARIABLE} names no checkout of it"
    if not (Path(checkout) / "run.py").is_file():
        raise UserError(f"{VARIABLE}={checkout} has no run.py: name a checkout of splitwise-sim")
    return SplitwiseSim(Path(checkout).resolve(), os.environ.get(PYTHON) or sys.executable, work, folder)
