"""The measurements so far, one line each on disk, with which a stopped calibration resumes."""

import fcntl
import json
import os
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from serving.vocabulary.errors import UserError

NAME: Final = "samples.jsonl"


class DoneLog:
    """Entries by name. A context manager; every entry is on disk before `add` returns.

    ``what``: all that the entries depend on. Entries of another calibration are deleted. Raises UserError
    while another process writes there.
    """

    def __init__(self, folder: Path, what: Mapping[str, Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.path = folder / NAME
        self.entries: dict[str, Any] = {}
        self._file = self.path.open("ab")
        self._hold()
        whole = self._read(what)
        self.resumed = len(self.entries)
        self._file.truncate(whole)
        if not whole:
            self._write({"calibration": dict(what)})

    def __enter__(self) -> "DoneLog":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()

    def add(self, name: str, entry: Any) -> None:
        """Add a finished measurement."""
        self._write({"name": name, "entry": entry})
        self.entries[name] = entry

    def _hold(self) -> None:
        """Lock the file. The lock is released when the file is closed, also by the end of the process."""
        try:
            fcntl.flock(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            self._file.close()
            raise UserError(
                f"another calibration writes to {self.path.parent}: wait for it, or write another out="
            ) from None

    def _write(self, line: Mapping[str, Any]) -> None:
        self._file.write(json.dumps(line).encode() + b"\n")
        self._file.flush()
        os.fsync(self._file.fileno())

    def _read(self, what: Mapping[str, Any]) -> int:
        """Read the entries; return the number of bytes in whole lines of them: the last line may be cut."""
        whole = 0
        for line in self.path.read_bytes().splitlines(keepends=True):
            try:
                entry = json.loads(line)
            except ValueError:
                break
            if not line.endswith(b"\n"):
                break
            if whole == 0 and entry != {"calibration": json.loads(json.dumps(dict(what)))}:
                return 0
            if whole:
                self.entries[entry["name"]] = entry["entry"]
            whole += len(line)
        return whole
