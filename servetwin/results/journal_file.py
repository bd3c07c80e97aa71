"""Writes the journal: one text line per event (serving.record.journal defines the format)."""

import json
import os
from collections.abc import Iterable, Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from servetwin.config.folder_kind import another_kind
from serving.record.journal import footer_text, header_text, line
from serving.vocabulary.actions import Action
from serving.vocabulary.driver import names_of
from serving.vocabulary.errors import UserError
from serving.vocabulary.estimates import Estimates
from serving.vocabulary.events import Event

NAME = "journal"
_LINES_AT_ONCE = 2048  # in a simulation, which can be repeated


class JournalFile:
    """A context manager; only a clean exit writes the footer, so a truncated journal is recognizable.

    ``at_once``: the operating system has every line when ``write`` returns, however the process ends then.
    """

    def __init__(self, path: Path, header: dict[str, object], at_once: bool = False) -> None:
        self._file = path.open("wb", buffering=0 if at_once else -1)
        self._lines_at_once = 1 if at_once else _LINES_AT_ONCE
        self._digest = sha256()
        self._lines = [header_text(header)]
        self._events = 0
        self._actions = 0
        if at_once:
            self._flush()

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Write one event, the actions that answered it, and the driver's reports in between."""
        self._lines.append(line(now_ns, event, actions, counts))
        self._events += 1
        self._actions += len(actions)
        if len(self._lines) >= self._lines_at_once:
            self._flush()

    def __enter__(self) -> "JournalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        try:
            self._flush()
            if kind is None:
                footer = footer_text(self._events, self._actions, self._digest.hexdigest())
                self._file.write(footer.encode() + b"\n")
        finally:
            self._file.close()

    def _flush(self) -> None:
        text = ("\n".join(self._lines) + "\n").encode() if self._lines else b""
        self._digest.update(text)
        self._file.write(text)
        self._lines.clear()


def header_fields(
    source: str, seed: int, config_yaml: str, estimates: Estimates, carries_out: Iterable[type] = ()
) -> dict[str, object]:
    """Return the run's header: where it ran, hashes of its inputs, what the driver can execute.

    carries_out: the classes of the actions that the driver executes.
    """
    known = json.dumps(estimates.as_dict(), sort_keys=True)
    return {
        "source": source,
        "carries_out": names_of(carries_out),
        "seed": seed,
        "config_sha256": sha256(config_yaml.encode()).hexdigest(),
        "estimates_sha256": sha256(known.encode()).hexdigest(),
    }


def journal_in(folder: Path, command: str) -> Path:
    """Return the journal of a result folder. Raises UserError, naming the command, if there is none."""
    try:
        folder = folder.expanduser()
    except RuntimeError:
        raise UserError(f"{folder} names a home that does not exist: write servetwin {command} DIR") from None
    if not os.path.isdir(folder):  # noqa: PTH112 (Path.is_dir raises for a name that is too long)
        raise UserError(f"{folder} is not a folder: write servetwin {command} DIR with the out= of a run")
    if not (folder / NAME).is_file():
        raise UserError(another_kind(folder) or f"{folder} has no journal: run again with journal=true")
    return folder / NAME
