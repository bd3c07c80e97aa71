"""The journal as a file: one text line per event (serving.journal has the format)."""

import json
from collections.abc import Sequence
from hashlib import sha256
from pathlib import Path
from types import TracebackType

from serving.actions import Action
from serving.estimates import Estimates
from serving.events import Event
from serving.journal import footer_text, header_text, line

NAME = "journal"


class JournalFile:
    """Use as a context manager; the footer is written on a clean exit only, so a cut journal shows."""

    def __init__(self, path: Path, header: dict[str, object]) -> None:
        self._file = path.open("w", encoding="ascii", buffering=1 << 20)
        self._write = self._file.write
        self._events = 0
        self._actions = 0
        self._write(header_text(header) + "\n")

    def write(self, now_ns: int, event: Event, actions: Sequence[Action]) -> None:
        """One event and the actions that answered it."""
        self._write(line(now_ns, event, actions) + "\n")
        self._events += 1
        self._actions += len(actions)

    def __enter__(self) -> "JournalFile":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._write(footer_text(self._events, self._actions) + "\n")
        self._file.close()


def header_fields(source: str, seed: int, config_yaml: str, estimates: Estimates) -> dict[str, object]:
    """What a journal says about its run: where it was made, and hashes of what went in."""
    known = json.dumps(estimates.as_dict(), sort_keys=True)
    return {
        "source": source,
        "seed": seed,
        "config_sha256": sha256(config_yaml.encode()).hexdigest(),
        "estimates_sha256": sha256(known.encode()).hexdigest(),
    }
