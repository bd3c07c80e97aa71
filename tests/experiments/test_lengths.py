"""Requests beyond the model's context are refused one by one, as vLLM 0.19.0 does; the rest is served."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from experiments import cli
from experiments.build.build import arrivals_of
from experiments.build.lengths import caps_of, context_labels, is_within_context, truncated
from experiments.compose.compose import load_config
from experiments.compose.resolved import load_resolved
from experiments.config.config import RunConfig
from experiments.run.simulate import prepare
from serving.vocabulary.errors import UserError
from traces.errors import TraceError
from traces.load import load
from traces.workload import Workload

CONTEXT = 8192  # of llama3_8b
HEADER = "arrival_s,prompt_tokens,output_tokens"


def config(*words: str) -> RunConfig:
    return load_config([*words, "out=unused"], "simulate")


def workload(*rows: tuple[int, int], caps: tuple[int, ...] | None = None) -> Workload:
    prompt, output = (np.array(column, dtype=np.int64) for column in zip(*rows))
    named = None if caps is None else np.array(caps, dtype=np.int64)
    arrivals = np.arange(len(rows), dtype=np.int64)
    return Workload(arrivals, prompt, output, "drawn", "by hand", max_new_tokens=named)


@pytest.mark.parametrize(
    ("prompt", "cap", "within"),
    [(6144, 2048, True), (6145, 2047, True), (8191, 1, True), (8192, 2048, False), (9000, 2048, False)],
)
def test_a_cap_that_nobody_named_is_cut_to_what_the_context_leaves(
    prompt: int, cap: int, within: bool
) -> None:
    """get_max_tokens of vllm/entrypoints/utils.py; one that fills the context is refused."""
    requests = workload((prompt, 3000), (10, 10))
    caps = np.broadcast_to(caps_of(config(), requests), 2)
    assert caps.tolist() == [cap, 2048]
    assert is_within_context(config(), requests, caps).tolist() == [within, True]


def test_caps_stay_one_number_where_none_is_cut() -> None:
    assert caps_of(config(), workload((6144, 1), (10, 1))) == 2048


@pytest.mark.parametrize(
    ("usage", "caps", "within"), [("openai_api_server", 4000, False), ("llm_class", 3192, True)]
)
def test_a_cap_that_the_client_named_is_refused_by_the_server_alone(
    usage: str, caps: int, within: bool
) -> None:
    """TokenizeParams._token_len_check of ``vllm serve``; a script's request ends when the context is full."""
    requests = workload((5000, 100), caps=(4000,))
    words = config("cluster=h100_x1", f"engine.usage_context={usage}")
    assert np.broadcast_to(caps_of(words, requests), 1).tolist() == [caps]
    assert is_within_context(words, requests, caps_of(words, requests)).tolist() == [within]


def test_outputs_that_the_context_ends_are_counted_and_told() -> None:
    requests = workload((8000, 500), (8000, 100), (9000, 500), (10, 2500))
    assert truncated(config(), requests) == 2  # the third is refused, the fourth has its cap
    assert context_labels(config(), requests) == ["1 outputs end where the context (max_model_len) is full"]
    assert [request.max_new_tokens for request, _ in arrivals_of(config(), requests)] == [
        192,
        192,
        2048,
        2048,
    ]


def test_a_context_of_ones_own() -> None:
    requests = workload((8000, 500), (10, 10))
    assert np.broadcast_to(caps_of(config("engine.max_model_len=8100"), requests), 2).tolist() == [100, 2048]
    beyond = config("engine.max_model_len=16384")
    assert caps_of(beyond, requests) == 2048
    assert "beyond the 8192 tokens of the model's context" in context_labels(beyond, requests)[0]


def run(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", f"out={folder}", "cluster=a100_x2", *words]) == 0
    summary: dict[str, Any] = json.loads((folder / "summary.json").read_text())
    return summary


@pytest.mark.parametrize("system", ["vllm", "distserve_full", "serverlessllm"])
def test_a_run_serves_the_others_and_says_why_not_all(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], system: str
) -> None:
    rows = ("0,100,5", "0.5,9000,5", "1,8190,9", "1.5,20000,5", "2,8192,5")
    (tmp_path / "t.csv").write_text("\n".join((HEADER, *rows)) + "\n")
    words = ("trace=file", f"trace.path={tmp_path / 't.csv'}", f"system={system}", "cluster=blitz_b")
    folder = tmp_path / "run"
    assert cli.run(["simulate", f"out={folder}", *words, "journal=true"]) == 0
    summary = json.loads((folder / "summary.json").read_text())
    assert (summary["requests"]["finished"], summary["requests"]["rejected"]) == (2, 3)
    ((reason, times),) = summary["rejected_reasons"].items()
    assert times == 3 and f"context of {CONTEXT} tokens" in reason
    assert pq.read_table(folder / "requests.parquet")["output_tokens"].to_pylist() == [5, 2]
    unserved = pq.read_table(folder / "unserved.parquet").to_pydict()
    assert unserved["request"] == [1, 3, 4] and unserved["prompt_tokens"] == [9000, 20000, 8192]
    assert set(unserved["outcome"]) == {"rejected"} and set(unserved["reason"]) == {reason}
    assert unserved["end_ns"] == unserved["arrival_ns"]
    assert "3 rejected: the prompt fills the context of 8192 tokens" in capsys.readouterr().out
    assert cli.run(["replay", str(folder)]) == 0


def test_a_run_that_answers_all_has_no_such_file(tmp_path: Path) -> None:
    run(tmp_path / "run", "trace=azure_conv_like", "trace.requests=5")
    assert not (tmp_path / "run" / "unserved.parquet").exists()
    assert "max_model_len" not in (tmp_path / "run" / "config.yaml").read_text()
    assert load_resolved(tmp_path / "run" / "config.yaml").engine.max_model_len is None


def test_the_range_of_the_step_times_refuses_the_trace_and_says_what_to_write(tmp_path: Path) -> None:
    """On the A100 the coefficients of qwen2_5_72b answer for 16,384 tokens of a context of 32,768."""
    (tmp_path / "t.csv").write_text("\n".join((HEADER, "0,100,5", "1,20000,5", "2,40000,5")) + "\n")
    words = (
        "model=qwen2_5_72b", "model.tp=4", "cluster=a100_x4",
        "trace=file", f"trace.path={tmp_path / 't.csv'}",
    )  # fmt: skip
    with pytest.raises(UserError) as told:
        prepare(config(*words))
    assert "request 1 of t (the first is 0) has a prompt of 20000 tokens" in str(told.value)
    assert "engine.max_model_len=16384 to have such requests refused one by one" in str(told.value)
    prepared = prepare(config(*words, "engine.max_model_len=16384"))
    assert prepared.replicas[0].max_model_len == 16384


def test_a_trace_of_which_nothing_fits_is_refused(tmp_path: Path) -> None:
    (tmp_path / "t.csv").write_text("\n".join((HEADER, "0,9000,5", "1,10000,5")) + "\n")
    with pytest.raises(
        UserError, match="no request of t fits the context of 8192 tokens: the shortest prompt"
    ):
        prepare(config("trace=file", f"trace.path={tmp_path / 't.csv'}"))


@pytest.mark.parametrize(
    ("words", "refused"),
    [
        (("cluster=h100_x32", "model=llama3_1_8b"), 0),
        (("cluster=h200_x32", "model=llama3_1_70b", "model.tp=4"), 0),
        (("cluster=h100_x32", "model=llama3_8b"), 5412),
        (("cluster=h200_x32", "model=qwen2_5_72b", "model.tp=4"), 829),
    ],
)
def test_the_mooncake_conversation_trace_runs_on_every_model(words: tuple[str, ...], refused: int) -> None:
    """Prompts to 126,195 tokens."""
    try:
        load("mooncake_conversation", path=None, format=None, seed=0)
    except TraceError as error:
        pytest.skip(str(error))
    prepared = prepare(config(*words, "trace=mooncake_conversation"))
    caps = caps_of(prepared.config, prepared.workload)
    assert int((~is_within_context(prepared.config, prepared.workload, caps)).sum()) == refused
