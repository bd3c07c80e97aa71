"""A key that was called otherwise in the version before is refused with the name that it has now."""

from pathlib import Path

import pytest

from servetwin.cli import main as cli
from servetwin.config import renamed
from servetwin.config.compose.compose import defaults, load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.overrides import canonical
from serving.vocabulary.errors import UserError

WORDS = ("system=blitzscale", "cluster=blitz_b", "out=x")
NOW = ("seed", "system.cache.host_gb")


@pytest.fixture
def renames(monkeypatch: pytest.MonkeyPatch) -> None:
    """As if these keys had been renamed to NOW."""
    monkeypatch.setattr(renamed, "RENAMED_KEYS", dict(zip(("sead", "system.cache.host_gib"), NOW)))


@pytest.mark.parametrize(
    ("word", "now"),
    [("sead=1", "seed"), ("system.cache.host_gib=3", NOW[1]), ("system.cache.params.host_gib=3", NOW[1])],
)
@pytest.mark.usefixtures("renames")
def test_the_command_line_is_told_the_new_name(
    word: str, now: str, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    assert cli.run(["simulate", *WORDS[:-1], f"out={tmp_path / 'run'}", word]) == 2
    assert f"{word.partition('=')[0]} is now called {now}: write {now}=VALUE" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("line", "changed", "told"),
    [
        ("seed: 0", "sead: 0", "sead in {} is now called seed: write seed; or use the file with the version"),
        ("host_gb: null", "host_gib: null", "system.cache.host_gib in {} is now called system.cache.host_gb"),
    ],
)
@pytest.mark.usefixtures("renames")
def test_a_saved_configuration_is_refused_with_the_new_name(
    line: str, changed: str, told: str, tmp_path: Path
) -> None:
    text = resolved_yaml(load_config(WORDS, "simulate"))
    assert line in text
    path = tmp_path / "config.yaml"
    path.write_text(text.replace(line, changed, 1))
    with pytest.raises(UserError) as refused:
        load_resolved(path)
    assert told.format(path) in str(refused.value)


def test_every_new_name_is_a_key_and_no_old_one_is() -> None:
    known = set(defaults("simulate"))
    parameters = {  # of options that are not the defaults
        key for option in ("blitzscale", "serverlessllm") for key in parameters_of(f"system={option}")
    }
    for old, now in renamed.RENAMED_KEYS.items():
        assert now in known | parameters, f"{now} is no key"
        assert old not in known | parameters, f"{old} is a key still"
        assert canonical(old) == old and canonical(now) == now


def parameters_of(*words: str) -> list[str]:
    """The keys of the parameters of a system's policies."""
    system = load_config([*words, "cluster=blitz_b", "out=x"], "simulate").system
    parts = ("dispatch", "batcher", "admission", "scaler", "provision", "cache", "live")
    return [f"system.{part}.{name}" for part in parts for name in getattr(system, part).params]
