"""Every command of README and the pages is run on few requests, points and seeds, or parsed by a list."""

import re
import shlex
import sys
from collections.abc import Iterator
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.cli.calibrate import with_server
from servetwin.config.compose.compose import load_config
from servetwin.explore.controls import state_of
from tests.worlds.doc_commands import BEFORE, PAGES, Command, commands, of_page, stale_lines, why_parsed_only
from tests.worlds.doc_play import NO_DATA, Played, needs_torch, play, write_policies
from tests.worlds.fake_openai import FakeServer, Settings
from traces.fetching.sources import SOURCES

WITH_COMMANDS = [page for page in PAGES if any(of_page(page))]


WITH_WORKERS = [
    page
    for page in WITH_COMMANDS
    if any(needs_torch(one) and not why_parsed_only(one) for one in of_page(page))
]


@pytest.fixture
def reader(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty current folder; policies that are imported from it are forgotten again."""
    before, path = set(sys.modules), list(sys.path)
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    sys.path[:] = path
    for name in set(sys.modules) - before:
        if str(tmp_path) in str(getattr(sys.modules[name], "__file__", "")):
            del sys.modules[name]


def played(page: Path, real: bool) -> Played:
    at_hand = [Command(page.name, tuple(shlex.split(text))) for text in BEFORE.get(page.name, ())]
    with ExitStack() as stack:
        servers = [
            stack.enter_context(FakeServer(Settings(step_s=0.002, nixl=True, sleeps="yes"))).url
            for _ in range(2)
        ]
        return play([*at_hand, *of_page(page)], real, servers)


def judge(found: Played) -> None:
    assert not found.failed, "\n".join(found.failed)
    if NO_DATA in found.left_out:
        pytest.skip(f"{NO_DATA}: {len(found.left_out[NO_DATA])} commands, {len(found.ran)} ran")


@pytest.mark.parametrize("page", WITH_COMMANDS, ids=lambda page: page.name)
def test_commands_of_a_page_run_in_order(page: Path, reader: Path) -> None:
    """Each small by rule (``tests/worlds/doc_play.py``), with what the ones before it left."""
    judge(played(page, real=False))


@pytest.mark.real
@pytest.mark.parametrize("page", WITH_WORKERS, ids=lambda page: page.name)
def test_real_commands_of_the_pages_run(page: Path, reader: Path) -> None:
    """The same with commands that start workers, six requests each."""
    judge(played(page, real=True))


def test_every_command_runs_here_or_there_or_is_listed() -> None:
    reasons = {why_parsed_only(one) for one in commands()}
    assert reasons > {None, "network", "GPU", "VM", "over a minute"}
    assert stale_lines() == []


def listed() -> list[object]:
    """Commands that no light test runs."""
    some = [one for one in commands() if why_parsed_only(one) or needs_torch(one)]
    return [pytest.param(one, id=f"{one.page}-{place}") for place, one in enumerate(some)]


@pytest.mark.parametrize("command", listed())
def test_a_command_that_is_not_run_here_is_parsed(
    command: Command, reader: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    words = command.words[2:]
    if command.verb == "servetwin reproduce":
        monkeypatch.setattr("experiments.reproduce._make", lambda *_: None)
        monkeypatch.setattr("experiments.common.all_papers.make_all", lambda *_: None)
        assert cli.run(command.words[1:]) == 0
    elif command.verb == "servetwin traces":
        assert words[0] == "fetch" and words[1] in SOURCES
    elif command.verb == "servetwin explore":
        assert state_of(dict(word.split("=") for word in words)).words()
    elif command.verb == "realexec fetch-model":
        assert words[0] == "smollm2"
    else:
        write_policies(words)
        if any("://" in word for word in words):
            words = tuple(with_server(words))
        assert load_config(_without_files(words), "realexec").kind == "realexec"


def _without_files(words: tuple[str, ...]) -> list[str]:
    """Without what an earlier command of the page made."""
    made = ("engine.profile=out", "cluster.links=measured", "repeat=", "config=out")
    return [word for word in words if not word.startswith(made)]


def test_every_verb_of_the_pages_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = {one.words[:2] for one in commands()}
    assert ("servetwin", "simulate") in verbs
    for program, verb in verbs - {("servetwin", "replay")}:
        assert (cli if program == "servetwin" else realexec_cli).run([verb, "--help"]) == 0
    capsys.readouterr()


def test_modules_and_targets_of_the_pages_exist() -> None:
    """``python -m NAME`` and ``make NAME``; ``--help`` of benchmarks is tested by itself."""
    root = PAGES[0].parent
    pages = (*PAGES, root / "CONTRIBUTING.md", *root.glob("*/README.md"))
    text = "\n".join(page.read_text(encoding="utf-8") for page in pages)
    modules = set(re.findall(r"python -m ((?:benchmarks|tests|scripts|nativecore)[\w.]*\w)", text))
    targets = set(re.findall(r"(?m)(?:^(?:    )?|`)make ([a-z][a-z-]*)", text))
    makefile = (root / "Makefile").read_text(encoding="utf-8")
    assert len(modules) > 10 and len(targets) > 10
    assert [name for name in modules if find_spec(name) is None] == []
    assert [name for name in targets if not re.search(rf"(?m)^{name}:", makefile)] == []
