"""``servetwin plot``: a figure for a paper from what commands wrote."""

import itertools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import only_own
from servetwin.cli.process import tell
from servetwin.config.overrides import Wanted, echo
from servetwin.plotting.draw import Looks, check_style, draw, width_of
from servetwin.plotting.of_runs import KINDS, LATENCIES, named_run
from servetwin.plotting.of_tables import MEANS, POINTS, of_reproduction, of_sweeps
from servetwin.plotting.panel import Panel
from servetwin.report.picture import require_picture
from serving.vocabulary.errors import UserError

OWN: Final[Mapping[str, Wanted]] = {
    "out": Wanted(str),
    "kind": Wanted(str, choices=tuple(KINDS)),
    "metric": Wanted(list, items=str),
    "x": Wanted(str),
    "by": Wanted(list, items=str),
    "figure": Wanted(list, items=str),
    "labels": Wanted(list, items=str),
    "width": Wanted(str),
    "style": Wanted(str),
    "title": Wanted(str),
    "log": Wanted(str, choices=("x", "y", "xy")),
}
_HINT: Final = "write servetwin plot DIR out=figure.pdf"


def plot(words: Sequence[str]) -> int:
    """Write one figure and return exit status 0. UserError for folders and words that cannot be used."""
    words, as_json = asked_for_json(words)
    folders = [Path(word) for word in itertools.takewhile(lambda word: "=" not in word, words)]
    own = only_own(_lists(words[len(folders) :]), OWN, "servetwin plot", _HINT)
    if not folders or "out" not in own:
        raise UserError(f"plot takes the folder of a run, a sweep or a reproduction, and out=FILE: {_HINT}")
    path = Path(own["out"])
    require_picture(path, "out")
    looks = Looks(
        width=width_of(own.get("width", "column")),
        style=check_style(own.get("style", "")),
        title=own.get("title", ""),
        log=frozenset(own.get("log", "")),
    )
    panels = _panels(folders, own)
    draw(panels, looks, path)
    count = f"{len(panels)} panel{'' if len(panels) == 1 else 's'}"
    tell({"figure": str(path), "panels": [panel.title for panel in panels]}, [f"{count} in {path}"], as_json)
    return 0


def _lists(words: Sequence[str]) -> list[str]:
    """Write several values of a list as the grammar of keys has them: ``metric=a,b`` as ``metric=[a,b]``."""
    listed = {key for key, wanted in OWN.items() if wanted.type is list}
    pairs = [(word.partition("=")[0], word.partition("=")[2]) for word in words]
    return [
        f"{key}=[{text}]" if key in listed and not text.startswith("[") else f"{key}={text}"
        for key, text in pairs
    ]


def _panels(folders: Sequence[Path], own: Mapping[str, Any]) -> list[Panel]:
    """Return what the folders show: sweeps in common panels, runs beside each other, a reproduction alone."""
    first, metrics = folders[0], own.get("metric", [])
    if all((folder / MEANS).is_file() for folder in folders):
        return of_sweeps(folders, metrics, own.get("x", ""), own.get("by", []), own.get("labels", []))
    if table := next((folder for folder in folders if _is_table(folder)), None):
        if len(folders) > 1:
            raise UserError(
                f"{table} is no run: only runs, or only sweeps, are plotted beside each other; {_HINT}"
            )
        if "labels" in own:
            raise UserError("labels= names runs and lines of sweeps: leave it out for a reproduction")
        return of_reproduction(first, own.get("figure", []))
    for folder in folders:
        if not (folder / "requests.parquet").is_file():
            raise UserError(f"{folder} has no results: give the out= of a run, of a sweep or of reproduce")
    for metric in metrics:
        if metric not in LATENCIES:
            raise UserError(
                f"metric={echo(metric)} is no latency of requests: write metric={' | '.join(LATENCIES)}"
            )
    labels = own.get("labels") or [folder.resolve().name for folder in folders]
    if len(labels) != len(folders):
        raise UserError(f"labels= has {len(labels)} names for {len(folders)} runs: write one for each")
    runs = [named_run(folder, label) for folder, label in zip(folders, labels, strict=True)]
    return KINDS[own.get("kind", "latency")](runs, metrics)


def _is_table(folder: Path) -> bool:
    """Return whether the folder is of a sweep or a reproduction."""
    return (folder / MEANS).is_file() or (folder / POINTS).is_file()
