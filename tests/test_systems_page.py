"""docs/SYSTEMS.md is true: its table is that of the option files, its example runs and replays."""

import json
import re
import shutil
from pathlib import Path

import pytest

from experiments import cli, compose
from experiments.compose import load_config, option_groups

PAGE = (Path(__file__).resolve().parents[1] / "docs" / "SYSTEMS.md").read_text(encoding="utf-8")


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


def test_the_example_of_the_page_runs_and_replays(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    scaler, system = re.findall(r"```yaml\n(.*?)```", PAGE, re.DOTALL)
    conf = tmp_path / "conf"
    shutil.copytree(compose.CONF_DIR, conf)
    monkeypatch.setattr(compose, "CONF_DIR", conf)
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "my_scaler.py").write_text(code)
    (conf / "system" / "scaler" / "per_backlog.yaml").write_text(scaler.replace("policies.my_", "my_"))
    (conf / "system" / "by_backlog.yaml").write_text(system)
    words = ["cluster=blitz_b", "trace=azure_code_like", "trace.rate_scale=4", "trace.limit=300"]
    out = tmp_path / "run"
    assert cli.run(["simulate", "system=by_backlog", *words, "journal=true", f"out={out}"]) == 0
    summary = json.loads((out / "summary.json").read_text())
    assert summary["requests"]["finished"] == 300
    reasons = {event["reason"] for event in summary["scale_events"] if event["act"] == "load"}
    assert reasons and all(re.fullmatch(r"\d+ tokens want \d+ .*", reason) for reason in reasons)
    assert {event["act"] for event in summary["scale_events"]} >= {"load", "ready", "drain", "reclaimed"}
    assert cli.run(["replay", str(out)]) == 0
    refused = ["simulate", "system=by_backlog", *words, "system.scaler.tokens=0", f"out={tmp_path / 'no'}"]
    assert cli.run(refused) == 2
