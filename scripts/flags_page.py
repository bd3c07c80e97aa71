"""python -m scripts.flags_page: writes the tables of servers' flags into the pages that have their marks.

A table stands between ``<!-- flags: WHICH -->`` (a server of server_flags.csv, or ``groups``) and
``<!-- end of flags -->``.
"""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from servetwin.config.server_flags import NOT_MODELLED, SERVERS, Flag, of_servers, server_flags

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGES: Final = ("reference/FLAGS.md", "reference/LIMITS.md")
_TABLE: Final = re.compile(r"<!-- flags: (\S+) -->\n.*?<!-- end of flags -->", re.DOTALL)


def with_flags(page: str) -> str:
    """Return a page's text with its tables of flags as they are listed."""
    return _TABLE.sub(_table, page)


def _table(mark: "re.Match[str]") -> str:
    lines = _groups() if mark[1] == "groups" else _of_server(mark[1])
    return "\n".join([f"<!-- flags: {mark[1]} -->", *lines, "<!-- end of flags -->"])


def _groups() -> Iterator[str]:
    """Yield the table of the reasons, with the number of flags of each server."""
    yield f"|group of flags|not modelled, because|{'|'.join(SERVERS.values())}|"
    yield f"|---|---|{'---|' * len(SERVERS)}"
    for group, reason in NOT_MODELLED.items():
        servers = [flag.server for flag in server_flags() if flag.group == group]
        counts = [servers.count(server) for server in SERVERS]
        yield f"|{group.replace('_', ' ')}|{reason}|{'|'.join(map(str, counts))}|"


def _of_server(server: str) -> Iterator[str]:
    """Yield the flags that have words here, one a row, and then the others by group."""
    flags = [flag for flag in server_flags() if flag.server == server]
    mapped = [flag for flag in flags if not flag.group]
    yield f"{of_servers([server])}: {len(flags)} flags, {len(mapped)} of them with words here."
    yield from ("", "|flag|here|what it is, and how its value converts|", "|---|---|---|")
    for flag in mapped:
        yield f"|{_spelled(flag)}|`{flag.answer}`|{flag.reason}{_conversion(flag)}|"
    yield from ("", "|not modelled|flags|", "|---|---|")
    for group in NOT_MODELLED:
        of_group = [flag for flag in flags if flag.group == group]
        plain = [_spelled(flag) for flag in of_group if not flag.reason]
        if plain:
            yield f"|{group.replace('_', ' ')}|{', '.join(plain)}|"
        yield from (f"|{flag.reason}|{_spelled(flag)}|" for flag in of_group if flag.reason)


def _spelled(flag: Flag) -> str:
    """Return the spellings but those with ``--no-`` in front of another one."""
    negations = {f"--no-{other.removeprefix('--')}" for other in flag.spellings}
    return " ".join(f"`{spelling}`" for spelling in flag.spellings if spelling not in negations)


def _conversion(flag: Flag) -> str:
    words = {"number": "`1k` is 1000, `1K` is 1024", "blocks": "times 16"}
    told = []
    for rule in flag.converts:
        value, arrow, here = rule.partition(">")
        theirs = "any other" if value == "*" else f"`{value}`"
        ours = f"not modelled ({here.replace('_', ' ')})" if here in NOT_MODELLED else f"`{here}`"
        told.append(f"{theirs} is {ours}" if arrow else words[rule])
    return "; " + ", ".join(told) if told else ""


if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / name
        path.write_text(with_flags(path.read_text(encoding="utf-8")), encoding="utf-8")
