"""``servetwin compare A B ...`` for runs: on the console, or as one page."""

import json
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import Any

from servetwin.cli.process import telling
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


def are_runs(places: Sequence[Path], asked: dict[str, Any]) -> bool:
    """Return whether to put run folders side by side. A real run as second of two is measured data."""
    if "format" in asked or "run" in asked or not all((place / "summary.json").is_file() for place in places):
        return False
    return len(places) > 2 or not is_real(places[1])


def answer(places: Sequence[Path], asked: dict[str, Any]) -> int:
    """Print the comparison; exit status 0. UserError for a folder without a result."""
    found = side_by_side(places)
    command = join(["servetwin", "compare", *map(str, places), f"page={asked.get('page')}"])
    if "page" in asked:
        check_free("page", Path(asked["page"]), bool(asked.get("overwrite")))
        write_whole("page", Path(asked["page"]), as_page(found, command))
    with telling():
        if asked.get("json"):
            print(json.dumps(as_data(found), indent=1, ensure_ascii=False))
            return 0
        print("\n".join([*sentences(found), "", *text_table([head(found), *rows(found)])]))
        if changed := what_differs(found):
            print("\n".join(["", "what differs in the configuration:", *text_table(changed)]))
        if lines := diverging(found):
            print("\n".join(["", *lines]))
        if "page" in asked:
            print(f"page in {asked['page']}")
    return 0
