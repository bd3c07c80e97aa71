"""``model.pp=N`` from the command line to the summary: results, memory, cuts, ways, and what it refuses."""

from pathlib import Path

import pytest

from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import build
from servetwin.assemble.hardware import hardware_of
from servetwin.assemble.hosted import seats_of
from servetwin.assemble.pipeline_plans import hops_of
from servetwin.assemble.stage_cut import required_cut
from servetwin.config.compose.compose import load_config, option_groups
from servetwin.config.config import RunConfig
from servetwin.config.pipeline_parallel import stand_in
from servetwin.run.replay_run import replay_run
from servetwin.run.simulate import simulate
from serving.vocabulary.errors import UserError

SMALL = ["trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=6", "uncertainty=off"]


def config(*words: str) -> RunConfig:
    own = {word.partition("=")[0] for word in words}
    others = [*SMALL, "cluster=a100_x4", "model.pp=4", "out=unused"]
    return load_config([*(one for one in others if one.partition("=")[0] not in own), *words], "simulate")


def test_coalesced_is_step_by_step_in_far_fewer_events(tmp_path: Path) -> None:
    for exact in ("false", "true"):
        (tmp_path / exact).mkdir()
    found = [
        simulate(config("journal=true", f"engine.exact={exact}"), tmp_path / exact)
        for exact in ("false", "true")
    ]
    files = [(tmp_path / exact / "requests.parquet").read_bytes() for exact in ("false", "true")]
    assert files[0] == files[1]
    assert replay_run(tmp_path / "false").different == 0
    coalesced, exact = found
    assert coalesced["sim"]["events"] < 0.15 * exact["sim"]["events"]
    section = coalesced["pipeline_parallel"]
    assert section["stages"] == 4 and section["layers"] == [8, 8, 8, 8]
    assert 0.0 < section["bubble_share"] == exact["pipeline_parallel"]["bubble_share"] < 1.0
    assert section["labels"] == ["activations between stages take no time: cluster=a100_x4 has no links"]


def test_stages_together_hold_more_kv_than_one_gpu_and_the_tightest_decides() -> None:
    whole = hardware_of(config("model.pp=1"))["llama3_8b"]
    stages = hardware_of(config())["llama3_8b"]
    assert stages.kv_blocks > 4 * whole.kv_blocks
    assert stages.kv_arithmetic.startswith("least of 4 stages, layers ")


@pytest.mark.parametrize(
    "word, layers",
    [("layers", [8, 8, 8, 8]), ("time", [9, 9, 9, 5]), ("bytes", [7, 9, 9, 7]), ("9+9+9+5", [9, 9, 9, 5])],
)
def test_cuts(word: str, layers: list[int]) -> None:
    assert [len(part) for part in required_cut(config(f"model.pp_cut={word}"))] == layers


def test_stages_lie_on_neighbouring_gpus_in_a_host_first() -> None:
    one = config("cluster=blitz_a", "model.tp=2")
    seats = [gpus for _, gpus in seats_of(one)]
    assert seats[0] == tuple(range(8)) and len(seats) == 4
    topology = build(load_cluster("blitz_a"))
    within, between = hops_of(one, seats[0], topology), hops_of(one, (0, 1, 2, 3, 6, 7, 8, 9), topology)
    assert within[0] == within[1] == within[2]
    assert between[2].latency_s > within[2].latency_s and between[2].token_s > within[2].token_s


def test_what_engines_in_stages_lack_is_off_unless_written() -> None:
    engine = config().engine
    assert not engine.asynchronous and not engine.prefix_caching
    assert config("model.pp=1").engine.asynchronous


@pytest.mark.parametrize(
    "words, told",
    [
        (["engine.asynchronous=true"], "engine.asynchronous=true does not fit model.pp=4"),
        (
            ["system/batcher=policies.batching:PrefillFirst"],
            "write system/batcher=chunked_prefill, system/ba",
        ),
        (["model.pp=3"], "multiple of 3"),
        (["engine.prefix_caching=true"], "engine.prefix_caching=true does not fit model.pp=4"),
        (["system.instances.scheduling_policy=priority"], "does not fit system.instances.scheduling_policy"),
        (["engine.data_parallel_size=2", "cluster=a100_x8"], "engine.data_parallel_size=2 is not built"),
        (["models=zipf", "models.count=2", "cluster=a100_x8"], "does not fit models=zipf"),
        (["system=llumnix", "cluster=llumnix"], "does not fit system=llumnix"),
        (["system=pipeline", "cluster=blitz_a"], "does not fit system=pipeline"),
        (["system=blitz_multicast", "cluster=blitz_a"], "does not fit system=blitz_multicast"),
        (["system=distserve_full", "cluster=blitz_a"], "does not fit system=distserve_full"),
        (["cluster=blitz_a", "cluster.start=ssd"], "does not fit cluster.start=ssd"),
        (["model.pp_cut=wide"], "write one of layers, bytes, time"),
        (["model.pp_cut=16+16"], "write model.pp=2"),
        (["model.pp_cut=9+9+9+9"], "add up to 32"),
        (["model.pp=1", "model.pp_cut=bytes"], "cuts nothing with model.pp=1"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_sentence(words: list[str], told: str) -> None:
    with pytest.raises(Exception, match=told) as found:
        hardware_of(config(*words))
    assert isinstance(found.value, UserError) or "add up" in told


def test_real_workers_hold_whole_models() -> None:
    with pytest.raises(UserError, match=r"model\.pp=2 cannot be run by realexec"):
        load_config(["model=tiny_llama", "model.pp=2", "trace=poisson", "out=unused"], "realexec")


PRESETS = {
    "vllm_v1": 1, "own_workers": 1,
    "vllm_v0": 2, "vllm_0_2_0": 2, "vllm_0_1_7": 2, "distserve": 2, "blitz_native": 2,
}  # fmt: skip
"""Micro-batches of two requests that come at once: v1 has them in one step, v0 in two virtual engines."""


def test_every_engine_preset_is_cut_into_stages() -> None:
    assert set(PRESETS) == set(option_groups()["engine"])


@pytest.mark.parametrize("engine", PRESETS)
def test_the_bubble_of_every_preset_is_that_of_its_micro_batches(engine: str, tmp_path: Path) -> None:
    """m micro-batches of a token per round of N equal stages leave 1 - m / N of the time of the stages."""
    rows = "TIMESTAMP,ContextTokens,GeneratedTokens\n" + "2023-11-16 18:15:46.6805900,64,900\n" * 2
    (tmp_path / "two.csv").write_text(rows)
    words = ["trace=azure_conv", f"trace.path={tmp_path / 'two.csv'}", f"engine={engine}", "uncertainty=off"]
    own = ["model=llama3_8b", "cluster=a100_x4", "model.pp=4", "out=unused", "journal=true"]
    results = []
    for exact in ("false", "true"):
        (tmp_path / exact).mkdir()
        found = load_config([*words, *own, f"engine.exact={exact}"], "simulate")
        results.append(simulate(found, tmp_path / exact))
    files = [(tmp_path / exact / "requests.parquet").read_bytes() for exact in ("false", "true")]
    assert files[0] == files[1] and replay_run(tmp_path / "false").different == 0
    section = results[0]["pipeline_parallel"]
    assert section["bubble_share"] == pytest.approx(1 - PRESETS[engine] / 4, abs=0.004)
    assert section.get("virtual_engines", 1) == (4 if PRESETS[engine] == 2 else 1)
    assert results[0]["sim"]["events"] < 20


def test_stand_ins_of_virtual_engines_are_named() -> None:
    assert stand_in(config("engine=vllm_v0")) == []
    assert "refuses pipeline_parallel_size" in stand_in(config("engine=vllm_0_2_0"))[0]
    assert "blocks in common" in stand_in(config("engine=distserve"))[0]
