"""Print the tables of all state machines into docs/contributing/STATES.md."""

from tests.states.page import PAGE, page

PAGE.write_text(page(), encoding="utf-8")
