"""python -m scripts.commands_page: writes docs/reference/COMMANDS from the help texts of the commands.

A table stands between ``<!-- commands: NAME -->`` (servetwin or realexec: every command; another name: the
forms and words of that command) and ``<!-- end of commands -->``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from servetwin.cli import main, realexec

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "reference" / "COMMANDS.md"
HELP: Final = ROOT / "servetwin" / "cli" / "help"
COMMANDS: Final = {"servetwin": main.COMMANDS, "realexec": realexec.COMMANDS}
_TABLE: Final = re.compile(r"<!-- commands: (\S+) -->\n.*?<!-- end of commands -->", re.DOTALL)
# Two blanks, what to write, two blanks or more, what it does.
_ROW: Final = re.compile(r"^  (?P<form>\S(?:\S| (?! ))*)(?: {2,}(?P<does>\S.*))?$")
_WORD: Final = re.compile(r"[\w./]+=\S+$")
_INSIDE: Final = re.compile(r"[\w./]+=\w+(?:\.\w+)?")
_MORE: Final = re.compile(r"^ {16,}(?P<does>\S.*)$")


def with_commands(page: str) -> str:
    """Return the page's text with its tables as the help texts have them."""
    return _TABLE.sub(lambda mark: "\n".join(_table(mark[1])), page)


def rows(name: str) -> list[tuple[str, str]]:
    """Return (what to write, what it does) of every line of a help text that has both."""
    found = list[tuple[str, str]]()
    for line in (HELP / f"{name}.txt").read_text(encoding="utf-8").splitlines():
        row, more = _ROW.match(line), _MORE.match(line)
        if row and row["does"]:
            found.append((row["form"], row["does"]))
        elif more and found:
            found[-1] = (found[-1][0], f"{found[-1][1]} {more['does']}".strip())
        elif row and re.search(r"\w=|^(servetwin|realexec) ", row["form"]):
            found.append((row["form"], ""))
    return [(form, does) for form, does in found if does]


def _table(name: str) -> Iterator[str]:
    """Yield the forms of a command with what they do, and then its words."""
    yield from (f"<!-- commands: {name} -->", "|write|it does|", "|---|---|")
    words = dict[str, None]()
    shown = ""
    for form, does in rows(name):
        short = re.sub(rf"^(?:servetwin|realexec) {name} ", "", form) if name not in COMMANDS else form
        text = re.sub(r" ?\((?:docs/\S+|\S+ --help|\S+ --help: every key)\)", "", does).strip()
        if _WORD.match(form):
            words[short] = None
        else:
            yield (row := f"|{_code(short)}|{text if name in COMMANDS else _first(text)}|")
            shown += row
        words |= dict.fromkeys(_INSIDE.findall(text))
    if name not in COMMANDS and (
        more := [word for word in words if word.partition("=")[0] + "=" not in shown]
    ):
        yield from ("", f"Words, which `--help` explains: {', '.join(f'`{word}`' for word in more)}.")
    yield "<!-- end of commands -->"


def _first(text: str) -> str:
    """What a form does, without the particulars that ``--help`` adds behind a colon, semicolon or bracket."""
    return re.split(r"[;:.] |(?<=\?) | \(", text)[0].rstrip(".")


def _code(form: str) -> str:
    return f"`{form}`".replace("|", r"\|")


if __name__ == "__main__":
    PAGE.write_text(with_commands(PAGE.read_text(encoding="utf-8")), encoding="utf-8")
