"""``cluster.links=measured``: cluster=local has the rates of a calibration, for real and simulated."""

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from servetwin.assemble.data_plane import spec_of
from servetwin.assemble.fleet import rates_of, slow_links
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from serving.vocabulary.errors import UserError
from tests.worlds.calibrations import profile

MOVES = ("system=distserve_half", "model=tiny_llama", "trace=azure_conv_like", "out=OUT")
REAL = (*MOVES, "cluster=local", "workers=2")
TWIN = (*MOVES, "cluster=local_2x1", "engine=own_workers")
MB = 1e6


@pytest.fixture(scope="module")
def calibrated(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Each link with a rate of its own; TCP was measured, shared memory is not there."""
    folder = tmp_path_factory.mktemp("calibrated") / "profile"
    profile(folder)
    rewritten(folder, shared_memory={"missing": "no memfd"})
    return folder


def rewritten(folder: Path, **links: Any) -> None:
    path = folder / "calibration.json"
    record = json.loads(path.read_text())
    record["links"] |= {"tcp": {"median_bytes_per_s": 700 * MB}, **links}
    for name, rate in (("parameters from their source", 90), ("parameters from the host's memory", 1300)):
        record["parameters"][name] |= {"median_bytes_per_s": rate * MB}
    path.write_text(json.dumps(record))


def measured(folder: Path) -> tuple[str, ...]:
    return "cluster.links=measured", f"engine.profile={folder}"


def test_real_workers_and_their_twin_have_the_same_measured_rates(calibrated: Path) -> None:
    real = load_config([*REAL, *measured(calibrated)], "realexec")
    assert rates_of(real) == pytest.approx({"nic": 700 * MB, "ssd": 90 * MB, "pcie": 1300 * MB})
    spec = spec_of(load_config([*TWIN, *measured(calibrated)], "simulate"))
    assert spec is not None and spec.nic is not None and spec.ssd is not None
    found = spec.nic.bytes_per_s, spec.ssd.bytes_per_s, spec.pcie.bytes_per_s
    assert found == pytest.approx((700 * MB, 90 * MB, 1300 * MB))
    assert rates_of(load_config(list(REAL), "realexec"))["nic"] == 25 * MB, "given, as before"


def test_a_model_too_large_for_the_links_of_cluster_local_is_told_before_the_run() -> None:
    large = [one for one in REAL if not one.startswith("model=")] + ["model=llama3_1_8b"]
    assert slow_links(load_config(large, "realexec")) == (
        "links between workers are held to 0.2 Gbit/s (cluster=local): the parameters of llama3_1_8b take "
        "642 s, KV of 1,000 tokens 5.2 s; write a rate that suits the model, such as cluster.nic_gbps=200"
    )
    for words in ([*large, "cluster.nic_gbps=200"], [*REAL]):
        assert slow_links(load_config(words, "realexec")) is None
    static = [one for one in large if not one.startswith("system=")]
    assert slow_links(load_config([*static, "system=vllm"], "realexec")) is None, (
        "nothing goes between workers"
    )


def test_a_rate_of_the_command_line_stays_and_a_transport_has_its_own(
    calibrated: Path, tmp_path: Path
) -> None:
    folder = tmp_path / "profile"
    shutil.copytree(calibrated, folder)
    rewritten(folder, shared_memory={"median_bytes_per_s": 5000 * MB})
    for words, nic in (((), 5000), (("transport=tcp",), 700), (("cluster.nic_gbps=4",), 500)):
        rates = rates_of(load_config([*REAL, *measured(folder), *words], "realexec"))
        assert (rates["nic"], rates["ssd"]) == pytest.approx((nic * MB, 90 * MB))


def test_a_run_is_done_again_with_its_rates_or_with_those_of_another_profile(
    calibrated: Path, tmp_path: Path
) -> None:
    folder, run = tmp_path / "profile", tmp_path / "run"
    shutil.copytree(calibrated, folder)
    small = ("engine.max_num_seqs=8", "engine.max_num_batched_tokens=256", "engine.kv_tokens=16384")
    words = [one for one in TWIN if not one.startswith("out=")]
    trace = ("trace.limit=4", "trace.tokens_scale=0.1")
    assert cli.run(["simulate", *words, *small, *trace, *measured(folder), f"out={run}"]) == 0
    (folder / "calibration.json").rename(folder / "elsewhere.json")
    again = load_config([f"config={run}", "out=OUT"], "simulate")
    assert again.cluster.nic_gbps == pytest.approx(5.6), "the saved configuration has the rates itself"
    given = load_config([f"config={run}", "cluster.links=given", "out=OUT"], "simulate")
    assert given.cluster.nic_gbps is None
    (folder / "elsewhere.json").rename(folder / "calibration.json")
    rewritten(folder, tcp={"median_bytes_per_s": 300 * MB})
    other = load_config([f"config={run}", f"engine.profile={folder}", "out=OUT"], "simulate")
    assert other.cluster.nic_gbps == pytest.approx(2.4)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("cluster.links=guessed",), "cluster.links=guessed is unknown: write one of given, measured"),
        (("cluster.links=measured",), "write engine.profile=DIR, made with realexec calibrate"),
        (
            ("cluster=blitz_b", "cluster.links=measured", "engine.profile=P"),
            "cluster=blitz_b has no links of",
        ),
        (("cluster=local", "cluster.links=measured", "engine.profile=P"), "such as cluster=local_4x1"),
        (("cluster.links=measured", "engine.profile=nowhere"), "nowhere has no calibration.json"),
    ],
)
def test_what_cannot_be_measured_is_refused(words: tuple[str, ...], told: str) -> None:
    chosen = {word.partition("=")[0] for word in words}
    with pytest.raises(UserError, match=told.replace(".", r"\.")):
        load_config([*(one for one in TWIN if one.partition("=")[0] not in chosen), *words], "simulate")


def test_a_calibration_without_the_link_is_refused(calibrated: Path) -> None:
    with pytest.raises(UserError, match="no rates of links by transport=shared_memory: measure again"):
        load_config([*REAL, *measured(calibrated), "transport=shared_memory"], "realexec")
