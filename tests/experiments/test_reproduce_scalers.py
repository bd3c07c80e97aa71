"""servetwin reproduce scalers: observed replica counts and V_P through the whole product, and its inputs."""

import csv
import json
from pathlib import Path

import pytest
import yaml

from experiments.common.figure import HELD
from experiments.common.runs import planned
from experiments.reproduce import _PAPERS
from experiments.scalers import beside_others
from experiments.scalers.inputs import FOLDER, inputs
from experiments.scalers.registry import paper
from experiments.scalers.token_velocity import stages
from servetwin.cli.main import run


def test_token_velocity_has_the_observed_replicas_at_four_of_five_rates_and_one_more_at_the_other(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["reproduce", "scalers", "token_velocity", "out=made", "processes=1"]) == 0
    capsys.readouterr()
    rows = json.loads(Path("made/token_velocity.json").read_text(encoding="utf-8"))["rows"]
    held = {row["name"]: row["verdict"] in HELD for row in rows}
    assert held == {
        "prefill replicas at 0.15 requests/s, most": True,
        "prefill replicas at 0.3 requests/s, most": True,
        "prefill replicas at 0.5 requests/s, most": False,
        "prefill replicas at 0.8 requests/s, most": True,
        "prefill replicas at 1.4 requests/s, most": True,
        "V_P through prefill and decode": True,
    }
    (missed,) = [row for row in rows if row["verdict"] not in HELD]
    assert missed["ours"] == "3" and missed["paper"] == "1 to 2, observed"
    (v_p,) = [row for row in rows if row["name"].startswith("V_P")]
    assert v_p["ratio"] == pytest.approx(1.0, abs=0.01)
    points = list(csv.DictReader(Path("made/points.csv").read_text(encoding="utf-8").splitlines()))
    assert max(float(point["y"]) for point in points if point["metric"] == "prefill replicas") == 4


def test_the_inputs_are_read_and_agree_with_each_other() -> None:
    part = inputs()["token_velocity"]
    stated, observed = part["stated"], part["observed"]
    assert [rate for rate, _, _ in stages()][:5] == observed["rates_per_s"]
    cluster = yaml.safe_load((FOLDER / "llmd_cluster.yaml").read_text(encoding="utf-8"))
    kv_bytes = stated["prompt_tokens"] * 64 * 8 * 128 * 2 * 2
    transfer_s = stated["prompt_tokens"] * (
        1 / stated["v_p_tokens_per_s"] - 1 / stated["v_p_direct_tokens_per_s"]
    )
    of_each_gpu = kv_bytes / transfer_s / 2 * 8 / 1e9
    assert (
        cluster["nic"]["gbps"] == part["derived"]["nic_gbps_per_gpu"] == pytest.approx(of_each_gpu, abs=0.005)
    )


def test_every_run_beside_the_others_is_accepted_and_begins_with_equal_traces(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    drawn = {"bursts": ("trace=burstgpt_like", "trace.requests=50")}
    monkeypatch.setattr(beside_others, "TRACES", drawn)
    plan = planned([*beside_others.tokenscale_cases(), *beside_others.pods_cases()], 1, processes=1)
    assert not plan.missing and len(plan.counts) == 2 * (5 + 5)


def test_it_is_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert "scalers" in _PAPERS
    assert run(["reproduce", "scalers", "list", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == list(paper().recipes)
