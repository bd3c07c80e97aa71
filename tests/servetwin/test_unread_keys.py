"""Keys that nothing in a run reads are refused where a user wrote them, and nowhere else."""

import ast
import re
from pathlib import Path

import pytest

from servetwin.cli.calibrate import calibrate
from servetwin.cli.checkpoints import random_checkpoint
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.compose.unread_keys import readers, why_unread
from servetwin.config.config import Kind, RunConfig
from servetwin.config.key import declared_keys
from servetwin.planning.plan_words import plan_words
from servetwin.sweeps.sweep_words import sweep_words
from serving.vocabulary.errors import UserError

SCALES = "system=serverlessllm cluster=blitz_a"
QUART = "system=quart cluster=quart"
MODELS = "models=zipf models.count=2 models.rate_per_s=3"
# For each reader, by its words: words of a run that reads its keys, and of one that does not; those that
# begin with realexec are of a real run.
RUNS = {
    "models that decode": ("", "system=pipeline cluster=quart"),
    "a scaler of instances that prefill and decode": ("system=llumnix_autoscaled cluster=llumnix", ""),
    "a scaler of instances that prefill or decode": (SCALES, "system=distserve_full cluster=blitz_a"),
    "a scaler": (SCALES, "system=llumnix cluster=llumnix"),
    "instances that compile": (
        "cluster=dgx_h100 cluster.start=host system.instances.start=cold",
        "cluster=dgx_h100",
    ),
    "real workers": ("realexec", ""),
    "simulations": ("", "realexec"),
    "launcher=ray and http.launcher=ray": ("realexec launcher=ray", "realexec"),
    "servers behind HTTP": ("realexec world=http http.servers=[http://h:1,http://h:2]", "realexec"),
    "the batcher chunked_prefill": ("engine=vllm_v1", "engine=vllm_v0"),
    "the batcher prefill_first": ("engine=vllm_v0", "engine=vllm_v1"),
    "decode instances": ("system=distserve_full cluster=blitz_a", "engine.reserve=mean"),
    "instances that load": ("cluster=dgx_h100 cluster.start=ssd", "cluster=dgx_h100"),
    "engine.preemption=swap": (
        "engine=vllm_0_1_7 model=llama_7b engine.preemption=swap cluster=llumnix",
        "engine=vllm_0_1_7 model=llama_7b cluster=llumnix",
    ),
    "engine.profile": ("engine.profile=FILE", ""),
    "the range of a simulation's step times": ("uncertainty=on", "uncertainty=off"),
    "systems that move parameters, KV or activations": (
        "system=llumnix cluster=dgx_h100", "cluster=dgx_h100",
    ),
    "system/migration": (
        "system=llumnix cluster=llumnix migration.victims=neighbour",
        "cluster=llumnix",
    ),
    "migration.victims=neighbour": (
        "system=llumnix cluster=llumnix migration.victims=neighbour",
        "system=llumnix cluster=llumnix",
    ),
    "models in stages": (f"{QUART} pipeline.batch=2", ""),
    "stages that scale": (QUART, "system=pipeline cluster=quart"),
    "models that answer in one pass": (f"{QUART} pipeline.batch=2", f"{QUART} model=opt_13b"),
    "batches": (f"{QUART} pipeline.batch=2", QUART),
    "pipeline.recut=cv": (
        f"{QUART} model=opt_13b pipeline.moves=true pipeline.recut=cv", f"{QUART} model=opt_13b",
    ),
    "replicas in several stages": ("model.pp=2", ""),
    "engines with prefix caching": ("engine=vllm_v1", "engine=vllm_v0"),
    "engines with prefix caching that see a trace several times": ("trace.repeat=2", ""),
    "trace.resample": ("trace.resample=block", ""),
    "clients in a closed loop": ("trace.clients=2", ""),
    "clients that give up": ("trace.client_timeout_s=5", ""),
    "runs whose arrivals are the trace's": ("trace=azure_conv_like", f"trace=azure_conv_like {MODELS}"),
}  # fmt: skip
READ_BY = readers()
ROOT = Path(__file__).parents[2]
PRODUCT = ("servetwin", "serving", "policies", "simcore", "realexec", "hwmodels", "traces", "experiments")


def config_of(words: str) -> RunConfig:
    """The configuration of these words; a first word ``realexec`` makes it a real run's."""
    kind: Kind = "realexec" if words.startswith("realexec") else "simulate"
    return load_config([*words.removeprefix("realexec").split(), "out=x"], kind)


def test_every_reader_has_a_run() -> None:
    assert sorted(RUNS) == sorted({reader.of for read_by in READ_BY.values() for reader in read_by})


def names_used_outside_their_declaration() -> set[str]:
    """Every attribute and quoted word in the product, but for what the configuration classes declare."""
    names: set[str] = set()
    for package in PRODUCT:
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Attribute):
                    names.add(node.attr)
                elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                    names |= set(re.findall(r"\w+", node.value)) if len(node.value) < 80 else set()
    return names


def test_every_key_is_used_outside_its_declaration() -> None:
    used = names_used_outside_their_declaration()
    used |= {f"{link}_gbps" for link in ("pcie", "nvlink", "nic", "ssd", "remote")}  # named by their link
    assert [path for path in declared_keys(RunConfig) if path.rpartition(".")[2] not in used] == []


@pytest.mark.parametrize("of", RUNS)
def test_key_is_unread_where_its_reader_is_not(of: str) -> None:
    reading, other = (config_of(words) for words in RUNS[of])
    for key, read_by in READ_BY.items():
        for reader in read_by:
            if reader.of == of:
                assert reader.reads(reading) and not reader.reads(other)
                why = why_unread(key, other)
                assert "is read only by" in why and "leave it out, or " in why, key


@pytest.mark.parametrize(
    ("word", "instead"),
    [
        ("system.instances.both_min=2", "system=llumnix_autoscaled"),
        ("system.instances.both_max=3", "system=llumnix_autoscaled"),
        ("system.instances.monitor_period_ms=99", "system=serverlessllm"),
        ("system.instances.keep_parameters_ms=1", "system=serverlessllm"),
        ("system.instances.decode_min=1", "system=blitzscale"),
        ("model.dtype=float32", "realexec run"),
        ("migration.mode=live", "system/migration=least_loaded"),
        ("pipeline.batch=1", "system=pipeline"),
        ("estimates=model", "system=serverlessllm"),
    ],
)
def test_user_hears_of_a_key_that_changes_nothing(word: str, instead: str, tmp_path: Path) -> None:
    with pytest.raises(UserError) as refused:
        load_config([word, "out=x"], "simulate", alone=True)
    assert word in str(refused.value) and instead in str(refused.value)
    saved = tmp_path / "config.yaml"
    saved.write_text(resolved_yaml(load_config([word, "out=x"], "simulate")))  # one of many runs
    again = load_config([f"config={saved}", "out=y", "seed=1"], "simulate", alone=True)
    assert again.seed == 1
    with pytest.raises(UserError, match="would change nothing"):
        load_config([f"config={saved}", "out=y", word], "simulate", alone=True)


@pytest.mark.parametrize("given", ["words", "file"])
def test_sweep_refuses_what_no_point_reads(given: str, tmp_path: Path) -> None:
    systems, key = "system=vllm,round_robin", "system.instances.monitor_period_ms"
    file = tmp_path / "sweep.yaml"
    file.write_text(f"params:\n  {key}: 50,100\n")
    words = [f"{key}=50,100"] if given == "words" else [f"sweep={file}"]
    with pytest.raises(UserError) as refused:
        sweep_words([systems, *words, "seed=range(0,1000)", "out=x"])
    assert key in str(refused.value) and "this sweep" in str(refused.value)
    assert sweep_words([f"{systems},serverlessllm", *words, "cluster=blitz_a", "out=x"]).runs


def test_sweep_keeps_series_with_folders_only() -> None:
    with pytest.raises(UserError, match=r"series\.period_s would change nothing.*folders=true"):
        sweep_words(["series.period_s=1", "seed=0,1", "out=x"])
    assert sweep_words(["series.period_s=1", "seed=0,1", "folders=true", "out=x"]).own["folders"]


DRAWN = ("trace=poisson", "trace.rate_per_s=2", "gpu=h100")


@pytest.mark.parametrize(
    ("words", "key", "instead"),
    [
        (("slo.tpot_ms=50",), "slo.tpot_ms", "slo.attainment="),
        (("slo.ttft_ms=100,200",), "slo.ttft_ms", "slo.ttft_p99_ms="),
        (("journal=true",), "journal", "servetwin simulate"),
        (("series.period_s=1",), "series.period_s", "servetwin simulate"),
        (("system.instances.both_max=2",), "system.instances.both_max", "llumnix_autoscaled"),
    ],
)
def test_plan_refuses_what_no_layout_reads(words: tuple[str, ...], key: str, instead: str) -> None:
    with pytest.raises(UserError) as refused:
        plan_words([*DRAWN, "slo.ttft_p99_ms=500", *words])
    assert f"{key} would change nothing in this plan" in str(refused.value) and instead in str(refused.value)


def test_plan_takes_objectives_of_requests_that_it_counts() -> None:
    assert plan_words([*DRAWN, "slo.attainment=0.9", "slo.ttft_ms=100", "slo.tpot_ms=50"]).layouts
    live = ("system=vllm,blitzscale", "gpu=blitz_a", "model.tp=1", "slo.ttft_ms=100")
    assert plan_words([*DRAWN[:2], *live, "slo.ttft_p99_ms=500"]).layouts
    with pytest.raises(UserError, match="uncertainty= is of single runs"):
        plan_words([*DRAWN, "slo.ttft_p99_ms=500", "uncertainty=on"])


@pytest.mark.parametrize("word", ["trace.limit=5", "system=llumnix", "slo.ttft_ms=5", "engine.watermark=0.1"])
def test_other_commands_refuse_what_they_do_not_read(word: str, tmp_path: Path) -> None:
    for command in (calibrate, random_checkpoint):
        with pytest.raises(UserError) as refused:
            command([word, f"out={tmp_path / 'x'}"])
        assert word in str(refused.value) and "does not read" in str(refused.value)
