"""QUART in whole runs, with single parts off: what the part does is missing then, and nothing else breaks."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from experiments import cli

# Bursts that every stage has to grow for, and lulls in which it can shrink; model, trace and rate in words.
WORDS = (
    "model=whisper_9b",
    "cluster=quart",
    "trace=on_off",
    "trace.spells=fixed",
    "trace.on_s=8",
    "trace.off_s=16",
    "trace.off_to_on=0.05",
    "trace.rate_per_s=30",
    "trace.requests=900",
    "uncertainty=off",
)


def run(folder: Path, *words: str) -> dict[str, Any]:
    assert cli.run(["simulate", *WORDS, *words, f"out={folder / 'run'}", "overwrite=true"]) == 0
    found: dict[str, Any] = json.loads((folder / "run" / "summary.json").read_text())
    assert found["requests"]["finished"] == 900
    return found


def acts(summary: dict[str, Any]) -> Counter[str]:
    return Counter(one["act"] for one in summary["scale_events"])


def sources(summary: dict[str, Any]) -> set[str]:
    """Where replicas loaded from."""
    loads = [one for one in summary["scale_events"] if one["act"] == "load"]
    return {one["reason"].rpartition("from ")[2] for one in loads}


def test_quart_grows_shrinks_and_loads_from_host_memory(tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", "system.stages.hold_s=2")
    assert acts(found)["load"] > 0 and acts(found)["drain"] > 0
    assert sources(found) <= {"ssd", "host"}


@pytest.mark.parametrize("part", ["smoother=none", "compensator=false", "placement=false", "corrector=rate"])
def test_each_part_can_be_off_in_a_run(part: str, tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", f"system.stages.{part}", "system.stages.hold_s=2")
    assert acts(found)["load"] > 0
    assert (acts(found)["drain"] == 0) == (part == "smoother=none")


def test_without_keys_every_load_is_from_ssd(tmp_path: Path) -> None:
    found = run(tmp_path, "system=quart", "system.stages.keys=false", "system.stages.hold_s=2")
    assert sources(found) == {"ssd"}


def test_the_printed_sign_serves_its_requests_late(tmp_path: Path) -> None:
    """With the sign of Algorithm 1 nothing is added to stages that are too slow."""
    printed = run(tmp_path, "system=quart", "system.stages.sign=printed")
    ours = run(tmp_path, "system=quart")
    assert printed["e2e_ms"]["mean"] > 2 * ours["e2e_ms"]["mean"]


def test_step_by_step_is_the_same_run_and_its_journal_replays(tmp_path: Path) -> None:
    """A pass is one step, so nothing is coalesced that could differ."""
    files = []
    for exact in ("false", "true"):
        out = tmp_path / exact
        words = ["system=quart", "system.stages.hold_s=2", f"engine.exact={exact}", "journal=true"]
        assert cli.run(["simulate", *WORDS, *words, f"out={out}"]) == 0
        files.append([(out / name).read_bytes() for name in ("requests.parquet", "stages.parquet")])
        assert cli.run(["replay", str(out)]) == 0
    assert files[0] == files[1]


@pytest.mark.parametrize("system", ["quart system.stages.keys=false", "infless", "cocktail"])
def test_peers_send_what_else_comes_from_ssd(system: str, tmp_path: Path) -> None:
    """INFless's replicas come from SSD, as it says itself."""
    words = [f"system={system.split()[0]}", *system.split()[1:], "system/provision=multicast"]
    found = run(tmp_path, *words, "journal=true")
    assert sources(found) == {"ssd" if system == "infless" else "replica"}
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
