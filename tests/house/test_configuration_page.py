"""Tables of keys on pages are those that the keys declare; help of one key tells the same."""

import pytest

from scripts.configuration_page import DOCS, PAGES, with_tables
from servetwin.cli.main import run
from servetwin.config.config import RunConfig
from servetwin.config.key import declared_keys


@pytest.mark.parametrize("page", PAGES)
def test_the_tables_are_current(page: str) -> None:
    text = (DOCS / page).read_text(encoding="utf-8")
    assert with_tables(text) == text, "write python -m scripts.configuration_page"


def test_every_key_that_can_be_set_stands_in_a_table() -> None:
    text = "".join((DOCS / page).read_text(encoding="utf-8") for page in PAGES)
    fixed = ("kind", "cluster.topology", "trace.synthetic")
    options = (".name", ".policy", ".source")
    paths = [path for path in declared_keys(RunConfig) if path not in fixed and not path.endswith(options)]
    assert [path for path in paths if f"|`{path}`|" not in text] == []


def test_help_of_a_key_and_of_a_group(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["simulate", "--help", "engine.block_tokens"]) == 0
    text = capsys.readouterr().out
    assert text.startswith("engine.block_tokens=16\n  tokens of a KV block\n  an integer of at least 1\n")
    assert "block_size" in text and "models that decode" in text
    assert run(["simulate", "--help", "migration"]) == 0
    text = capsys.readouterr().out
    assert text.count("\nmigration.") == 8 and "one of live, stop_and_copy, recompute" in text
    assert run(["simulate", "--help", "engine.block_tokes"]) == 2
    assert "engine.block_tokens" in capsys.readouterr().err
