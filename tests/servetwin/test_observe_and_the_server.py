"""What realexec observe reports, held against what the server itself wrote down, by one clock."""

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pandas as pd

from servetwin.cli import realexec as realexec_cli
from tests.worlds.processes import ROOT, default_signals

STEP_S = 0.02
WORDS = ("trace.limit=20", "trace.rate_scale=2", "trace.tokens_scale=0.05", "http.check_tokens=0")


@contextmanager
def served(log: Path) -> Iterator[str]:
    """A made-up server in a process of its own."""
    words = [f"step_s={STEP_S}", "prefill_s_per_token=0.0002", "max_num_seqs=64", f"log={log}"]
    command = [sys.executable, "-m", "tests.worlds.fake_openai", *words]
    with subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, text=True, preexec_fn=default_signals
    ) as process:
        assert process.stdout is not None
        try:
            yield process.stdout.readline().strip()
        finally:
            process.kill()


def by_server(log: Path, prompt_tokens: list[int]) -> pd.DataFrame:
    """Of the run's requests, which come last and in order: TTFT and E2E in ms."""
    lines = [json.loads(line) for line in log.read_text().splitlines()]
    rows = sorted(lines, key=lambda one: one["read_ns"])[-len(prompt_tokens) :]
    assert [one["prompt_tokens"] for one in rows] == prompt_tokens
    read, first, last = (
        np.array([one["read_ns"] for one in rows]),
        np.array([one["written_ns"][0] for one in rows]),
        np.array([one["written_ns"][-1] for one in rows]),
    )
    return pd.DataFrame({"ttft": first - read, "e2e": last - read}) / 1e6


def by_client(rows: pd.DataFrame) -> pd.DataFrame:
    return (
        pd.DataFrame(
            {
                "ttft": rows.first_token_ns - rows.arrival_ns,
                "e2e": rows.finish_ns - rows.arrival_ns,
            }
        )
        / 1e6
    )


def test_observe_reports_no_token_before_the_server_wrote_it(tmp_path: Path) -> None:
    """On any machine; how soon after that is not judged here (test_observe_and_a_client, by stated times)."""
    log, out = tmp_path / "log", tmp_path / "seen"
    with served(log) as url:
        assert realexec_cli.run(["observe", url, *WORDS, f"out={out}"]) == 0
    rows = pd.read_parquet(out / "requests.parquet").sort_values("request", ignore_index=True)
    assert len(rows) == 20 and rows.output_tokens.sum() > 100
    later = by_client(rows) - by_server(log, rows.prompt_tokens.tolist())
    assert (later.ttft >= 0).all() and (later.e2e >= 0).all(), later
