"""Every command of README and the pages is one: runs are run on a few requests, of others words are read."""

import re
import shlex
from pathlib import Path

import pytest

from experiments import cli, realexec_cli
from experiments.compose.compose import load_config
from experiments.plan.plan_words import plan_words
from experiments.sweep.axes import axes_of
from experiments.sweep.points import points_of
from experiments.sweep.sweep_words import sweep_words

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md"))]
FEW = ("trace.limit=12", "uncertainty=off", "series.period_s=null", "overwrite=true")
_COMMAND = re.compile(r"^(?:    |\t)?(?:\$ )?((?:servetwin|realexec) .*)$")


def commands() -> list[tuple[str, list[str]]]:
    """(page, words) of every command in a code block, its remark left out."""
    found = []
    for page in PAGES:
        for line in page.read_text(encoding="utf-8").replace("\\\n", " ").splitlines():
            if match := _COMMAND.match(line):
                text = re.split(r"\s{2,}(?=[#a-zA-Z0-9])(?![\w./\[]+=)", match[1].partition(" # ")[0])[0]
                if "..." not in text and "|" not in text:
                    found.append((page.name, shlex.split(text)))
    return found


def named(kind: str, verb: str) -> list[object]:
    some = [(page, words[2:]) for page, words in commands() if words[:2] == [kind, verb]]
    return [pytest.param(words, id=f"{page}-{place}") for place, (page, words) in enumerate(some)]


# Words that need what an earlier command of the page made, a file of the reader's, or stand for several.
_OTHERS = re.compile(
    r"(my_\w+:|=out/(?!\w+$)|config=out|=out/p\.json|=U\b|SYSTEM|\.parquet|qwen\.json|profile=out|=file\b|carries_out=)"
)


def needs_more(words: list[str]) -> bool:
    return any(_OTHERS.search(word) for word in words)


@pytest.mark.parametrize("words", named("servetwin", "simulate"))
def test_a_run_of_the_pages_is_one(
    words: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """With a few requests; a word that needs a file of the reader's has its key read alone."""
    monkeypatch.chdir(tmp_path)
    if words == ["--help"]:
        assert cli.run(["simulate", "--help"]) == 0
        return
    if needs_more(words):
        assert all("=" in word for word in words)
        return
    keys = {word.partition("=")[0] for word in FEW}
    whole = "trace.resample=block" in words  # of which twelve requests are too few
    keys -= {"trace.limit"} if whole else set()
    few = [word for word in words if word.partition("=")[0] not in keys]
    status, said = cli.run(["simulate", *few, *FEW[1 if whole else 0 :]]), capsys.readouterr().err
    if "was not found in" in said:
        pytest.skip("the recorded trace is not here")
    assert status == 0, f"servetwin simulate {shlex.join(words)}: {said}"


@pytest.mark.parametrize("words", named("realexec", "run"))
def test_a_real_run_of_the_pages_has_a_configuration(words: list[str]) -> None:
    if not needs_more(words):
        assert load_config(words, "realexec").kind == "realexec"


@pytest.mark.parametrize("words", named("servetwin", "sweep"))
def test_a_sweep_of_the_pages_has_points_that_can_run(words: list[str]) -> None:
    plain, axes, intervals = axes_of(sweep_words(words).runs)
    assert axes or intervals
    if not needs_more(words):
        first = points_of(plain, axes)[0]
        assert load_config([*first.words, "out=none"], "simulate")


@pytest.mark.parametrize("words", named("servetwin", "plan"))
def test_a_plan_of_the_pages_has_layouts(words: list[str]) -> None:
    assert plan_words(words).layouts


def test_every_verb_of_the_pages_is_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    verbs = {(words[0], words[1]) for _, words in commands()}
    assert ("servetwin", "simulate") in verbs
    for kind, verb in verbs - {("servetwin", "replay")}:
        assert (cli if kind == "servetwin" else realexec_cli).run([verb, "--help"]) == 0
    capsys.readouterr()
