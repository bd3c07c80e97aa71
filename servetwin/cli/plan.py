"""Answers a plan's question on the console and, if requested, in a folder."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from shlex import join

from servetwin.cli.process import telling
from servetwin.config.folder_kind import PLAN_ANSWER
from servetwin.planning import answer
from servetwin.planning.candidate import NoLayoutError, PlanAnswer
from servetwin.planning.deploy import lines_of as deploy_lines
from servetwin.planning.deploy import write_manifest
from servetwin.planning.page import plan_page
from servetwin.planning.plan_words import PlanWords, plan_words
from servetwin.planning.text import (
    NOT_SEARCHED,
    as_data,
    head,
    not_searched,
    remarks,
    rows,
    sentence,
    unable,
)
from servetwin.report.text_table import text_table
from servetwin.results.result_folder import ResultFolder
from servetwin.run.first_mistake import both
from servetwin.run.heartbeat import tasks_done
from servetwin.run.progress import progress_bar
from serving.vocabulary.errors import PlaceError, UserError
from traces.errors import TraceError


def plan(words: Sequence[str]) -> int:
    """Exit status 0, or 1 if nothing meets the objective. UserError for unusable words."""
    options = plan_words(words)
    command = join(["servetwin", "plan", *words])
    try:
        if options.out is None:
            result, place = _search(options), ""
        else:
            result, place = _written(options, options.out, command)
    except NoLayoutError as error:
        raise _no_layout(error.reasons) from error
    with telling(f"; {place}"):
        if options.own.get("json"):
            print(json.dumps(as_data(result), indent=1, ensure_ascii=False))
        else:
            print("\n".join([*lines_of(result), *([place] if place else [])]))
    return 0 if result.ends.mid is not None else 1


def _no_layout(reasons: Sequence[tuple[str, str]]) -> UserError:
    """Print why each layout does not run, a line for each; return the sentence that ends the command."""
    if len({why for _, why in reasons}) == 1:
        return UserError(f"no layout runs ({'; '.join(name for name, _ in reasons)}): {reasons[0][1]}")
    for name, why in reasons:
        print(f"  {name}: {why}", file=sys.stderr)
    return UserError("no layout runs, for the reasons above: write another gpu= or model.tp=, or model=")


def _written(options: PlanWords, out: Path, command: str) -> tuple[PlanAnswer, str]:
    """Return the answer, and where it was written."""
    try:
        with ResultFolder(out, overwrite=bool(options.own.get("overwrite"))) as folder:
            result = _search(options)
            text = json.dumps(as_data(result), indent=1, ensure_ascii=False)
            (folder.path / PLAN_ANSWER).write_text(text + "\n", encoding="utf-8")
            page = plan_page(result, command)
            (folder.path / "report.html").write_text(page, encoding="utf-8", errors="backslashreplace")
            if result.deploy is not None:
                write_manifest(result.deploy, folder.path)
            return result, f"results in {folder.commit()} (open report.html)"
    except PlaceError as error:
        raise both(error, _unplannable(options)) from error


def _unplannable(options: PlanWords) -> str:
    """Return why no layout can be tried, as far as that is known before a run; "" otherwise."""
    try:
        answer.refuse_moving_rate(options)
    except (UserError, TraceError) as error:
        return str(error)
    return ""


def _search(options: PlanWords) -> PlanAnswer:
    with progress_bar("planning") as bar:
        told = tasks_done("planning", "runs and searches done") if bar is None else None
        return answer.plan(options, bar, told)


def lines_of(result: PlanAnswer) -> list[str]:
    """Return the lines for the console."""
    lines = [sentence(result), *(f"  {remark}" for remark in remarks(result))]
    if result.ranked:
        lines += ["", *text_table([head(result), *rows(result)], numbers=True)]
    lines += [
        f"  {name}: {factor:.3g} times the trace's rate" for name, factor in result.details.get("factors", ())
    ]
    if result.deploy is not None:
        lines += ["", *deploy_lines(result.deploy)]
    lines += _listed("without an answer", unable(result))
    lines += _listed(f"{NOT_SEARCHED} (all=true searches every layout)", not_searched(result))
    return lines


def _listed(title: str, layouts: Sequence[Sequence[str]]) -> list[str]:
    return ["", f"{title}:", *(f"  {name}: {why}" for name, why in layouts)] if layouts else []
