"""Requests beyond the model's context are refused one by one, as vLLM 0.19.0 does; the rest is served."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow.parquet as pq
import pytest

from servetwin.assemble.build import arrivals_of
from servetwin.assemble.lengths import LengthLimits, context_labels, is_within_context, limits_of, truncated
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved
from servetwin.config.config import RunConfig
from servetwin.run.simulate import prepare
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from traces.errors import TraceError
from traces.load import load
from traces.workload import Workload

CONTEXT = 8192  # of llama3_8b
HEADER = "arrival_s,prompt_tokens,output_tokens"


def config(*words: str) -> RunConfig:
    return load_config([*words, "out=unused"], "simulate")


CAP = "engine.max_new_tokens=2048"


def limits(config: RunConfig, requests: Workload, kv_tokens: int = 1_000_000) -> LengthLimits:
    """Those of a replica of llama3_8b with so many KV tokens."""
    replica = Replica(id=-1, model="llama3_8b", layers=LayerRange(0, 32), gpus=(), kv_blocks=kv_tokens // 16)
    return limits_of(config, requests, {"llama3_8b": replica})


def caps_of(config: RunConfig, requests: Workload, kv_tokens: int = 1_000_000) -> list[int]:
    return np.broadcast_to(limits(config, requests, kv_tokens).caps, len(requests)).tolist()


def workload(*rows: tuple[int, int], caps: tuple[int, ...] | None = None) -> Workload:
    prompt, output = (np.array(column, dtype=np.int64) for column in zip(*rows))
    named = None if caps is None else np.array(caps, dtype=np.int64)
    arrivals = np.arange(len(rows), dtype=np.int64)
    return Workload(
        arrival_ns=arrivals,
        prompt_tokens=prompt,
        output_tokens=output,
        name="drawn",
        source="by hand",
        max_new_tokens=named,
    )


@pytest.mark.parametrize(
    ("prompt", "cap", "within"),
    [(6144, 2048, True), (6145, 2047, True), (8191, 1, True), (8192, 2048, False), (9000, 2048, False)],
)
def test_a_cap_that_nobody_named_is_cut_to_what_the_context_leaves(
    prompt: int, cap: int, within: bool
) -> None:
    """get_max_tokens of vllm/entrypoints/utils.py; one that fills the context is refused."""
    requests, words = workload((prompt, 3000), (10, 10)), config(CAP)
    found = limits(words, requests)
    assert np.broadcast_to(found.caps, 2).tolist() == [cap, 2048]
    assert is_within_context(words, requests, found).tolist() == [within, True]


def test_caps_stay_one_number_where_none_is_cut() -> None:
    assert limits(config(CAP), workload((6144, 1), (10, 1))).caps == 2048


def test_without_any_cap_a_request_may_fill_the_context_or_the_memory() -> None:
    """get_max_tokens of vllm/entrypoints/utils.py; prompts that leave nothing are refused."""
    requests = workload((10, 5000), (8000, 500), (8192, 9), (9000, 9))
    assert caps_of(config(), requests) == [8182, 192, 1, 1]
    found = limits(config(), requests)
    assert is_within_context(config(), requests, found).tolist() == [True, True, False, False]
    assert truncated(config(), requests, found) == {"context": 1}
    assert caps_of(config(), requests, 4096) == [4086, 1, 1, 1]
    assert truncated(config(), requests, limits(config(), requests, 4096)) == {"KV memory": 1}
    labels = context_labels(config(), requests, limits(config(), requests, 4096))
    assert labels == ["1 outputs end where the KV memory of a replica (engine.kv_tokens) is full"]


def test_what_ends_outputs_is_told_apart() -> None:
    """The cap, then the context, then nothing; the last is refused for its length."""
    requests, words = workload((10, 3000), (8000, 3000), (10, 2048), (8100, 92), (8192, 5000)), config(CAP)
    assert truncated(words, requests, limits(words, requests)) == {"context": 1, "max_new_tokens": 1}
    assert truncated(words, requests, limits(words, requests, 4096)) == {"max_new_tokens": 1}


def test_requests_do_not_depend_on_their_true_lengths() -> None:
    """What the control plane gets of two workloads that differ in outputs alone is the same."""
    short, long = workload((10, 1), (500, 1)), workload((10, 7000), (500, 3))
    for words in (config(), config(CAP), config("engine.expected_new_tokens=100")):
        found = [
            [request for request, _ in arrivals_of(words, one, limits(words, one))] for one in (short, long)
        ]
        assert found[0] == found[1]
    (told, _), _ = arrivals_of(config(), long, limits(config(), long))
    assert (told.max_new_tokens, told.reserved_tokens) == (8182, 2048)
    (capped, _), _ = arrivals_of(config(CAP), long, limits(config(CAP), long))
    assert (capped.max_new_tokens, capped.reserved_tokens) == (2048, 0)


@pytest.mark.parametrize(
    ("usage", "caps", "within"), [("openai_api_server", 4000, False), ("llm_class", 3192, True)]
)
def test_a_cap_that_the_client_named_is_refused_by_the_server_alone(
    usage: str, caps: int, within: bool
) -> None:
    """TokenizeParams._token_len_check of ``vllm serve``; a script's request ends when the context is full."""
    requests = workload((5000, 100), caps=(4000,))
    words = config("cluster=h100_x1", f"engine.usage_context={usage}")
    assert caps_of(words, requests) == [caps]
    assert is_within_context(words, requests, limits(words, requests)).tolist() == [within]


def test_outputs_that_the_context_ends_are_counted_and_told() -> None:
    requests, words = workload((8000, 500), (8000, 100), (9000, 500), (10, 2500)), config(CAP)
    found = limits(words, requests)
    # The third is refused.
    assert truncated(words, requests, found) == {"context": 1, "max_new_tokens": 1}
    labels = ["1 outputs end where the context (max_model_len) is full"]
    assert context_labels(words, requests, found) == labels
    assert [request.max_new_tokens for request, _ in arrivals_of(words, requests, found)] == [
        192,
        192,
        2048,
        2048,
    ]


def test_a_context_of_ones_own() -> None:
    requests = workload((8000, 500), (10, 10))
    assert caps_of(config(CAP, "engine.max_model_len=8100"), requests) == [100, 2048]
    assert caps_of(config("engine.max_model_len=8100"), requests) == [100, 8090]
    beyond = config("engine.max_model_len=16384")
    assert caps_of(beyond, requests) == [8384, 16374]
    found = limits(beyond, requests)
    assert "beyond the 8192 tokens of the model's context" in context_labels(beyond, requests, found)[0]


def run(folder: Path, *words: str, cluster: str = "a100_x2") -> dict[str, Any]:
    assert cli.run(["simulate", f"out={folder}", f"cluster={cluster}", *words]) == 0
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
    bare = [f"out={folder}", "engine.front_end=none"]
    assert cli.run(["simulate", *bare, *words, "journal=true"]) == 0
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


LONG = ("0,100,5000", "0.5,100,20", "1,8000,500", "2,400,3000")


@pytest.mark.parametrize("system", ["vllm", "distserve_full", "blitzscale", "llumnix"])
def test_outputs_have_the_length_that_the_trace_states(tmp_path: Path, system: str) -> None:
    """In split systems decode instances then preempt, and a replay takes every step as the run did."""
    (tmp_path / "t.csv").write_text("\n".join((HEADER, *LONG)) + "\n")
    words = ("trace=file", f"trace.path={tmp_path / 't.csv'}", f"system={system}")
    summary = run(tmp_path / "run", *words, "engine.kv_tokens=9000", "journal=true", cluster="blitz_b")
    outputs = pq.read_table(tmp_path / "run" / "requests.parquet")["output_tokens"].to_pylist()
    assert outputs == [5000, 20, 192, 3000]
    trace = summary["trace"]
    assert (trace["truncated_outputs"], trace["truncated_reasons"]) == (1, {"context": 1})
    counted = [label for label in trace["labels"] if "engine.expected_new_tokens" in label]
    assert len(counted) == (system in ("distserve_full", "blitzscale"))
    assert all("2 write more" in label for label in counted)
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_a_saved_cap_of_2048_still_cuts(tmp_path: Path) -> None:
    """A config.yaml of earlier versions holds the number, and not engine.expected_new_tokens."""
    (tmp_path / "t.csv").write_text("\n".join((HEADER, *LONG)) + "\n")
    words = ("trace=file", f"trace.path={tmp_path / 't.csv'}", CAP, "journal=true")
    capped = run(tmp_path / "run", *words)
    saved = (tmp_path / "run" / "config.yaml").read_text()
    assert "max_new_tokens: 2048\n" in saved and "expected_new_tokens" not in saved
    assert capped["trace"]["truncated_reasons"] == {"context": 1, "max_new_tokens": 2}
    assert load_resolved(tmp_path / "run" / "config.yaml").engine.max_new_tokens == 2048
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


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
    within = is_within_context(prepared.config, prepared.workload, prepared.limits)
    assert int((~within).sum()) == refused
