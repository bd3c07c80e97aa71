"""Models by their names on Hugging Face, GPUs by alias, and files of one's own, in every command."""

import json
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.config import RunConfig
from servetwin.planning.plan_words import plan_words
from tests.worlds.own_gpu import OWN, RACK


def configured(*words: str) -> RunConfig:
    return load_config([*words, "out=x"], "simulate")


@pytest.mark.parametrize("word, name, gpu", [
    ("H100_x8", "h100_x8", "h100"), ("a100-sxm4-80gb_x2", "a100_80g_x2", "a100_80g"),
    ("A100_x2", "a100_x2", "a100_80g"), ("NVIDIA H100 80GB HBM3_x4", "h100_x4", "h100"),
    ("rtx-4090_x1", "rtx4090_x1", "rtx4090"), ("DGX-H100", "dgx_h100", "h100"),
    ("Blitz-B_2x8", "blitz_b_2x8", "a100_80g"), ("p5.48xlarge", "p5_48xlarge", "h100"),
])  # fmt: skip
def test_a_cluster_is_named_in_any_case_and_by_alias(word: str, name: str, gpu: str) -> None:
    cluster = configured(f"cluster={word}").cluster
    assert (cluster.name, cluster.gpu) == (name, gpu)


def test_a_name_on_hugging_face_is_the_catalogues_model_in_every_respect() -> None:
    words = ("cluster=h100_x8", "trace=poisson")
    for hub, name in (("Qwen/Qwen3-32B", "qwen3_32b"), ("meta-llama/llama-3.1-70b-instruct", "llama3_1_70b")):
        assert configured(*words, f"model={hub}") == configured(*words, f"model={name}")
    shapes = configured(*words, "models=zipf", "models.shapes=Qwen/Qwen3-32B:2+LLAMA3-8B").models
    assert shapes.shapes == "Qwen/Qwen3-32B:2+LLAMA3-8B"


def test_many_models_take_the_names_too(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = [
        "simulate",
        "trace=poisson",
        "trace.requests=20",
        "cluster=H100_x4",
        "models=zipf",
        "models.count=2",
    ]
    shapes = "models.shapes=meta-llama/Llama-3.1-8B-Instruct+Qwen/Qwen3-32B:2"
    assert cli.run([*words, shapes, f"out={tmp_path / 'r'}", "--json", "uncertainty=off"]) == 0
    told = json.loads(capsys.readouterr().out)["models"]["shapes"]
    assert [one["shape"] for one in told] == ["llama3_1_8b", "qwen3_32b"]


def test_support_and_plan_take_the_names(capsys: pytest.CaptureFixture[str]) -> None:
    for gpu, model in (("h100", "qwen3_32b"), ("NVIDIA H100 80GB HBM3", "Qwen/Qwen3-32B")):
        assert cli.run(["support", f"gpu={gpu}", f"model={model}", "--json"]) == 0
    first, second = capsys.readouterr().out.strip().split("\n}\n")
    assert json.loads(first + "}") == json.loads(second.removesuffix("}") + "}")
    assert cli.run(["support", "cluster=DGX-H100"]) == 0
    assert "dgx_h100: 4 hosts" in capsys.readouterr().out
    objective = ("slo.ttft_p99_ms=500", "trace=poisson", "trace.rate_per_s=2", "model=Qwen/Qwen3-32B")
    plan = plan_words([*objective, "gpu=H100,A100-SXM4-80GB", "price.H100=2", "price.A100=1"])
    assert {layout.hardware for layout in plan.layouts} == {"h100", "a100_80g"} == set(plan.prices)


def test_a_sweep_over_names_keeps_them(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    words = ["simulate", "-m", "model=Qwen/Qwen3-32B,llama3_8b", "cluster=H100_x1", "trace=poisson"]
    assert cli.run([*words, "trace.requests=5", f"out={tmp_path / 's'}"]) == 0
    assert "model=Qwen/Qwen3-32B" in capsys.readouterr().out


def test_a_gpu_of_ones_own_runs_in_every_command(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("mine.yaml").write_text(OWN)
    run = ["trace=poisson", "trace.requests=5", "model=llama3_8b"]
    assert cli.run(["simulate", *run, "cluster=mine.yaml_x2", "out=r", "--json"]) == 0
    assert "mine.yaml" in json.loads(capsys.readouterr().out)["step_time"]["source"]
    assert cli.run(["simulate", "config=r", "seed=1", "out=again", "-q"]) == 0
    assert cli.run(["support", "gpu=mine.yaml", "model=llama3_8b"]) == 0
    assert "192.00 GB usable, 8000 GB/s" in capsys.readouterr().out
    objective = ["slo.ttft_p99_ms=5000", "gpu=mine.yaml,h100", "model.tp=1", "trace.rate_per_s=2"]
    assert cli.run(["plan", *run, *objective]) == 0
    assert "mine.yaml, tp 1" in capsys.readouterr().out
    Path("links.yaml").write_text("base: blitz_a\ngpu: mine.yaml\nsource: ours\n")
    assert cli.run(["support", "cluster=links.yaml"]) == 0
    assert "x mine.yaml" in capsys.readouterr().out


def test_one_file_has_a_gpu_and_the_links_of_its_hosts(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rack.yaml").write_text(RACK)
    run = ["trace=poisson", "trace.requests=5", "model=llama3_8b", "uncertainty=off"]
    scales = [*run, "system=blitzscale", "system.instances.prefill_min=1", "--json"]
    assert cli.run(["simulate", *scales, "cluster=rack.yaml", "out=r"]) == 0
    summary = json.loads(capsys.readouterr().out)
    assert summary["cluster"] == "rack.yaml" and summary["network"]["nic"]["links"] == 32
    assert "memory_bandwidth_bytes_per_s: datasheet (rack.yaml)" in summary["step_time"]["source"]
    assert summary["step_time"]["labels"] == [
        "steps of rack.yaml are a roofline by its datasheet: none was measured on it"
    ]
    assert cli.run(["simulate", "config=r", "seed=1", "out=again", "-q"]) == 0
    assert cli.run(["simulate", *scales, "cluster=rack.yaml_3x4", "out=small"]) == 0
    assert json.loads(capsys.readouterr().out)["network"]["nic"]["links"] == 24
    assert cli.run(["simulate", *run, "cluster=rack.yaml_x4", "model.tp=4", "out=bare", "-q"]) == 0
    assert cli.run(["support", "cluster=rack.yaml"]) == 0
    assert "2 hosts of 8 x rack.yaml, 16 GPUs" in capsys.readouterr().out
    rack = tmp_path / "rack.yaml"  # processes of an earlier plan may have another folder
    objective = ["slo.ttft_p99_ms=5000", f"gpu={rack}", "model.tp=1", "trace.rate_per_s=2"]
    assert cli.run(["plan", *run[:3], *objective]) == 0
    assert f"8 GPUs ({rack}, tp 1)" in capsys.readouterr().out.replace("\n", " ")


@pytest.mark.parametrize(
    ("old", "new", "told"),
    [
        ("nic: {gbps: 400", "nic: {rate: 400", "rack.yaml: nic has the unknown key 'rate'"),
        ("  flops_per_s: {value: 2.25e+15, source: datasheet}\n", "", "rack.yaml lacks flops_per_s"),
        ("hosts: 2", "hosts: [", "rack.yaml is not YAML"),
        (RACK, OWN, "unknown option cluster=rack.yaml: write"),
    ],
)
def test_a_file_of_a_cluster_is_refused_by_its_key(
    capsys: pytest.CaptureFixture[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    old: str,
    new: str,
    told: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("rack.yaml").write_text(RACK.replace(old, new, 1))
    words = ["simulate", "cluster=rack.yaml", "trace=poisson", "trace.requests=5", "model=llama3_8b", "out=r"]
    assert cli.run(words) == 2
    assert told in capsys.readouterr().err


def test_an_own_cluster_says_what_its_file_lacks(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SERVETWIN_OPTIONS", str(tmp_path))
    file = tmp_path / "cluster" / "lab.yaml"
    file.parent.mkdir()
    file.write_text("gpu: A100-SXM4-80GB\ngpus: 4\n")
    words = ["simulate", "cluster=lab", "trace=poisson", "trace.requests=5", f"out={tmp_path / 'r'}", "-q"]
    assert cli.run(words) == 2
    assert f"{file} has no name: add a line 'name: lab' to it" in capsys.readouterr().err
    file.with_name("den.yaml").write_text("name: den\ngpus: 4\n")
    assert cli.run([words[0], "cluster=den", *words[2:]]) == 2
    assert "den.yaml has no gpu: add a line 'gpu: h100' to it" in capsys.readouterr().err
    file.with_name("hut.yaml").write_text("name: hut\ngpu: A100-SXM4-80GB\ngpus: 4\n")
    assert configured("cluster=hut").cluster.gpu == "a100_80g"
    assert cli.run([words[0], "cluster=hut", *words[2:]]) == 0


def test_support_tells_of_models_without_kv(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["support", "model=bert_21b"]) == 0
    told = capsys.readouterr().out
    assert "99 layers, 43.00 GB" in told and "QUART, table 1" in told and "system=pipeline" in told
    assert cli.run(["support", "model=bert_21b", "gpu=a100"]) == 2
    assert "write servetwin support model=bert_21b" in capsys.readouterr().err
