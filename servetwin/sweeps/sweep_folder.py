"""The folder of a sweep: stores each point when it finishes, so that a killed sweep can resume.

``points.jsonl`` has one line per finished point and is only appended to; the tables are made from it.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from types import TracebackType
from typing import IO, Final

from hwmodels.reading import read_limited
from servetwin.config.folder_kind import SWEEP_POINTS
from servetwin.config.whole_file import write_whole
from servetwin.report.number_text import counted
from servetwin.results.unfinished import lock_folder
from servetwin.sweeps.outcome import PointOutcome
from servetwin.sweeps.points import Point
from serving.record.json_text import json_data
from serving.vocabulary.errors import PlaceError, UserError

POINTS: Final = SWEEP_POINTS
SHARDS: Final = "slurm"  # folder for the results of jobs on other hosts
ABOUT: Final = "sweep.json"
_MOST_BYTES: Final = 4 << 30  # of the most points that a sweep may have, ten times over


class SweepFolder:
    """A context manager that locks the folder for one process.

    Raises UserError for a folder with other contents, one that another sweep writes to, and one that cannot
    be written.
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._known: dict[str, PointOutcome] = {}
        self._file: IO[str] | None = None
        self._lock: int | None = None

    def __enter__(self) -> "SweepFolder":
        try:
            self._check()
            self.path.mkdir(parents=True, exist_ok=True)
            self._lock = lock_folder(self.path, wait=False)
            if self._lock is None:
                raise UserError(
                    f"another sweep writes to out={self.path}: wait for it, or write another out="
                )
            for file in (*sorted((self.path / SHARDS).glob("*.jsonl")), self.path / POINTS):
                self._known |= read_points(file)
            self._file = (self.path / POINTS).open("a", encoding="utf-8")
        except OSError as error:
            raise UserError(
                f"out={self.path} cannot be written ({error.strerror}): write out= with another folder"
            ) from error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        import os

        if isinstance(error, KeyboardInterrupt):
            finished = counted(len(self._known), "finished point")
            error.add_note(f"{self.path} keeps {finished}, from which the same command goes on")
        if self._file is not None:
            self._file.close()
        if self._lock is not None:
            os.close(self._lock)

    def known(self, points: Sequence[Point]) -> dict[int, PointOutcome]:
        """Return place -> outcome of the points that finished before."""
        return {point.place: self._known[point.id] for point in points if point.id in self._known}

    def keep(self, point: Point, outcome: PointOutcome) -> None:
        """Write the outcome to the file now."""
        assert self._file is not None
        self._known[point.id] = outcome
        write_point(self._file, point, outcome)

    def tell(self, about: dict[str, object]) -> None:
        """Write a description of the sweep, for readers and for later commands."""
        text = json.dumps(about, indent=1, ensure_ascii=False)
        write_whole("out", self.path / ABOUT, text + "\n")

    def _check(self) -> None:
        if self.path.is_file():
            raise PlaceError(f"out={self.path} is a file: write out= with the name of a folder")
        if self.path.is_dir() and any(self.path.iterdir()) and not (self.path / POINTS).is_file():
            raise PlaceError(
                f"out={self.path} holds files that are not a sweep's: write out= with a new folder"
            )


def write_point(file: IO[str], point: Point, outcome: PointOutcome) -> None:
    """Write one line, which is in the file when this returns."""
    line = {"id": point.id, "words": point.words, **asdict(outcome)}
    file.write(json.dumps(line, ensure_ascii=False) + "\n")
    file.flush()


def read_points(file: Path) -> dict[str, PointOutcome]:
    """Return finished points by id. Removes a truncated last line; ignores other invalid lines."""
    if not file.exists():
        return {}
    content = read_limited(file, _MOST_BYTES)
    whole = content[: content.rfind(b"\n") + 1]
    if len(whole) < len(content):
        file.write_bytes(whole)
    outcomes = {}
    for line in whole.splitlines():
        try:
            data = json_data(line)
            numbers = {str(name): float(value) for name, value in data["numbers"].items()}
            outcomes[str(data["id"])] = PointOutcome(numbers, str(data["refused"]), float(data["cpu_s"]))
        except (ArithmeticError, ValueError, KeyError, TypeError, AttributeError):
            continue
    return outcomes
