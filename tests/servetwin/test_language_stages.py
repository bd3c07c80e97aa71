"""Language models in stages from the command line: against ``model.pp``, exact = coalesced, replay."""

from pathlib import Path
from typing import Any

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.run.replay_run import replay_run
from servetwin.run.simulate import simulate

ONE = ["trace=poisson", "trace.requests=1", "trace.rate_per_s=1", "uncertainty=off", "out=unused"]
STAGES = ["system=pipeline", "model=llama2_13b", "pipeline.stages=4", "pipeline.cut=layers"]


def result(folder: Path, *words: str) -> dict[str, Any]:
    folder.mkdir()
    return simulate(load_config(list(words), "simulate"), folder)


def test_a_request_alone_takes_what_it_takes_where_one_replica_has_all_stages(tmp_path: Path) -> None:
    cluster = "cluster=blitz_a_1x4"
    result(tmp_path / "stages", *ONE, *STAGES, cluster)
    bare = ("engine.front_end=none", cluster)  # stages have no front end
    result(tmp_path / "whole", *ONE, "system=vllm", "model=llama2_13b", "model.pp=4", *bare)
    import pyarrow.parquet as pq

    rows = [pq.read_table(tmp_path / one / "requests.parquet").to_pylist()[0] for one in ("stages", "whole")]
    for key in ("first_token_ns", "finish_ns"):
        assert rows[0][key] == pytest.approx(rows[1][key], abs=1)


def generated(folder: Path) -> list[int]:
    """Output tokens of every request."""
    import pyarrow.parquet as pq

    found: list[int] = pq.read_table(folder / "requests.parquet")["output_tokens"].to_pylist()
    return found


SCALED = [
    "trace=gamma", "trace.requests=100", "trace.rate_per_s=15", "trace.tokens_scale=0.3",
    "engine.max_num_seqs=4", "model=opt_13b", "cluster=quart", "uncertainty=off", "out=unused",
]  # fmt: skip


def test_replicas_that_work_while_they_load_shorten_the_wait(tmp_path: Path) -> None:
    """Less than 0.6 of the mean time to first token; exact = coalesced, a journal replays."""
    words = [*SCALED, "system=quart", "pipeline.moves=true"]
    whole = result(tmp_path / "whole", *words)
    live = result(tmp_path / "live", *words, "pipeline.live=true", "journal=true")
    result(tmp_path / "exact", *words, "pipeline.live=true", "engine.exact=true")
    files = [(tmp_path / one / "requests.parquet").read_bytes() for one in ("live", "exact")]
    assert files[0] == files[1] and replay_run(tmp_path / "live").different == 0
    assert live["requests"]["finished"] == whole["requests"]["finished"] == 100
    assert live["ttft_ms"]["mean"] < 0.6 * whole["ttft_ms"]["mean"]
    assert live["path_moves"]["joined"] > 20 and whole["path_moves"]["joined"] == 0


def test_a_running_model_is_cut_anew_and_no_request_is_lost(tmp_path: Path) -> None:
    """From 8 stages into 2 once arrivals are steady; exact = coalesced, a journal replays."""
    words = ["trace=gamma", "trace.gap_cv=0.5", "trace.requests=300", "trace.rate_per_s=4", "model=opt_13b"]
    words += ["trace.tokens_scale=0.3", "engine.max_num_seqs=16", "cluster=quart", "uncertainty=off"]
    words += ["out=unused", "system=quart", "pipeline.cut=layers", "pipeline.stages=8", "pipeline.moves=true"]
    result(tmp_path / "fixed", *words)
    found = result(tmp_path / "anew", *words, "pipeline.recut=cv", "journal=true")
    result(tmp_path / "exact", *words, "pipeline.recut=cv", "engine.exact=true")
    files = [(tmp_path / one / "requests.parquet").read_bytes() for one in ("anew", "exact")]
    assert files[0] == files[1] and replay_run(tmp_path / "anew").different == 0
    assert found["requests"]["finished"] == 300 and found["cuts"] == {"made": 1, "given_up": 0}
    assert len(found["language_stages"]) == 2 and found["path_moves"]["committed"] > 0
    assert generated(tmp_path / "anew") == generated(tmp_path / "fixed")


def test_a_model_whose_last_stage_is_the_slowest_is_cut_by_measured_times(tmp_path: Path) -> None:
    """The head of Llama 3 has the weights of 2.4 layers: of equal layers the last stage gives one away."""
    words = ["system=quart", "model=llama3_8b", "cluster=quart", "pipeline.cut=layers", "pipeline.stages=8"]
    words += ["pipeline.moves=true", "trace=gamma", "trace.requests=150", "trace.rate_per_s=6"]
    words += ["trace.tokens_scale=0.3", "engine.max_num_seqs=16", "uncertainty=off", "out=unused"]
    fixed = result(tmp_path / "fixed", *words)
    found = result(tmp_path / "anew", *words, "pipeline.recut=time", "journal=true")
    assert replay_run(tmp_path / "anew").different == 0
    assert found["requests"]["finished"] == 150 and found["cuts"] == {"made": 1, "given_up": 0}
    begin, end = found["language_stages"][-1]["layers"]
    assert end - begin == 3 and fixed["language_stages"][-1]["layers"] == [28, 32]
    (why,) = [one["reason"] for one in found["scale_events"] if one["act"] == "recut"]
    assert why.startswith("the slowest stage takes")
    assert generated(tmp_path / "anew") == generated(tmp_path / "fixed")


@pytest.mark.parametrize("system", ["quart", "infless", "cocktail"])
def test_stages_that_decode_grow_by_themselves(system: str, tmp_path: Path) -> None:
    """More requests than the replicas of the start serve at once; exact = coalesced, a journal replays."""
    fixed = result(tmp_path / "fixed", *SCALED, "system=pipeline")
    words = [*SCALED, f"system={system}"]
    found = result(tmp_path / "coalesced", *words, "journal=true")
    result(tmp_path / "exact", *words, "engine.exact=true")
    files = [(tmp_path / one / "requests.parquet").read_bytes() for one in ("coalesced", "exact")]
    assert files[0] == files[1]
    assert replay_run(tmp_path / "coalesced").different == 0
    loads = [one for one in found["scale_events"] if one["act"] == "ready"]
    assert loads and found["requests"]["finished"] == fixed["requests"]["finished"] == 100
    assert found["ttft_ms"]["mean"] < 0.8 * fixed["ttft_ms"]["mean"]


def test_exact_is_coalesced_and_a_journal_replays(tmp_path: Path) -> None:
    many = ["trace=azure_conv_like", "trace.requests=40", "trace.rate_per_s=4", "out=unused", "cluster=quart"]
    words = [*many, *STAGES, "pipeline.replicas=1+2+1+1", "journal=true"]
    coalesced = result(tmp_path / "coalesced", *words)
    exact = result(tmp_path / "exact", *words, "engine.exact=true")
    files = [(tmp_path / one / "requests.parquet").read_bytes() for one in ("coalesced", "exact")]
    assert files[0] == files[1]
    assert replay_run(tmp_path / "coalesced").different == 0
    assert coalesced["sim"]["events"] < 10 * 40 < exact["sim"]["events"]
    stages = coalesced["language_stages"]
    assert [one["layers"] for one in stages] == [[0, 10], [10, 20], [20, 30], [30, 40]]
    assert [one["replicas"] for one in stages] == [1, 2, 1, 1]
    assert stages[1]["kv_tokens"] > stages[0]["kv_tokens"]  # that one has the embedding
