"""``servetwin compare SWEEP SWEEP ...``: on the console, or as one page."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from shlex import join
from typing import Any, Final

from servetwin.cli.process import telling
from servetwin.compare.side_by_side import short_names
from servetwin.compare.sweep_table import is_sweep
from servetwin.compare.sweeps import sweeps_beside
from servetwin.compare.sweeps_text import as_data, as_page, head, remarks, rows, sentences
from servetwin.config.whole_file import check_free, write_whole
from servetwin.report.text_table import text_table
from serving.vocabulary.errors import UserError

_MOST_LINES: Final = 80
_OF_MEASURED: Final = ("format", "run")


def are_sweeps(places: Sequence[Path]) -> bool:
    """Return whether all are folders of sweeps. UserError if only some are."""
    place_is_sweep = [is_sweep(place) for place in places]
    if any(place_is_sweep) and not all(place_is_sweep):
        sweep, other = places[place_is_sweep.index(True)], places[place_is_sweep.index(False)]
        raise UserError(
            f"{sweep} is a sweep and {other} is none: name sweeps alone, or runs alone (those of a "
            "sweep are in its runs/, which folders=true keeps)"
        )
    return all(place_is_sweep)


def answer(places: Sequence[Path], options: Mapping[str, Any]) -> int:
    """Exit status 0. UserError for keys of measured files, and for sweeps that share no point."""
    for key in _OF_MEASURED:
        if key in options:
            raise UserError(f"{key}= is for a measured file: leave it out of a comparison of sweeps")
    page = Path(options["page"]) if "page" in options else None
    if page is not None:
        check_free("page", page, bool(options.get("overwrite")))
    comparison = sweeps_beside(places, short_names(places))
    if page is not None:
        command = join(["servetwin", "compare", *map(str, places), f"page={options['page']}"])
        write_whole("page", page, as_page(comparison, command))
    with telling():
        if options.get("json"):
            print(json.dumps(as_data(comparison), indent=1, ensure_ascii=False))
            return 0
        lines = text_table([head(comparison), *rows(comparison)])
        print(
            "\n".join(
                [
                    *sentences(comparison),
                    *(f"  {remark}" for remark in remarks(comparison)),
                    "",
                    *lines[:_MOST_LINES],
                ]
            )
        )
        if len(lines) > _MOST_LINES:
            print(f"... {len(lines) - _MOST_LINES} more lines: write page=FILE.html or json=true")
        if page is not None:
            print(f"page in {page}")
    return 0
