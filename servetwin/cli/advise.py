"""Prints what autoscalers would have decided on a production record; keeps it in a folder if requested."""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from tempfile import TemporaryDirectory

from servetwin.advising.advise_words import AdviseWords, advise_words
from servetwin.advising.answer import Advised, answer
from servetwin.advising.page import advice_page
from servetwin.advising.simulated import ARRIVALS
from servetwin.advising.text import (
    ADVISED,
    SIMULATED,
    as_csv,
    as_data,
    head,
    lacking,
    remarks,
    repeated,
    rows,
    sentence,
)
from servetwin.cli.process import telling
from servetwin.report.text_table import text_table
from servetwin.results.result_folder import ResultFolder
from servetwin.run.heartbeat import heartbeat


def advise(words: Sequence[str]) -> int:
    """Exit status 0, or 1 if no scaler could be asked. UserError for unusable words and records."""
    options = advise_words(words)
    result, place = asked(options, join(["servetwin", "advise", *words]))
    with telling(f"; {place}"):
        if options.own.get("json"):
            print(json.dumps(as_data(result), indent=1, ensure_ascii=False))
        else:
            print("\n".join([*lines_of(result), *([place] if place else [])]))
    return 0 if any(one.advice.decisions for one in result.scalers) else 1


def asked(options: AdviseWords, command: str) -> tuple[Advised, str]:
    """Return the answer, and where it was written ("" without out=)."""
    if options.out is None:
        with TemporaryDirectory() as scratch:
            return _answer(options, Path(scratch)), ""
    with ResultFolder(options.out, overwrite=bool(options.own.get("overwrite"))) as folder:
        result = _answer(options, folder.path)
        text = json.dumps(as_data(result), indent=1, ensure_ascii=False)
        for name, content in (
            ("advise.json", f"{text}\n"),
            ("advise.csv", as_csv(result)),
            ("report.html", advice_page(result, command)),
        ):
            (folder.path / name).write_text(content, encoding="utf-8", errors="backslashreplace")
        return result, f"results in {folder.commit()} (open report.html)"


def _answer(options: AdviseWords, scratch: Path) -> Advised:
    with heartbeat("advising", 1 + len(options.scalers)) as tell:
        return answer(options, scratch / ARRIVALS, tell)


def lines_of(result: Advised) -> list[str]:
    """Return the lines for the console."""
    lines = [sentence(result), *(f"  {remark}" for remark in remarks(result)), "", f"  {ADVISED}"]
    lines += [] if result.no_run else [f"  {SIMULATED}"]
    lines += ["", *text_table([head(result), *rows(result)], numbers=True)]
    without = lacking(result)
    lines += [*([""] if without else []), *(f"  {name} {why}" for name, why in without)]
    run = repeated(result)
    return [*lines, *([""] if run else []), *(f"  {line}" for line in run)]
