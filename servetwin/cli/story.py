"""``servetwin story``: its arguments and its output."""

import json
import shlex
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import lines_of
from servetwin.cli.own_keys import only_own
from servetwin.cli.process import telling
from servetwin.config.overrides import Wanted, echo
from servetwin.results.journal_file import journal_in
from servetwin.story.beside import decisions, first_token_ns, first_tokens, starts
from servetwin.story.line import StoryLine
from servetwin.story.moments import JournalReader
from servetwin.story.of_instance import InstanceRecord, instance_story
from servetwin.story.of_request import request_story
from servetwin.story.overview import overview_of
from servetwin.story.request_record import RequestRecord
from serving.vocabulary.errors import UserError
from serving.vocabulary.units import NS_PER_S

KEYS: Final = {"request": Wanted(int), "instance": Wanted(int), "json": Wanted(bool)}
COLUMNS: Final = (13, 60, 33)  # with two spaces between: at most 110 characters a line


def story(words: Sequence[str]) -> int:
    """Print the story that ``words`` name; exit status 0. Raises UserError if there is none."""
    name = next((word for word in words if "=" not in word), None)
    if name is None:
        raise UserError("story takes one folder: write servetwin story DIR with the out= of a run")
    at = words.index(name)
    folder, options = Path(name), _options([*words[:at], *words[at + 1 :]])
    path = journal_in(folder, "story")
    journal = JournalReader(lines_of(path, "ascii"), str(path))
    with journal.checked(), telling():
        _tell(journal, path.parent, name, options)
    return 0


def _options(words: Sequence[str]) -> dict[str, Any]:
    """Return typed values by key; at most one of request and instance."""
    for word in words:
        if "=" not in word:
            raise UserError(f"'{echo(word)}' has no '=': write request=N or instance=N behind the folder")
    options = only_own(words, KEYS, "servetwin story", "request=N or instance=N, and json=true")
    if "request" in options and "instance" in options:
        raise UserError("request= and instance= are two stories: write one of them")
    return options


def _tell(journal: JournalReader, folder: Path, name: str, options: dict[str, Any]) -> None:
    as_json = options.get("json", False)
    if "request" in options:
        request = RequestRecord(
            id=options["request"], first_token_ns=first_token_ns(folder, options["request"])
        )
        any_line = _print(request_story(journal.moments(), request), as_json)
        noun = "request"
    elif "instance" in options:
        instance = InstanceRecord(
            id=options["instance"], decisions=decisions(folder, options["instance"]), starts=starts(folder)
        )
        any_line = _print(instance_story(journal.moments(), instance), as_json)
        noun = "instance"
    else:
        _print_overview(journal, folder, name, as_json)
        return
    remarks = list(journal.remarks()) if not any_line or noun == "instance" or not request.over else []
    if not any_line:
        cut = f" ({remarks[0]})" if remarks else ""
        raise UserError(
            f"no {noun} {options[noun]} is in the journal of {folder}{cut}: write servetwin story "
            f"{shlex.quote(name)} to see what is there"
        )
    _print_remarks(remarks, as_json)


def _print(lines: Iterable[StoryLine], as_json: bool) -> bool:
    """Print the lines as they are produced; return whether there was any."""
    any_line = False
    for line in lines:
        if as_json:
            print(json.dumps({"time_ns": line.now_ns, "what": line.what, "why": line.why}))
        else:
            if not any_line:
                print("\n".join(_row("time s", "what", "why")))
            print("\n".join(_row(f"{line.now_ns / NS_PER_S:.6f}", line.what, line.why)))
        any_line = True
    return any_line


def _row(time: str, text: str, why: str) -> Iterator[str]:
    """Yield one line of the table, or as many as its text needs."""
    first, second, third = COLUMNS
    left, right = textwrap.wrap(text, second), textwrap.wrap(_plain(why), third)
    for position in range(max(len(left), len(right))):
        shown = left[position] if position < len(left) else ""
        reason = right[position] if position < len(right) else ""
        yield f"{time if not position else '':>{first}}  {shown:{second}}  {reason}".rstrip()


def _plain(text: str) -> str:
    """Return the text without control characters, which a policy's reason may contain."""
    return "".join(char if char.isprintable() else repr(char)[1:-1] for char in text)


def _print_overview(journal: JournalReader, folder: Path, name: str, as_json: bool) -> None:
    view = overview_of(journal.moments())
    rows = [
        (f"servetwin story {shlex.quote(name)} {example.subject}", example.why)
        for example in view.examples(first_tokens(folder))
    ]
    if as_json:
        print(json.dumps({"what": view.sentence(journal.header)}))
        for command, why in rows:
            print(json.dumps({"command": command, "why": why}))
    else:
        print(textwrap.fill(view.sentence(journal.header), 110))
        width = max((len(command) for command, _ in rows), default=0)
        for command, why in rows:
            print(f"  {command:{width}}  {why}")
    _print_remarks(journal.remarks(), as_json)


def _print_remarks(remarks: Iterable[str], as_json: bool) -> None:
    for remark in remarks:
        print(json.dumps({"remark": remark}) if as_json else textwrap.fill(_plain(remark), 110))
