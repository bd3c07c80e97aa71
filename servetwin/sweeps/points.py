"""The points of a sweep: one run each, identified by everything that it depends on."""

import hashlib
import importlib.util
import itertools
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hwmodels.step_times.aiconfigurator_library import library_version
from servetwin.config.compose.content_cache import digest_of
from servetwin.config.compose.fingerprint import content_in
from servetwin.config.options import own_folders
from servetwin.config.overrides import LITERAL_KEYS
from servetwin.config.policy.policy_class import find_modules_here, is_class_name
from servetwin.results.code_digest import code_digest
from servetwin.sweeps.axes import MOST_POINTS, SweepAxis
from serving.vocabulary.errors import UserError

# Variables that runs read besides their words: the folders of traces and profiles.
_PLACES: Final = ("SERVETWIN_TRACES", "SERVETWIN_PROFILES")


@dataclass(frozen=True, slots=True)
class Point:
    """One run. ``values``: (key, text) of every axis, in the order of the axes."""

    place: int
    words: tuple[str, ...]
    values: tuple[tuple[str, str], ...]

    @property
    def name(self) -> str:
        """The values only, for display."""
        return " ".join(f"{key}={text}" for key, text in self.values) or "the only run"

    @property
    def id(self) -> str:
        """A digest of the words, the code, the library of step times, and the files that the words name.

        The same run in another sweep has the same id.
        """
        parts = [
            *sorted(self.words),
            code_digest(),
            library_version(),
            *(os.environ.get(name, "") for name in _PLACES),
        ]
        parts += [_own_code(word.partition("=")[2]) for word in self.words if ":" in word]
        parts += [digest_of(content_in(folder)) for folder in own_folders()]
        parts += [_stamp(word) for word in self.words if word.partition("=")[0] in LITERAL_KEYS]
        return hashlib.sha256("\0".join(parts).encode("utf-8", "surrogateescape")).hexdigest()[:24]


def points_of(plain: Sequence[str], axes: Sequence[SweepAxis]) -> list[Point]:
    """Return every combination, the last axis changing fastest. UserError if there are too many."""
    count = 1
    for axis in axes:
        count *= len(axis.texts)
    if count > MOST_POINTS:
        raise UserError(f"the sweep has {count} points: write fewer values, at most {MOST_POINTS} points")
    return [
        Point(place, (*plain, *(f"{key}={text}" for key, text in values)), values)
        for place, values in enumerate(_combinations(axes))
    ]


def _combinations(axes: Sequence[SweepAxis]) -> Iterator[tuple[tuple[str, str], ...]]:
    return itertools.product(*([(axis.key, text) for text in axis.texts] for axis in axes))


def _own_code(text: str) -> str:
    """Return a digest of the module of a policy's name, and of modules beside it; "" for other words."""
    if not is_class_name(text):
        return ""
    find_modules_here()
    try:
        spec = importlib.util.find_spec(text.partition(":")[0])
    except (ImportError, ValueError):
        return ""
    if spec is None or spec.origin is None or not Path(spec.origin).is_file():
        return ""
    file, module_path = Path(spec.origin), hashlib.sha256()
    beside = file.parent.glob("*.py") if file.parent == Path.cwd() else ()
    for path in sorted({file, *beside}):
        module_path.update(path.name.encode() + b"\0" + path.read_bytes())
    return module_path.hexdigest()


def _stamp(word: str) -> str:
    """Return size and time of the file that a word names, if any: other content is another run."""
    try:
        status = Path(word.partition("=")[2]).stat()
    except (OSError, ValueError):
        return ""
    return f"{status.st_size} {status.st_mtime_ns}"
