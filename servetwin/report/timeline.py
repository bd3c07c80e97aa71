"""A run's journal as a timeline for https://ui.perfetto.dev: instances, loads, transfers, decisions."""

from __future__ import annotations

import gzip
import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Final

from hwmodels.reading import lines_of
from servetwin.config.whole_file import whole_file
from servetwin.report.decisions import USUAL, about
from servetwin.results.journal_file import journal_in
from servetwin.results.parquet_file import table_of
from servetwin.results.stage_load import COLUMNS, STAGE_LOAD_NAME
from servetwin.story.moments import JournalReader
from serving.vocabulary import actions, events

# Processes of the trace, which Perfetto displays as groups of tracks.
INSTANCES, LOADS, TRANSFERS, DECISIONS, STAGES = range(1, 6)
_NAMES: Final = {
    INSTANCES: "instances", LOADS: "loads", TRANSFERS: "transfers", DECISIONS: "decisions", STAGES: "stages",
}  # fmt: skip
_MOST_NAMED: Final = 32  # requests of a step that are listed
_US: Final = 1000.0  # ns in a microsecond

Slice = dict[str, Any]


def write_timeline(folder: Path, out: Path) -> int:
    """Write Chrome's trace format, gzipped; return the number of slices. UserError without a journal."""
    book, path = _Book(), journal_in(folder, "timeline")
    journal = JournalReader(lines_of(path), str(path))
    with journal.checked():
        for moment in journal.moments():
            book.take(*moment)
    slices = [*book.names(), *book.slices, *stage_counters(folder)]
    text = json.dumps({"traceEvents": slices, "displayTimeUnit": "ms"})
    with whole_file("out", out) as half:
        half.write_bytes(gzip.compress(text.encode(), mtime=0))  # no time: the same bytes again
    return len(book.slices)


def stage_counters(folder: Path) -> Iterator[Slice]:
    """Yield counters of every stage from stage_series.parquet; none if there is no such file."""
    path = folder / STAGE_LOAD_NAME
    if not path.is_file():
        return
    for row in table_of(path).to_pylist():
        where = {"ph": "C", "pid": STAGES, "ts": row["time_s"] * 1e6}
        for name in COLUMNS:
            value = row[name]
            if value == value:  # not NaN
                yield {"name": f"{row['model']} stage {row['stage']} {name}", **where, "args": {name: value}}


class _Book:
    """Collects activities in progress and the slices of finished ones."""

    def __init__(self) -> None:
        self.slices: list[Slice] = []
        self._runs: dict[int, tuple[int, actions.Run]] = {}
        self._loads: dict[int, tuple[int, actions.Load]] = {}
        self._sends: dict[int, tuple[int, actions.Send]] = {}
        self._tracks: dict[tuple[int, int], str] = {}

    def take(self, now_ns: int, event: events.Event, answered: Sequence[actions.Action]) -> None:
        """Process one line of the journal."""
        self._end_slices(now_ns, event)
        for action in answered:
            self._begun(now_ns, action)

    def names(self) -> Iterator[Slice]:
        """Yield the names of groups and tracks."""
        for pid, name in _NAMES.items():
            yield {"ph": "M", "name": "process_name", "pid": pid, "args": {"name": name}}
        for (pid, tid), name in sorted(self._tracks.items()):
            yield {"ph": "M", "name": "thread_name", "pid": pid, "tid": tid, "args": {"name": name}}

    def _end_slices(self, now_ns: int, event: events.Event) -> None:
        if isinstance(event, events.Ran) and not event.running:
            if begun := self._runs.pop(event.replica, None):
                run = begun[1]
                prompts = [request for request, _, _ in run.chunks[:_MOST_NAMED]]
                arguments = {"steps": event.steps, "prompts_of": prompts, "finished": list(event.finished)}
                name = f"layers {run.layers[0]} to {run.layers[1]}" if run.layers else run.reason
                self._slice(
                    pid=INSTANCES,
                    tid=event.replica,
                    track=f"instance {event.replica}",
                    name=name,
                    begun_ns=begun[0],
                    now_ns=now_ns,
                    arguments=arguments,
                )
        elif isinstance(event, events.Loaded) and event.fully_loaded:
            self._load_ended(now_ns, event.load, event.target, "loaded")
        elif isinstance(event, events.LoadStopped):
            self._load_ended(now_ns, event.load, event.target, event.cause)
        elif isinstance(event, events.Sent):
            self._sent(now_ns, event)

    def _load_ended(self, now_ns: int, load: int, target: int, end: str) -> None:
        if load not in self._loads:
            return
        begun_ns, action = self._loads[load]
        kind, number = action.targets[target]
        arguments = {
            "from": [f"{source[0]} {source[1]}" for source in action.sources],
            "reason": action.reason,
            "end": end,
        }
        self._slice(
            pid=LOADS,
            tid=number,
            track=f"{kind} {number}",
            name=f"{action.model}",
            begun_ns=begun_ns,
            now_ns=now_ns,
            arguments=arguments,
        )

    def _sent(self, now_ns: int, event: events.Sent) -> None:
        if begun := self._sends.pop(event.transfer, None):
            begun_ns, send = begun
            arguments = {"bytes": event.moved_bytes, "requests": list(send.requests), "cause": event.cause}
            name = f"{send.what} from {send.source}"
            self._slice(
                pid=TRANSFERS,
                tid=send.target,
                track=f"to instance {send.target}",
                name=name,
                begun_ns=begun_ns,
                now_ns=now_ns,
                arguments=arguments,
            )

    def _begun(self, now_ns: int, action: actions.Action) -> None:
        if isinstance(action, actions.Run):
            self._runs[action.replica] = (now_ns, action)
        elif isinstance(action, actions.Load):
            self._loads[action.load] = (now_ns, action)
        elif isinstance(action, actions.Send):
            self._sends[action.transfer] = (now_ns, action)
        if not isinstance(action, USUAL):
            self._add_decision(now_ns, action)

    def _add_decision(self, now_ns: int, action: actions.Action) -> None:
        kind = type(action).__name__
        track = sorted(member.__name__ for member in actions.Action.__args__).index(kind)
        self._tracks[DECISIONS, track] = kind
        arguments = {"reason": action.reason}
        where = {"pid": DECISIONS, "tid": track, "ts": now_ns / _US}
        self.slices.append(
            {"ph": "i", "s": "t", "name": f"{kind} {about(action)}", **where, "args": arguments}
        )

    def _slice(
        self,
        *,
        pid: int,
        tid: int,
        track: str,
        name: str,
        begun_ns: int,
        now_ns: int,
        arguments: dict[str, Any],
    ) -> None:
        self._tracks[pid, tid] = track
        times = {"ts": begun_ns / _US, "dur": (now_ns - begun_ns) / _US}
        self.slices.append({"ph": "X", "name": name, "pid": pid, "tid": tid, **times, "args": arguments})
