"""What ``servetwin plan`` prints and writes to deploy its answer, read back by the list of servers' flags."""

import json
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from policies.scaling.metrics import NAMES as METRICS
from servetwin.cli import main as cli
from servetwin.planning.deploy import ADAPTER, MANIFEST, Deploy, deploy_of, lines_of, write_manifest
from servetwin.planning.probe import prepared_for
from servetwin.planning.scaler_objects import query_of, why_no_object
from tests.worlds.deployed import LINKED, PLAIN, VARIANTS

SPLIT = (*LINKED, "system=distserve_full", "engine.asynchronous=false")
SCALED = (*LINKED, "system=serverlessllm", "system.instances.split=false")
SGLANG = ("engine.software=sglang", "engine.version=0.5.10")


def deployed(*words: str) -> Deploy:
    all_words = (*words, "trace=azure_conv_like", "trace.requests=20", "trace.rate_per_s=5")
    prepared = prepared_for(all_words)
    return deploy_of(prepared.config, prepared.replicas, all_words)


def line_of(*words: str) -> str:
    (one,) = deployed(*words).roles
    return one.line


def objects(found: Deploy, folder: Path) -> dict[str, list[dict[str, Any]]]:
    """As they are in the file, by kind."""
    write_manifest(found, folder)
    by_kind: dict[str, list[dict[str, Any]]] = {}
    for one in yaml.safe_load_all((folder / MANIFEST).read_text(encoding="utf-8")):
        by_kind.setdefault(one["kind"], []).append(one)
    return by_kind


@pytest.mark.parametrize("server", ["vllm", "sglang"])
@pytest.mark.parametrize("words", VARIANTS, ids=lambda words: words[0] if words else "plain")
def test_the_flags_mean_the_keys_that_they_came_from(server: str, words: tuple[str, ...]) -> None:
    """The list of flags that answers a user's own command line reads the printed one back."""
    from servetwin.config.compose.compose import load_config
    from servetwin.config.server_flags import answer, flags_spelled

    of_server = SGLANG if server == "sglang" else ()
    line = shlex.split(line_of(*PLAIN, *of_server, *words))
    flags = line[line.index("--tensor-parallel-size") :]
    again = list[str]()
    while flags:
        name, value = flags.pop(0), ""
        if flags and not flags[0].startswith("--"):
            value = flags.pop(0)
        (flag,) = [one for one in flags_spelled(name) if one.server == server]
        told = answer(flag, value, negated=name.startswith("--no-") and flag.flag != name)
        if told.write and "N" not in told.write:
            again += told.write.split()
    given = load_config([*PLAIN, *of_server, *words, "trace=azure_conv_like", "out=none"], "simulate")
    read = load_config([*PLAIN, *of_server, *again, "trace=azure_conv_like", "out=none"], "simulate")
    for name in ("max_num_seqs", "max_num_batched_tokens", "gpu_memory_utilization", "kv_cache_dtype"):
        assert getattr(read.engine, name) == getattr(given.engine, name), name
    for name in ("block_tokens", "prefix_caching", "asynchronous", "kv_tokens", "enable_expert_parallel"):
        assert getattr(read.engine, name) == getattr(given.engine, name), name
    assert read.engine.overhead.cuda_graphs == given.engine.overhead.cuda_graphs
    assert read.engine.max_model_len == (given.engine.max_model_len or 8192)
    assert (read.model.tp, read.model.pp) == (given.model.tp, given.model.pp)
    assert read.system.instances.scheduling_policy == given.system.instances.scheduling_policy


@pytest.mark.parametrize(
    ("words", "command"),
    [
        (("model=llama3_1_8b",), "vllm serve meta-llama/Llama-3.1-8B "),
        (("model=meta-llama/Llama-3.1-8B-Instruct",), "vllm serve meta-llama/Llama-3.1-8B-Instruct "),
        (("model=nvidia/Llama-3.1-8B-Instruct-FP8",), "vllm serve nvidia/Llama-3.1-8B-Instruct-FP8 "),
        (("model=llama3_1_8b", "model.precision=fp8"), "vllm serve nvidia/Llama-3.1-8B-Instruct-FP8 "),
        (("model=llama3_1_8b", "model.precision=bf16"), "vllm serve meta-llama/Llama-3.1-8B "),
        (("model=llama3_8b", "model.precision=nvfp4"), "vllm serve MODEL "),
    ],
)
def test_the_model_is_named_as_it_is_published(words: tuple[str, ...], command: str) -> None:
    found = deployed("cluster=h100_x1", "engine.step_time=roofline", *words)
    assert found.roles[0].line.startswith(command) and "--quantization" not in found.roles[0].line
    explained = "MODEL: a checkpoint of llama3_8b with nvfp4 parameters; the catalogue names none"
    assert (explained in found.remarks) == ("MODEL" in command)


def test_an_engine_may_quantise_what_nobody_has_published() -> None:
    line = line_of("cluster=h100_x1", "model=llama3_8b", "model.precision=fp8", "engine.step_time=roofline")
    assert line.startswith("vllm serve meta-llama/Meta-Llama-3-8B ") and "--quantization fp8 " in line


def test_a_manifest_has_what_kubernetes_requires(tmp_path: Path) -> None:
    found = objects(deployed(*PLAIN, "model.tp=2"), tmp_path)
    (one,), (service,) = found.pop("Deployment"), found.pop("Service")
    assert found == {} and not (tmp_path / ADAPTER).exists()
    spec, name = one["spec"], one["metadata"]["name"]
    assert (one["apiVersion"], name, spec["replicas"]) == ("apps/v1", "vllm-llama3-8b", 2)
    assert spec["selector"]["matchLabels"] == spec["template"]["metadata"]["labels"] == {"app": name}
    (container,) = spec["template"]["spec"]["containers"]
    assert container["resources"]["limits"] == container["resources"]["requests"] == {"nvidia.com/gpu": "2"}
    assert shlex.join([*container["command"], *container["args"]]) == line_of(*PLAIN, "model.tp=2")
    assert all(isinstance(word, str) for word in container["args"])
    assert container["image"] == "vllm/vllm-openai:v0.19.0"
    for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"] == {"path": "/health", "port": container["ports"][0]["name"]}
    volumes = [volume["name"] for volume in spec["template"]["spec"]["volumes"]]
    assert [mount["name"] for mount in container["volumeMounts"]] == volumes
    assert service["spec"]["selector"] == {"app": name}
    assert service["spec"]["ports"] == [{"name": "http", "port": 80, "targetPort": "http"}]


def test_prefill_and_decode_are_deployed_apart(tmp_path: Path) -> None:
    found = deployed(*SPLIT)
    assert [(one.role, one.instances) for one in found.roles] == [("prefill", 5), ("decode", 3)]
    names = [one["metadata"]["name"] for one in objects(found, tmp_path)["Deployment"]]
    assert names == ["vllm-llama3-8b-prefill", "vllm-llama3-8b-decode"]
    assert all("NixlConnector" in one.line for one in found.roles)
    assert (
        "prefill and decode servers need a proxy in front that sends each request to one of both"
        in found.remarks
    )
    modes = [
        one.line.partition("--disaggregation-mode ")[2].split()[0] for one in deployed(*SPLIT, *SGLANG).roles
    ]
    assert modes == ["prefill", "decode"]


def test_an_hpa_has_the_rules_of_the_plan(tmp_path: Path) -> None:
    words = ("metric=concurrency", "target=12.5", "up_pods=2", "stabilisation_s=120", "tolerance=0.2")
    scaler = [f"system.scaler.{word}" for word in words]
    found = deployed(*SCALED, "system/scaler=hpa", *scaler, "system.instances.drain_s=40.5")
    assert lines_of(found)[0] == "to deploy, 1 to 8 servers of 1 GPU:"
    by_kind = objects(found, tmp_path)
    (hpa,), (one,) = by_kind["HorizontalPodAutoscaler"], by_kind["Deployment"]
    spec, name = hpa["spec"], one["metadata"]["name"]
    assert hpa["apiVersion"] == "autoscaling/v2" and "replicas" not in one["spec"], (
        "else each apply sets them"
    )
    assert one["spec"]["template"]["spec"]["terminationGracePeriodSeconds"] == 41
    assert spec["scaleTargetRef"] == {"apiVersion": "apps/v1", "kind": "Deployment", "name": name}
    assert (spec["minReplicas"], spec["maxReplicas"]) == (1, 8)
    (metric,) = spec["metrics"]
    assert metric["external"]["target"] == {"type": "AverageValue", "averageValue": "12500m"}
    assert spec["behavior"]["scaleUp"]["policies"][0] == {"type": "Pods", "value": 2, "periodSeconds": 15}
    assert spec["behavior"]["scaleDown"] == {"stabilizationWindowSeconds": 120}
    (rule,) = yaml.safe_load((tmp_path / ADAPTER).read_text(encoding="utf-8"))["rules"]["external"]
    assert rule["name"]["as"] == metric["external"]["metric"]["name"]
    of = '{pod=~"vllm-llama3-8b-.*"}'
    assert rule["metricsQuery"] == f"sum(vllm:num_requests_waiting{of}) + sum(vllm:num_requests_running{of})"
    assert rule["seriesQuery"] == "vllm:num_requests_waiting"
    assert any(
        "system.scaler.tolerance=0.2: a flag of kube-controller-manager" in line for line in found.remarks
    )


def test_keda_has_the_rules_of_the_plan(tmp_path: Path) -> None:
    words = ("metric=waiting", "threshold=6", "polling_s=30", "cooldown_s=90")
    scaler = [f"system.scaler.{word}" for word in words]
    found = deployed(*SCALED, "system/scaler=keda", *scaler, "system.instances.both_min=0")
    (one,) = objects(found, tmp_path)["ScaledObject"]
    spec = one["spec"]
    assert one["apiVersion"] == "keda.sh/v1alpha1" and spec["scaleTargetRef"] == {"name": "vllm-llama3-8b"}
    assert (spec["minReplicaCount"], spec["maxReplicaCount"]) == (0, 8)
    assert (spec["pollingInterval"], spec["cooldownPeriod"]) == (30, 90)
    (trigger,) = spec["triggers"]
    assert trigger["type"] == "prometheus" and trigger["metadata"]["threshold"] == "6"
    assert trigger["metadata"]["query"] == 'sum(vllm:num_requests_waiting{pod=~"vllm-llama3-8b-.*"})'
    assert not (tmp_path / ADAPTER).exists()


@pytest.mark.parametrize("software", [(), SGLANG])
@pytest.mark.parametrize("metric", METRICS)
def test_every_metric_has_a_query_or_a_reason(metric: str, software: tuple[str, ...]) -> None:
    found = deployed(*SCALED, *software, "system/scaler=hpa", f"system.scaler.metric={metric}")
    kinds = {one["kind"] for one in found.objects()}
    if metric in ("requests_per_s", "prompt_tokens", "in_flight_tokens"):
        assert f"system.scaler.metric={metric} is no metric of" in why_no_object(found.config)
        assert "HorizontalPodAutoscaler" not in kinds and why_no_object(found.config) in found.remarks
    else:
        query = query_of(found.config, "x")
        assert (
            "HorizontalPodAutoscaler" in kinds
            and query.count("(") == query.count(")")
            and '{pod=~"x-.*"}' in query
        )


def test_a_scaler_without_an_object_is_told(tmp_path: Path) -> None:
    found = deployed(*SCALED, "system/scaler=kpa")
    assert set(objects(found, tmp_path)) == {"Deployment", "Service"}
    assert any("system/scaler=kpa is no object of Kubernetes or KEDA" in line for line in found.remarks)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("engine.reserve_activation_bytes=1000",), "the engine measures what activations take"),
        (("engine.reserve_full_prompt=false",), "--no-scheduler-reserve-full-isl"),
        (("model.tp=8", "model.pp=2", "model=llama3_70b", "cluster=h100_x16"), "write a LeaderWorkerSet"),
    ],
)
def test_what_no_flag_says_is_told(words: tuple[str, ...], told: str) -> None:
    own = {word.partition("=")[0] for word in words}
    rest = [word for word in PLAIN if word.partition("=")[0] not in own]
    assert any(told in line for line in deployed(*rest, *words).remarks)


def test_layers_of_stages_are_settings(tmp_path: Path) -> None:
    found = deployed(*PLAIN, "model.pp=2", "model.pp_cut=20+12")
    assert found.roles[0].line.startswith("VLLM_PP_LAYER_PARTITION=20,12 vllm serve ")
    (one,) = objects(found, tmp_path)["Deployment"]
    (container,) = one["spec"]["template"]["spec"]["containers"]
    assert {"name": "VLLM_PP_LAYER_PARTITION", "value": "20,12"} in container["env"]


def test_a_plan_prints_and_writes_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    plan = [
        "plan",
        "trace=azure_conv_like",
        "trace.requests=60",
        "trace.rate_per_s=10",
        "gpu=a100",
        "model.tp=1",
    ]
    plan += ["slo.ttft_p99_ms=5000", "processes=1", "headroom=false", "max_gpus=4"]
    assert cli.run([*plan, f"out={tmp_path / 'a'}"]) == 0
    line = "vllm serve meta-llama/Meta-Llama-3-8B --tensor-parallel-size 1 --max-model-len 8192"
    assert f"to deploy, 1 server of 1 GPU:\n  {line} " in capsys.readouterr().out
    data = json.loads((tmp_path / "a" / "plan.json").read_text(encoding="utf-8"))
    assert data["deploy"]["servers"][0]["command"].startswith(line)
    assert line in (tmp_path / "a" / "report.html").read_text(encoding="utf-8")
    assert len(list(yaml.safe_load_all((tmp_path / "a" / MANIFEST).read_text(encoding="utf-8")))) == 2
    assert cli.run([*plan, "engine=distserve", f"out={tmp_path / 'b'}"]) == 0
    assert "to deploy: no command, because engine=distserve imitates" in capsys.readouterr().out
    assert not (tmp_path / "b" / MANIFEST).exists()


def test_a_scaler_without_room_is_told() -> None:
    """Two instances at least and two at most: an autoscaler that never scales."""
    tight = ("system/scaler=hpa", "system.instances.both_min=2", "system.instances.both_max=2")
    assert any("the scaler never scales" in line for line in deployed(*SCALED, *tight).remarks)
    loose = (*tight[:2], "system.instances.both_max=3")
    assert not any("never scales" in line for line in deployed(*SCALED, *loose).remarks)
    assert not any("never scales" in line for line in deployed(*PLAIN).remarks)
