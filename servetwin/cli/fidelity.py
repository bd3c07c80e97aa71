"""``realexec fidelity``: compares real runs of this machine with simulated ones, on one page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from servetwin.cli.fidelity_folder import begin
from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import check_range, split_own
from servetwin.cli.process import tell
from servetwin.config.overrides import Wanted, parse_words
from servetwin.config.whole_file import write_whole
from serving.vocabulary.errors import UserError

_OWN: Final = {
    "repeat": Wanted(int), "quick": Wanted(bool), "title": Wanted(str), "out": Wanted(str),
    "cases": Wanted(list, items=str),
}  # fmt: skip
_MOST_REPEATS: Final = 100
PROFILE: Final = "engine.profile"


def fidelity(words: Sequence[str]) -> int:
    """Exit status 0, and 1 if a token of a real run is wrong."""
    words, as_json = asked_for_json(words)
    own, of_runs = split_own(words, _OWN)
    run_keys = {word.key: word.text for word in parse_words(of_runs)}
    if not own.get("out"):
        raise UserError("out= is missing: write realexec fidelity out=DIR, a folder of its own")
    if "repeat" in own:
        check_range(f"repeat={own['repeat']}", own["repeat"], 2, _MOST_REPEATS)
    out = Path(own["out"]).expanduser().absolute()
    made = _of_servers if "http.start" in run_keys else _of_workers
    report, lines = made(out, own, run_keys, words)
    where = f"; the page is {out}/page.md"
    tell(report, [*lines, f"page in {out}/page.md, numbers in {out}/fidelity.json"], as_json, where)
    return 1 if any(case["tokens"]["different"] for case in report["cases"].values()) else 0


Made = tuple[dict[str, Any], list[str]]


def _of_workers(out: Path, own: Mapping[str, Any], keys: Mapping[str, str], words: Sequence[str]) -> Made:
    """Compare own workers with their simulation; return the report and lines for a terminal."""
    from servetwin.cli.fidelity_page import as_page, lines_of
    from servetwin.cli.fidelity_runs import CASES, REPEATS, FidelityOptions, check, fixed_settings, measured

    cases = tuple(own.get("cases", CASES))
    options = FidelityOptions(out, own.get("repeat", REPEATS), own.get("quick", False), cases, keys)
    check(options)
    begin(out, words, fixed_settings())
    report = measured(options) | {"title": own.get("title"), "command": _shown(words)}
    _write(out, report, as_page(report))
    return report, list(lines_of(report))


def _of_servers(out: Path, own: Mapping[str, Any], keys: Mapping[str, str], words: Sequence[str]) -> Made:
    """Compare a stock server with its simulation; return the report and lines for a terminal."""
    from servetwin.cli.fidelity_servers import CASES, REPEATS, ServerFidelity, check, fixed_settings, measured
    from servetwin.cli.fidelity_servers_page import as_page, lines_of, write_pictures

    cases = tuple(own.get("cases", CASES))
    asked = ServerFidelity(out, own.get("repeat", REPEATS), own.get("quick", False), cases, keys)
    check(asked)
    begin(out, words, fixed_settings(asked.quick))
    report = measured(asked) | {"title": own.get("title"), "command": _shown(words)}
    write_pictures(report, out)
    _write(out, report, as_page(report))
    return report, list(lines_of(report))


def _write(out: Path, report: Mapping[str, Any], page: str) -> None:
    write_whole("out", out / "fidelity.json", json.dumps(report, indent=1) + "\n")
    write_whole("out", out / "page.md", page)


def _shown(words: Sequence[str]) -> str:
    """Return the command for use on another machine: folders are placeholders."""
    folders = {
        "out": "out=DIR",
        PROFILE: f"{PROFILE}=PROFILE",
        "http.start": "http.start='COMMAND --port {port}'",
    }
    shown = [folders.get(word.partition("=")[0], word) for word in words if not word.startswith("title=")]
    return " ".join(["realexec fidelity", *shown])
