"""``realexec fidelity``: compares real runs of this machine with simulated ones, on one page."""

import json
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import check_range, split_own
from servetwin.cli.process import tell
from servetwin.config.overrides import Wanted, parse_words
from servetwin.config.read_file import json_in
from servetwin.config.whole_file import write_whole
from serving.vocabulary.errors import UserError

_OWN: Final = {
    "repeat": Wanted(int), "quick": Wanted(bool), "title": Wanted(str), "out": Wanted(str),
    "cases": Wanted(list, items=str),
}  # fmt: skip
_MOST_REPEATS: Final = 100
ASKED: Final = "asked.json"
PROFILE: Final = "engine.profile"


def fidelity(words: Sequence[str]) -> int:
    """Exit status 0, and 1 if a token of a real run is wrong."""
    from servetwin.cli.fidelity_page import as_page, lines_of
    from servetwin.cli.fidelity_runs import CASES, FidelityOptions, check, measured

    words, as_json = asked_for_json(words)
    own, of_runs = split_own(words, _OWN)
    run_keys = {word.key: word.text for word in parse_words(of_runs)}
    repeats = own.get("repeat", 3)
    check_range(f"repeat={repeats}", repeats, 2, _MOST_REPEATS)
    if not own.get("out"):
        raise UserError("out= is missing: write realexec fidelity out=DIR, a folder of its own")
    out = Path(own["out"]).expanduser().absolute()
    cases = tuple(own.get("cases", CASES))
    options = FidelityOptions(out, repeats, own.get("quick", False), cases, run_keys)
    check(options)
    _begun(out, words)
    report = measured(options) | {"title": own.get("title"), "command": _shown(words)}
    write_whole("out", out / "fidelity.json", json.dumps(report, indent=1) + "\n")
    write_whole("out", out / "page.md", as_page(report))
    where = f"; the page is {out}/page.md"
    tell(
        report, [*lines_of(report), f"page in {out}/page.md, numbers in {out}/fidelity.json"], as_json, where
    )
    return 1 if any(case["tokens"]["different"] for case in report["cases"].values()) else 0


def _shown(words: Sequence[str]) -> str:
    """Return the command for use on another machine: folders are placeholders."""
    folders = {"out": "out=DIR", PROFILE: f"{PROFILE}=PROFILE"}
    shown = [folders.get(word.partition("=")[0], word) for word in words if not word.startswith("title=")]
    return " ".join(["realexec fidelity", *shown])


def _begun(out: Path, words: Sequence[str]) -> None:
    """Check that the folder is new, or belongs to a fidelity run with the same words, which continues."""
    mark, mine = out / ASKED, sorted(word for word in words if not word.startswith("title="))
    with suppress(OSError, ValueError):  # the folder is new, or asked.json is not a list of words
        if json_in(mark) == mine:
            return
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UserError(
            f"out={out} has something else in it: write another folder, or the words it was begun with"
        )
    try:
        out.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps(mine) + "\n", encoding="utf-8")
    except OSError as error:
        raise UserError(
            f"out={out} cannot be made ({error.strerror}): write a folder in a place you may write to"
        ) from None
