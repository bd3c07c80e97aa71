"""Answers a plan's question on the console and, if requested, in a folder."""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import join

from servetwin.cli.process import telling
from servetwin.config.folder_kind import PLAN_ANSWER
from servetwin.planning import answer
from servetwin.planning.candidate import Plan
from servetwin.planning.page import plan_page
from servetwin.planning.plan_words import PlanWords, plan_words
from servetwin.planning.told import as_data, head, remarks, rows, sentence, unable
from servetwin.report.text_table import text_table
from servetwin.results.result_folder import ResultFolder
from servetwin.run.first_mistake import both
from servetwin.run.progress import progress_bar
from serving.vocabulary.errors import PlaceError, UserError
from traces.errors import TraceError


def plan(words: Sequence[str]) -> int:
    """Exit status 0, or 1 if nothing meets the objective. UserError for unusable words."""
    asked = plan_words(words)
    command = join(["servetwin", "plan", *words])
    if asked.out is None:
        found, place = _found(asked), ""
    else:
        found, place = _kept(asked, asked.out, command)
    with telling(f"; {place}"):
        if asked.own.get("json"):
            print(json.dumps(as_data(found), indent=1, ensure_ascii=False))
        else:
            print("\n".join([*lines_of(found), *([place] if place else [])]))
    return 0 if found.ends.mid is not None else 1


def _kept(asked: PlanWords, out: Path, command: str) -> tuple[Plan, str]:
    """Return the answer, and where it was written."""
    try:
        with ResultFolder(out, overwrite=bool(asked.own.get("overwrite"))) as folder:
            found = _found(asked)
            text = json.dumps(as_data(found), indent=1, ensure_ascii=False)
            (folder.path / PLAN_ANSWER).write_text(text + "\n", encoding="utf-8")
            page = plan_page(found, command)
            (folder.path / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace")
            return found, f"results in {folder.commit()} (open report.html)"
    except PlaceError as error:
        raise both(error, _unplannable(asked)) from error


def _unplannable(asked: PlanWords) -> str:
    """Return why no layout can be tried, as far as that is known before a run; "" otherwise."""
    try:
        answer.refuse_moving_rate(asked)
    except (UserError, TraceError) as error:
        return str(error)
    return ""


def _found(asked: PlanWords) -> Plan:
    with progress_bar("planning") as bar:
        return answer.plan(asked, bar)


def lines_of(found: Plan) -> list[str]:
    """Return the lines for the console."""
    lines = [sentence(found), *(f"  {remark}" for remark in remarks(found))]
    if found.ranked:
        lines += ["", *text_table([head(found), *rows(found)], numbers=True)]
    lines += [
        f"  {name}: {factor:.3g} times the trace's rate" for name, factor in found.details.get("factors", ())
    ]
    if found.unable:
        lines += ["", "without an answer:", *(f"  {name}: {why}" for name, why in unable(found))]
    return lines
