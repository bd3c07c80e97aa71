"""``servetwin compare A B ...`` of runs: printed, or as one page."""

import json
import os
from collections.abc import Sequence
from pathlib import Path
from shlex import join
from typing import Any

from experiments.commands.process import telling
from experiments.compare.side_by_side import side_by_side
from experiments.compare.side_by_side_page import (
    as_data,
    as_page,
    diverging,
    head,
    rows,
    sentences,
    what_differs,
)
from experiments.compare.summary_kind import is_real
from experiments.compare.sweeps import sweeps_apart
from experiments.report.number_text import counted
from experiments.report.text_table import text_table
from experiments.results.whole_file import write_whole
from experiments.sweep.page import told_difference
from serving.vocabulary.errors import UserError


def are_runs(places: Sequence[Path], asked: dict[str, Any]) -> bool:
    """Whether all are result folders to be put side by side; a real one behind a run is a measured one."""
    if "format" in asked or "run" in asked or not all((place / "summary.json").is_file() for place in places):
        return False
    return len(places) > 2 or not is_real(places[1])


def answer(places: Sequence[Path], asked: dict[str, Any]) -> int:
    """Exit status 0. UserError for what is no result."""
    found = side_by_side(places)
    command = join(["servetwin", "compare", *map(str, places)])
    if "page" in asked:
        _keep(Path(asked["page"]), bool(asked.get("overwrite")))
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


def sweeps_answer(first: Path, second: Path) -> int:
    """Two sweeps, settings that both have. Exit status 0."""
    found = sweeps_apart(first, second)
    lines = [
        [", ".join(f"{key}={value}" for key, value in zip(found.keys, setting)) or "every run", name,
         told_difference(name, one), counted(one.count, "seed")]
        for setting, metrics in found.differences.items()
        for name, one in metrics.items()
    ]  # fmt: skip
    with telling():
        print(f"{second.name} minus {first.name}, seed by seed (95 % interval)")
        for folder, words in zip((first, second), found.words):
            if words:
                print(f"  only {folder.name}: {' '.join(words)}")
        print("\n".join(text_table(lines)))
    return 0


def _keep(path: Path, overwrite: bool) -> None:
    """UserError where a file would be lost."""
    if os.path.lexists(path) and not overwrite:
        raise UserError(f"page={path} exists: write another path, or overwrite=true to replace it")
