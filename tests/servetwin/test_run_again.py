"""``config=DIR``: a run is run again to the byte, and a word on top does what it did in the first place."""

import shutil
import sys
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from hwmodels.errors import HardwareError
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.config import Kind, RunConfig
from serving.vocabulary.errors import UserError
from tests.worlds.forgery import ATTACKS, EVIL, config_of, imported, places, put
from tests.worlds.user_policies import DISPATCH, TINY, here, mine, sentence

__all__ = ["here", "imported", "mine"]

LIKE = "trace=azure_conv_like"
OWN_BATCHER = "from policies.batching import ChunkedPrefill\n\n\nclass Mine(ChunkedPrefill):\n    pass\n"
MINE = "system/dispatch=my_policies:FillFirst"
RUNS: dict[str, tuple[Kind, tuple[str, ...]]] = {
    "default": ("simulate", (LIKE,)),
    "values": ("simulate", (LIKE, "seed=7", "engine.max_num_seqs=64", "slo.ttft_ms=900", "trace.limit=9")),
    "older": ("simulate", (LIKE, "engine=vllm_v0", "engine.overhead.step_s=0", "system/dispatch=least_kv")),
    "batcher": ("simulate", (LIKE, "system/batcher=prefill_first", "cluster=h100_x4", "model.tp=2")),
    "bucket": ("simulate", (LIKE, "system/admission=token_bucket", "system.admission.rate_per_s=2")),
    "elastic": ("simulate", (LIKE, "system=blitzscale", "cluster=blitz_b_3x4", "system.scaler.ways=[]")),
    "models": (
        "simulate",
        (LIKE, "system=serverlessllm", "cluster=blitz_a", "models=zipf", "models.count=9"),
    ),
    "file": ("simulate", ("trace=file", "trace.path=a ${b}, [c].csv", "trace.rate_scale=2", "journal=true")),
    "gamma": ("simulate", ("trace=gamma", "trace.gap_cv=4", "trace.requests=50", "slo=blitzscale_72b")),
    "real": ("realexec", ("workers=3", "engine.max_num_seqs=4")),
    "mine": ("simulate", (LIKE, MINE, "system.dispatch.most=3", "system/batcher=own:Mine")),
}
AGAIN = {"mine": (MINE, "system/batcher=own:Mine")}


@pytest.fixture
def folder(mine: Path) -> Path:
    (mine / "own.py").write_text(OWN_BATCHER)
    return mine


def saved(folder: Path, kind: Kind, words: Sequence[str]) -> RunConfig:
    """The run that these words make, its config.yaml in ``run``."""
    config = load_config([*words, "out=run"], kind)
    (folder / "run").mkdir(exist_ok=True)
    (folder / "run" / "config.yaml").write_text(resolved_yaml(config), encoding="utf-8")
    return config


def test_a_run_is_run_again_to_the_byte(here: Path) -> None:
    words = [
        "system=blitzscale",
        "cluster=blitz_b",
        "trace=azure_code_like",
        "trace.rate_scale=4",
        "trace.limit=60",
    ]
    assert cli.run(["simulate", *words, "seed=5", "journal=true", "out=run"]) == 0
    assert cli.run(["simulate", "config=run", "out=again"]) == 0
    for name in ("requests.parquet", "config.yaml"):
        first, second = (
            Path(out, name).read_bytes().replace(b"out: again", b"out: run") for out in ("run", "again")
        )
        assert first == second
    assert cli.run(["replay", "again"]) == 0
    assert cli.run(["simulate", "config=again/config.yaml", "seed=3", "journal=false", "out=other"]) == 0
    assert Path("other/requests.parquet").read_bytes() != first and not Path("other/journal").exists()


@pytest.mark.parametrize("name", RUNS)
def test_the_configuration_is_the_same_again(folder: Path, name: str) -> None:
    kind, words = RUNS[name]
    config = saved(folder, kind, words)
    again = load_config(["config=run", *AGAIN.get(name, ()), "out=x"], kind)
    assert replace(again, out="run") == config


@pytest.mark.parametrize(
    ("name", "word"),
    [
        ("values", "seed=3"),
        ("values", "engine.max_num_seqs=32"),
        ("values", "slo.tpot_ms=77"),
        ("values", "trace.limit=5"),
        ("default", "engine=vllm_v0"),
        ("default", "engine.batcher=prefill_first"),
        ("default", "system/dispatch=power_of_two"),
        ("default", "system/batcher=prefill_first"),
        ("default", "trace=gamma"),
        ("default", "slo.ttft_ms=5"),
        ("default", "cluster=h100_x2"),
        ("default", "trace.requests=5"),
        ("default", "engine.usage_context=llm_class"),
        ("values", "engine.usage_context=llm_class"),
        ("values", "cluster=h100_x2"),
        ("older", "engine.max_num_seqs=7"),
        ("batcher", "engine.batcher=chunked_prefill"),
        ("batcher", "engine.max_num_batched_tokens=4096"),
        ("bucket", "system.admission.burst=4"),
        ("elastic", "system.instances.monitor_period_ms=50"),
        ("elastic", "system.scaler.ways=[revive]"),
        ("models", "models.count=12"),
        ("gamma", "trace.gap_cv=2"),
        ("real", "workers=5"),
        ("real", "engine.max_num_seqs=6"),
        ("file", "trace.path=other.csv"),
        ("mine", "system.dispatch.most=5"),
        ("mine", "engine.max_num_seqs=9"),
    ],
)
def test_a_word_on_top_does_what_it_does_in_the_first_place(folder: Path, name: str, word: str) -> None:
    kind, words = RUNS[name]
    saved(folder, kind, words)
    kept = [one for one in words if one.partition("=")[0] != word.partition("=")[0]]
    first = load_config([*kept, word, "out=x"], kind)
    assert load_config(["config=run", *AGAIN.get(name, ()), word, "out=x"], kind) == first


def test_an_option_on_top_replaces_its_group_and_no_other(folder: Path) -> None:
    saved(folder, "simulate", ["engine=vllm_v0", "engine.max_num_seqs=64", "seed=4", LIKE, "trace.limit=9"])
    config = load_config(["config=run", "system=blitzscale", "cluster=blitz_b", "out=x"], "simulate")
    assert (config.engine.name, config.engine.max_num_seqs) == ("blitz_native", 256)
    assert (config.seed, config.trace.limit, config.system.batcher.params["max_num_seqs"]) == (4, 9, 256)
    config = load_config(
        ["config=run", "engine=vllm_v0", "system=vllm_half", "trace=gamma", "out=x"], "simulate"
    )
    assert config.engine.max_num_seqs == config.system.batcher.params["max_num_seqs"] == 64
    assert config.trace.limit is None


def test_policies_of_ones_own_are_named_again_or_replaced(folder: Path) -> None:
    saved(folder, "simulate", [*TINY, MINE, "system.dispatch.most=3"])
    with pytest.raises(UserError, match=f"write {MINE} behind it"):
        load_config(["config=run", "out=x"], "simulate")
    assert load_config(["config=run", MINE, "out=x"], "simulate").system.dispatch.params["most"] == 3
    plain = load_config(["config=run", "system/dispatch=round_robin", "out=x"], "simulate")
    assert plain.system.dispatch.policy == "policies.dispatch:RoundRobin"
    (folder / "my_others.py").write_text(DISPATCH)
    other = ["config=run", "system/dispatch=my_others:FillFirst", "system.dispatch.most=9", "out=x"]
    assert load_config(other, "simulate").system.dispatch.params["most"] == 9


def test_a_run_on_real_workers_is_simulated_with_as_many(here: Path) -> None:
    real = saved(
        here, "realexec", ["workers=3", "engine.max_num_seqs=4", "system=blitzscale", "model.dtype=bfloat16"]
    )
    twin = load_config(["config=run", "seed=3", "out=twin"], "simulate")
    assert (twin.kind, twin.workers, twin.cluster.gpus, twin.cluster.topology) == (
        "simulate",
        None,
        3,
        "local_3x1",
    )
    assert (twin.seed, twin.model.dtype, twin.model.name) == (3, "float32", real.model.name)
    for group in ("engine", "system", "cluster", "trace", "migration", "slo"):
        assert getattr(twin, group) == getattr(real, group)
    assert cli.run(["simulate", "config=run", "trace.limit=5", "out=twin"]) == 0


def test_what_cannot_be_run_again_is_told(here: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*words: str) -> str:
        return sentence(["simulate", "config=run", *words], capsys)

    assert "run has no config.yaml: write config=DIR" in refused("out=x")
    config = saved(here, "simulate", TINY)
    real = sentence(["run", "config=run", "out=x"], capsys, realexec_cli.run)
    assert "of a run by servetwin simulate: write servetwin simulate config=run" in real
    assert "out is missing" in refused()
    assert "config is given twice" in refused("config=run", "out=x")
    text = resolved_yaml(config)
    for found, instead, said in (
        ("seed: 0", "seed: 0\nspeed: 9", "unknown key speed in run/config.yaml"),
        ("seed: 0\n", "", "seed is missing in run/config.yaml"),
        ("name: azure_conv_like", "name: no_such_trace", "no trace of this version"),
        ("synthetic: true", "synthetic: false", "no trace of this version"),
        ("    requests: 20", "    requests: 20\n    colour: 3", "'colour', which it does not take"),
        (
            "    requests: 20",
            "    requests: {a: 1}",
            "trace.params.requests in run/config.yaml is no plain value",
        ),
        ("gpu: a100", "gpu: ${oc.env:HOME}", "a reference"),
        ("estimates: model", "estimates: ???", "estimates has no default"),
    ):
        assert text.count(found) == 1
        Path("run/config.yaml").write_text(text.replace(found, instead))
        assert said in refused("out=x")


def test_no_place_of_a_configuration_names_code(here: Path, imported: Path) -> None:
    words = ["system=blitzscale", "cluster=blitz_b", "trace=gamma", "system/admission=token_bucket"]
    saved(here, "simulate", [*words, "system.admission.rate_per_s=2"])
    config = config_of(here / "run")
    for number, place in enumerate(places(config)):
        changed = put(config, place, ATTACKS[number % len(ATTACKS)])
        Path("run/config.yaml").write_text(yaml.safe_dump(changed, sort_keys=False))
        with suppress(UserError, HardwareError):
            load_config(["config=run", "out=x"], "simulate")
        assert not imported.exists() and EVIL not in sys.modules, place
    shutil.rmtree("run")
