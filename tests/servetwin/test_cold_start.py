"""Cold starts through the configuration: what is refused, what a run reports, and that a replay agrees."""

import json
from pathlib import Path

import pytest

from servetwin.assemble.data_plane import spec_of, starts_of
from servetwin.cli.main import run
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from serving.vocabulary.actions import Load
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from tests.worlds.refusals import refuses

SHORT = {
    "trace": "azure_conv_like",
    "trace.requests": "60",
    "engine.loader": "direct",
    "engine.start_up": "none",
}


def refusal(*words: str) -> str:
    return refuses(UserError, "", load_config, ["out=OUT", *words], "simulate")


def test_clusters_with_links_are_options(tmp_path: Path) -> None:
    config = load_config(["out=OUT", "cluster=blitz_b"], "simulate")
    assert (config.cluster.gpu, config.cluster.gpus, config.cluster.topology) == ("a100_80g", 16, "blitz_b")
    larger = load_config(["out=OUT", "cluster=blitz_b_16x4"], "simulate").cluster
    assert (larger.gpus, larger.topology) == (64, "blitz_b_16x4")
    assert load_config(["out=OUT", "cluster=a100_x8"], "simulate").cluster.topology is None
    path = tmp_path / "config.yaml"
    path.write_text(resolved_yaml(config))
    assert load_resolved(path) == config


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ("cluster.start=ssd",),
            "cluster=a100_x8 has none: write a cluster that has, such as cluster=blitz_a",
        ),
        (("cluster=blitz_a", "cluster.start=disk"), "write one of warm, host, ssd, remote"),
        (("cluster=blitz_a_2000x8",), "unknown option cluster=blitz_a_2000x8"),
        (("cluster=blitz_a", "cluster.gpus=64"), "contradicts cluster=blitz_a, which has 32"),
        (("cluster=blitz_a", "cluster.topology=blitz_b"), "cluster.topology belongs to the chosen cluster"),
    ],
)
def test_what_cannot_be_is_refused(words: tuple[str, ...], part: str) -> None:
    assert part in refusal(*words)


def test_a_replica_must_fit_the_hosts() -> None:
    config = load_config(["out=OUT", "cluster=quart_2x6", "model.tp=4"], "simulate")
    with pytest.raises(UserError, match=r"model\.tp=4 does not fit the 6 GPUs of a host"):
        spec_of(config)
    across = ["out=OUT", "cluster=quart", "model.tp=8"]
    assert spec_of(load_config(across, "simulate")) is not None
    with pytest.raises(UserError, match=r"write a model\.tp that divides 4$"):
        spec_of(load_config([*across, "cluster.start=ssd"], "simulate"))


def test_every_replica_loads_from_its_own_host() -> None:
    config = load_config(["out=OUT", "cluster=blitz_b", "cluster.start=host", "model.tp=8"], "simulate")
    replicas = [
        Replica(id=n, model="m", layers=LayerRange(0, 32), gpus=tuple(range(8 * n, 8 * n + 8)), kv_blocks=64)
        for n in range(2)
    ]
    assert starts_of(config, replicas) == [
        Load(
            n, "m", (("host", n),), (("replica", n),), (), False, True, "cold start from host", layers=(0, 32)
        )
        for n in range(2)
    ]


def summary_of(tmp_path: Path, name: str, *words: str) -> dict[str, dict[str, object]]:
    out = tmp_path / name
    keys = SHORT | dict(word.split("=") for word in words)
    if "cluster.start" not in keys:  # nothing loads
        keys = {key: value for key, value in keys.items() if not key.startswith("engine.")}
    given = [f"{key}={value}" for key, value in keys.items()]
    assert run(["simulate", "cluster=blitz_b", *given, "journal=true", f"out={out}"]) == 0
    assert run(["replay", str(out)]) == 0
    found: dict[str, dict[str, object]] = json.loads((out / "summary.json").read_text())
    return found


def test_a_cold_start_takes_bytes_over_the_path_and_requests_wait_for_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    warm = summary_of(tmp_path, "warm")
    cold = summary_of(tmp_path, "cold", "cluster.start=ssd")
    assert "loads" not in warm
    seconds = cold["loads"]["seconds"]
    assert isinstance(seconds, dict) and cold["loads"]["count"] == 16
    # 16.06 GB over 10 Gbps, and the last chunk over 96 Gbps of PCIe.
    assert seconds["max"] == pytest.approx(16.06e9 / 1.25e9, rel=0.01)
    ttft_cold, ttft_warm = cold["ttft_ms"]["max"], warm["ttft_ms"]["max"]
    assert isinstance(ttft_cold, float) and isinstance(ttft_warm, float)
    assert 11_000 < ttft_cold < 14_000 and ttft_warm < 2_000
    carried = cold["network"]["ssd"]
    assert isinstance(carried, dict) and carried["bytes"]["parameters"] == pytest.approx(
        16 * 16.06e9, rel=0.01
    )
    brought = cold["loads"]["bytes_by_tier"]
    assert brought == {"gpu": 0, "host": 0, "ssd": 16 * 16_060_522_496, "remote": 0}
    assert "loads" in capsys.readouterr().out


def test_a_loaders_own_rate_and_the_engines_start_up_count(tmp_path: Path) -> None:
    slow = summary_of(tmp_path, "slow", "cluster.start=host", "engine.loader=safetensors")
    engine = summary_of(tmp_path, "engine", "cluster.start=host", "engine.start_up=vllm")
    assert slow["loads"]["seconds"]["mean"] == pytest.approx(16.06 / 5.87, rel=0.01)  # type: ignore[index]
    assert engine["loads"]["seconds"]["mean"] == pytest.approx(30.5 + 16.06 / 12, rel=0.01)  # type: ignore[index]
