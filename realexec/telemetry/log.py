"""A machine-readable log of decisions: one line of JSON for each, written to a stream."""

import json
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from typing import TextIO

from serving.vocabulary.actions import Action, Run, Wake
from serving.vocabulary.driver import JournalSink
from serving.vocabulary.events import Arrived, Dropped, Event, Lost, Ran, Streamed
from serving.vocabulary.units import NS_PER_S

_LEVELS = {"Lost": "error", "Dropped": "warning", "Fail": "warning", "Reject": "warning", "Preempt": "info"}


class JsonLog:
    """A JournalSink. It writes arrivals, ends, losses, and every action except `Run` and `Wake`.

    Fields: ``time`` (seconds since 1970), ``run_s`` (since the run began), ``level``, ``event``, and those of
    the event or action, its reason too.
    """

    def __init__(
        self, stream: TextIO, journal: JournalSink | None, clock: Callable[[], float] = time.time
    ) -> None:
        self._stream, self._journal, self._clock = stream, journal, clock

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> None:
        """Forward one event and the controller's actions, and log them."""
        if self._journal is not None:
            self._journal.write(now_ns, event, actions, counts)
        if isinstance(event, Arrived):
            arrived = event.request
            fields = {"request": arrived.id, "prompt_tokens": arrived.prompt_tokens, "model": arrived.model}
            self._line(now_ns, "Arrived", fields)
        elif isinstance(event, Ran | Streamed):
            for request in event.finished:
                self._line(now_ns, "Finished", {"request": request, "replica": event.replica})
        elif isinstance(event, Lost | Dropped):
            self._line(now_ns, type(event).__name__, asdict(event))
        for action in actions:
            if not isinstance(action, Run | Wake):
                self._line(now_ns, type(action).__name__, asdict(action))

    def _line(self, now_ns: int, name: str, fields: dict[str, object]) -> None:
        head = {"time": round(self._clock(), 6), "run_s": now_ns / NS_PER_S}
        line = {**head, "level": _LEVELS.get(name, "info"), "event": name, **fields}
        self._stream.write(json.dumps(line) + "\n")
