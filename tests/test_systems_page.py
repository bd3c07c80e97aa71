"""docs/SYSTEMS.md is true: its table is that of the option files. The examples of pages run and replay."""

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments import cli, compose
from experiments.compose import load_config, option_groups

DOCS = Path(__file__).resolve().parents[1] / "docs"
PAGE = (DOCS / "SYSTEMS.md").read_text(encoding="utf-8")
LIVE_PAGE = (DOCS / "LIVE_SCALING.md").read_text(encoding="utf-8")
WORDS = ("cluster=blitz_b", "trace=azure_code_like", "trace.rate_scale=4", "trace.limit=300")


def rows() -> dict[str, list[str]]:
    """System -> roles, instances, scaler, provision, cache, live."""
    found = {}
    for line in PAGE.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 8 and cells[0].startswith("`") and cells[2] in ("split", "both in one"):
            for name in cells[0].split(", "):
                found[name.strip("`")] = [cell.strip("`") for cell in cells[2:]]
    return found


def test_the_table_names_every_system() -> None:
    assert set(rows()) == set(option_groups()["system"])


@pytest.mark.parametrize("name", option_groups()["system"])
def test_the_table_has_what_the_system_is_made_of(name: str) -> None:
    system = load_config([f"system={name}", "cluster=blitz_b", "out=OUT"], "simulate").system
    roles = "split" if system.instances.split else "both in one"
    parts = [system.scaler.name, system.provision.name, system.cache.name, system.live.name]
    assert rows()[name] == [roles, system.instances.size, *parts]


def test_the_options_that_the_page_names_are_all_there_are() -> None:
    for group in ("system/scaler", "system/provision", "system/cache", "system/live"):
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"| `{group}` |")]
        assert set(option_groups()[group]) <= set(re.findall(r"`(\w+)`", line))


@pytest.fixture
def conf(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A copy of the option files to add to; modules beside it can be imported."""
    copy = tmp_path / "conf"
    shutil.copytree(compose.CONF_DIR, copy)
    monkeypatch.setattr(compose, "CONF_DIR", copy)
    monkeypatch.syspath_prepend(tmp_path)
    return copy


def blocks(page: str, language: str) -> list[str]:
    """What the page shows in that language; its modules are beside the option files, not among policies."""
    shown = re.findall(rf"```{language}\n(.*?)```", page, re.DOTALL)
    return [text.replace("policies.my_", "my_") for text in shown]


def test_the_live_policy_of_the_page_runs_and_replays(tmp_path: Path, conf: Path) -> None:
    (code,), (option,) = blocks(LIVE_PAGE, "python"), blocks(LIVE_PAGE, "yaml")
    (tmp_path / "my_live.py").write_text(code)
    (conf / "system" / "live" / "slowest.yaml").write_text(option)
    out = tmp_path / "run"
    words = ["simulate", "system=blitzscale", "system/live=slowest", *WORDS, "journal=true", f"out={out}"]
    assert cli.run(words) == 0
    live = json.loads((out / "summary.json").read_text())["live"]
    assert live["plans_used"] > 0 and live["requests"] > 0 and max(live["layer_counts_seen"]) > 16
    assert cli.run(["replay", str(out)]) == 0


def test_the_example_of_the_page_runs_and_replays(tmp_path: Path, conf: Path) -> None:
    (code,) = blocks(PAGE, "python")
    scaler, system = blocks(PAGE, "yaml")
    (tmp_path / "my_scaler.py").write_text(code)
    (conf / "system" / "scaler" / "per_backlog.yaml").write_text(scaler)
    (conf / "system" / "by_backlog.yaml").write_text(system)
    out = tmp_path / "run"
    assert cli.run(["simulate", "system=by_backlog", *WORDS, "journal=true", f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["requests"]["finished"] == 300
    reasons = {event["reason"] for event in summary["scale_events"] if event["act"] == "load"}
    assert reasons and all(re.fullmatch(r"\d+ tokens want \d+ .*", reason) for reason in reasons)
    assert {event["act"] for event in summary["scale_events"]} >= {"load", "ready", "drain", "reclaimed"}
    assert cli.run(["replay", str(out)]) == 0
    refused = ["simulate", "system=by_backlog", *WORDS, "system.scaler.tokens=0", f"out={tmp_path / 'no'}"]
    assert cli.run(refused) == 2
