"""docs/reference/COMMANDS is what the help texts say, and has every command and every word of its own."""

import pytest

from scripts.commands_page import COMMANDS, PAGE, with_commands
from servetwin.advising.advise_words import OWN as ADVISE
from servetwin.cli.completion import own_words
from servetwin.planning.plan_words import OWN as PLAN
from servetwin.sweeps.sweep_words import OWN as SWEEP


def page() -> str:
    return PAGE.read_text(encoding="utf-8")


def section(name: str) -> str:
    return page().partition(f"\n## {name}\n")[2].partition("\n## ")[0]


def test_the_tables_are_current() -> None:
    assert with_commands(page()) == page(), "write python -m scripts.commands_page"


@pytest.mark.parametrize("program", COMMANDS)
def test_every_command_has_a_row(program: str) -> None:
    assert [name for name in COMMANDS[program] if f"|`{program} {name}" not in section(program)] == []


@pytest.mark.parametrize(("name", "own"), [("plan", PLAN), ("sweep", SWEEP), ("advise", ADVISE)])
def test_every_word_of_a_command_stands_in_its_section(name: str, own: dict[str, object]) -> None:
    assert [key for key in own if f"{key}=" not in section(name)] == []


@pytest.mark.parametrize("name", ["compare", "story", "export"])
def test_every_word_that_a_shell_completes_stands_in_its_section(name: str) -> None:
    assert [word for word in own_words()[name] if word not in section(name)] == []
