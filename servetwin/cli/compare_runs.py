"""``servetwin compare A B ...`` for runs: on the console, or as one page."""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import Any

from servetwin.cli.process import telling
from servetwin.compare.agreement import are_repeats
from servetwin.compare.side_by_side import side_by_side
from servetwin.compare.side_by_side_page import (
    as_data,
    as_page,
    diverging,
    head,
    rows,
    sentences,
    what_differs,
)
from servetwin.compare.summary_kind import is_real
from servetwin.config.whole_file import check_free, write_whole
from servetwin.report.text_table import text_table


def are_runs(places: Sequence[Path], options: dict[str, Any]) -> bool:
    """Return whether to put run folders side by side.

    Without a page, a real run as second of two is measured data, and several after a simulated one are
    repeats.
    """
    if (
        "format" in options
        or "run" in options
        or not all((place / "summary.json").is_file() for place in places)
    ):
        return False
    return "page" in options or not (are_repeats(places) or (len(places) == 2 and is_real(places[1])))


def answer(places: Sequence[Path], options: dict[str, Any]) -> int:
    """Print the comparison; exit status 0. UserError for a folder without a result."""
    comparison = side_by_side(places)
    command = join(["servetwin", "compare", *map(str, places), f"page={options.get('page')}"])
    if "page" in options:
        check_free("page", Path(options["page"]), bool(options.get("overwrite")))
        write_whole("page", Path(options["page"]), as_page(comparison, command))
    with telling():
        if options.get("json"):
            print(json.dumps(as_data(comparison), indent=1, ensure_ascii=False))
            return 0
        print("\n".join([*sentences(comparison), "", *text_table([head(comparison), *rows(comparison)])]))
        if changed := what_differs(comparison):
            print("\n".join(["", "what differs in the configuration:", *text_table(changed)]))
        if lines := diverging(comparison):
            print("\n".join(["", *lines]))
        if "page" in options:
            print(f"page in {options['page']}")
    return 0
