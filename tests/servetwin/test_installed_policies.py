"""Policies of installed packages: chosen by the name of an entry point, replayed without being named."""

import json
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.key_list import key_list
from tests.worlds.user_policies import DISPATCH, TINY, here, sentence

__all__ = ["here"]


@pytest.fixture
def installed(here: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A package beside Python's own, with entry points ``fill_first`` and ``no_class``."""
    site = here / "site"
    (site / "acme-1.0.dist-info").mkdir(parents=True)
    (site / "acme-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: acme\nVersion: 1.0\n")
    (site / "acme-1.0.dist-info" / "entry_points.txt").write_text(
        "[servetwin.policies]\nfill_first = acme_policies:FillFirst\nno_class = acme_policies:fill_first\n"
        "least_kv = acme_policies:FillFirst\n"
    )
    (site / "acme_policies.py").write_text(DISPATCH)
    monkeypatch.syspath_prepend(site)
    return site


def test_an_installed_policy_is_chosen_by_its_name_and_replays_without_being_named(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = [*TINY, "system/dispatch=fill_first", "system.dispatch.most=3"]
    assert cli.run(["simulate", *words, "journal=true", "out=run"]) == 0
    assert json.loads(Path("run/summary.json").read_text())["requests"]["finished"] == 20
    assert cli.run(["replay", "run"]) == 0 and cli.run(["replay", "run", "system/dispatch=fill_first"]) == 0
    assert "installed policies: fill_first, least_kv, no_class" in key_list("simulate")
    assert "the function fill_first" in sentence(
        ["simulate", *TINY, "system/dispatch=no_class", "out=x"], capsys
    )
    entries = installed / "acme-1.0.dist-info" / "entry_points.txt"
    entries.write_text("[servetwin.policies]\nfill_first = acme_policies:Breaks\n")
    assert "that option is acme_policies:Breaks here" in sentence(["replay", "run"], capsys)
    entries.write_text("")
    assert "no installed policy" in sentence(["replay", "run"], capsys)


def test_an_option_of_the_package_is_never_that_of_an_installed_package(installed: Path) -> None:
    config = load_config([*TINY, "system/dispatch=least_kv", "out=x"], "simulate")
    assert config.system.dispatch.policy == "policies.dispatch:LeastKv"


def test_two_packages_with_one_name_are_told_apart_by_class(
    installed: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    other = installed / "other-1.0.dist-info"
    other.mkdir()
    (other / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (other / "entry_points.txt").write_text("[servetwin.policies]\nfill_first = other:X\n")
    said = sentence(["simulate", *TINY, "system/dispatch=fill_first", "out=x"], capsys)
    assert "acme_policies:FillFirst, other:X" in said
