"""docs/reference/SYSTEMS.md is true: its table is that of the option files. Its examples run and replay."""

import json
import re
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config, option_groups
from tests.worlds.user_policies import here

__all__ = ["here"]

DOCS = Path(__file__).resolve().parents[2] / "docs"
PAGE = (DOCS / "reference" / "SYSTEMS.md").read_text(encoding="utf-8")
LIVE_PAGE = (DOCS / "explanation" / "LIVE_SCALING.md").read_text(encoding="utf-8")


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
        (line,) = [line for line in PAGE.splitlines() if line.startswith(f"|`{group}`|")]
        assert set(option_groups()[group]) <= set(re.findall(r"`(\w+)`", line))


def test_the_live_policy_of_the_page_runs_and_replays(here: Path) -> None:
    write_module(LIVE_PAGE, "## One of your own", "my_live.py")
    for words in commands(LIVE_PAGE, "## One of your own"):
        assert cli.run(words) == 0
    live = json.loads(Path("out/slowest/summary.json").read_text())["live"]
    assert live["plans_used"] > 0 and live["requests"] > 0 and max(live["layer_counts_seen"]) > 16


def test_the_scaler_of_the_page_runs_and_replays(here: Path) -> None:
    write_module(PAGE, "## Write one of your own", "my_scaler.py")
    said = commands(PAGE, "## Write one of your own")
    for words in said:
        assert cli.run(words) == 0
    summary = json.loads(Path("out/own/summary.json").read_text())
    assert summary["requests"]["finished"] == 300
    reasons = {event["reason"] for event in summary["scale_events"] if event["act"] == "load"}
    assert reasons and all(re.fullmatch(r"\d+ tokens want \d+ .*", reason) for reason in reasons)
    assert {event["act"] for event in summary["scale_events"]} >= {"load", "ready", "drain", "released"}
    assert cli.run([*said[0][:-1], "system.scaler.tokens=0", "out=out/no"]) == 2


def test_the_scaler_of_metrics_of_its_page_runs_and_replays(here: Path) -> None:
    page, title = (DOCS / "reference" / "SCALERS.md").read_text(encoding="utf-8"), "## A scaler of your own"
    write_module(page, title, "my_arrivals.py")
    for words in commands(page, title):
        assert cli.run(words) == 0
    summary = json.loads(Path("out/arrivals/summary.json").read_text())
    loads = [event["reason"] for event in summary["scale_events"] if event["act"] == "load"]
    assert loads and all(reason.endswith(" prompt tokens/s arrive") for reason in loads)


def test_the_dispatcher_of_the_architecture_runs_and_replays(here: Path) -> None:
    page = (DOCS / "contributing" / "ARCHITECTURE.md").read_text(encoding="utf-8")
    write_module(page, "## Add a policy", "my_policies.py")
    for words in commands(page, "## Add a policy"):
        assert cli.run(words) == 0
    assert " of 16 places taken" in Path("out/fill/journal").read_text()
    run, fewer = (Path(f"out/{name}/requests.parquet").read_bytes() for name in ("fill", "fill4"))
    assert run != fewer


def section(page: str, title: str) -> str:
    return page[page.index(title) :].split("\n## ")[0]


def write_module(page: str, title: str, name: str) -> None:
    """The Python that the section shows, under the name it has there."""
    assert f"`{name}`" in section(page, title)
    (code,) = re.findall(r"```python\n(.*?)```", section(page, title), re.DOTALL)
    Path(name).write_text(code)


def commands(page: str, title: str) -> list[list[str]]:
    """What the section has typed, with a tenth of the requests."""
    lines = "\n".join(re.findall(r"```\n(servetwin .*?)```", section(page, title), re.DOTALL))
    lines = lines.replace("\\\n", " ").replace("trace.limit=3000", "trace.limit=300")
    lines = lines.replace("trace.requests=2000", "trace.requests=200")
    return [line.split()[1:] for line in lines.splitlines()]
