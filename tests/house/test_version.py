"""One version: of the package, of the citation, of the changelog, and what the commands say."""

import re
import tomllib
from pathlib import Path

import pytest
import yaml

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli

ROOT = Path(__file__).resolve().parents[2]


def package_version() -> str:
    found: str = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]["version"]
    return found


def test_citation_and_changelog_have_the_version_of_the_package() -> None:
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text("utf-8"))
    newest = re.search(r"^## \[([^]]+)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text("utf-8"), re.MULTILINE)
    assert newest is not None
    assert citation["version"] == newest[1] == package_version()
    assert newest[2] == "unreleased" or re.fullmatch(r"\d{4}-\d\d-\d\d", newest[2])
    assert ("date-released" in citation) == (newest[2] != "unreleased")


@pytest.mark.parametrize("program", ["servetwin", "realexec"])
def test_the_commands_say_it(program: str, capsys: pytest.CaptureFixture[str]) -> None:
    run = cli.run if program == "servetwin" else realexec_cli.run
    assert run(["--version"]) == 0
    assert capsys.readouterr().out.split()[:2] == [program, package_version()]
