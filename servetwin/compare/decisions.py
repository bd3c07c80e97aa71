"""Which decisions two runs share, at whatever time, and the first that only one run has."""

from __future__ import annotations

import json
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.compare.divergence import journal_lines, parsing
from servetwin.results.journal_file import NAME
from serving.record.journal import parse_action
from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Fail,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    StopLoad,
    SwitchRole,
)
from serving.vocabulary.units import NS_PER_S

PLACED, SCALED, MOVED, BATCHED = "placing", "scaling", "moving", "batching"
KINDS: Final = (PLACED, SCALED, MOVED, BATCHED)
_LONGEST: Final = 240  # characters of an event or an action in a message
_NS_PER_MS: Final = 1e6
Key = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Decision:
    """``key``: the decision without time and reason. ``event`` and ``action``: their text in the journal."""

    kind: str
    key: Key
    at_ns: int
    event: str
    action: str

    def text(self) -> str:
        """Return the decision as a readable line."""
        return f"{self.at_ns / NS_PER_S:.6f} s, {_short(self.event)} -> {_short(self.action)}"


@dataclass(frozen=True, slots=True)
class Parting:
    """The first decision that only one run has, and what the other run decided instead."""

    kind: str
    first: Decision | None
    second: Decision | None

    @property
    def cause(self) -> str:
        """Why the decisions differ. ``observation``: the controllers received different events.

        ``timing``: they received the same event, but earlier events at other times; policies are the same.
        """
        if self.first is None or self.second is None or self.first.event != self.second.event:
            return "observation"
        return "timing"


@dataclass(frozen=True, slots=True)
class Matched:
    """``counts``: kind -> (decisions of the first run, of the second run, shared decisions).

    ``apart_ms``: the median difference between the two times of a shared decision.
    """

    counts: dict[str, tuple[int, int, int]]
    apart_ms: float | None
    parting: Parting | None

    def rate(self, *kinds: str) -> float | None:
        """Return the share of both runs' decisions that the other run has too; None if there are none."""
        chosen = [self.counts[kind] for kind in kinds or KINDS]
        whole = sum(ours + other for ours, other, _ in chosen)
        return 2 * sum(both for _, _, both in chosen) / whole if whole else None


def decisions_of(folder: Path) -> list[Decision] | None:
    """Return the decisions of the folder's journal, in order; None without a journal."""
    path = folder / NAME
    return list(_read(path)) if path.is_file() else None


def _read(path: Path) -> Iterator[Decision]:
    with parsing(path):
        for at_ns, event, actions, *_ in journal_lines(path):
            event_text = json.dumps(event)
            for fields in actions:
                decided = decided_in(parse_action(fields))
                if decided is not None:
                    kind, key = decided
                    yield Decision(kind, key, at_ns, event_text, json.dumps(fields))


def decided_in(action: Action) -> tuple[str, Key] | None:
    """Return kind and key. None for what only depends on time: interrupts, wakes, further decode steps."""
    match action:
        case Assign(request, replica):
            return PLACED, ("assign", request, replica)
        case Reject(request) | Fail(request) | Abort(request):
            return PLACED, (type(action).__name__, request)
        case AllocateGpus():
            return SCALED, ("allocate", action.replica, action.gpus, action.role, action.warm, action.layers)
        case SwitchRole(replica, role):
            return SCALED, ("switch", replica, role)
        case ReleaseGpus(replica):
            return SCALED, ("release", replica)
        case Load():
            return SCALED, ("load", action.sources, action.targets, action.layers)
        case StopLoad(load):
            return SCALED, ("stop", load)
        case Migrate():
            return MOVED, ("migrate", action.request, action.source, action.target, action.phase)
        case Detach(replica, request):
            return MOVED, ("detach", replica, request)
        case Send():
            return MOVED, ("send", action.what, action.requests, action.source, action.target)
        case JoinBatch(replica, requests):
            return MOVED, ("join", replica, requests)
        case Preempt(replica, request):
            return BATCHED, ("preempt", replica, request)
        case Run() if action.chunks:
            return BATCHED, ("run", action.replica, action.chunks, action.layers)
    return None


def matched(first: Sequence[Decision], second: Sequence[Decision]) -> Matched:
    """Match the n-th occurrence of a decision in one run with the n-th in the other."""
    ours, other = _number_decisions(first), _number_decisions(second)
    both = ours.keys() & other.keys()
    counts = {
        kind: (_count_kind(ours, kind), _count_kind(other, kind), sum(ours[key].kind == kind for key in both))
        for kind in KINDS
    }
    apart = [abs(ours[key].at_ns - other[key].at_ns) / _NS_PER_MS for key in both]
    return Matched(counts, statistics.median(apart) if apart else None, _parting(ours, other))


def _number_decisions(decisions: Sequence[Decision]) -> dict[tuple[Key, int], Decision]:
    seen: Counter[Key] = Counter()
    numbered = {}
    for decision in decisions:
        numbered[decision.key, seen[decision.key]] = decision
        seen[decision.key] += 1
    return numbered


def _count_kind(decisions: dict[tuple[Key, int], Decision], kind: str) -> int:
    return sum(decision.kind == kind for decision in decisions.values())


def _parting(ours: dict[tuple[Key, int], Decision], other: dict[tuple[Key, int], Decision]) -> Parting | None:
    """Return the earliest unshared decision, with the other run's on the same subject or kind."""
    alone = [decision for key, decision in ours.items() if key not in other]
    unmatched = [decision for key, decision in other.items() if key not in ours]
    if not alone and not unmatched:
        return None
    if not unmatched or (alone and alone[0].at_ns <= unmatched[0].at_ns):
        return Parting(alone[0].kind, alone[0], _counterpart(alone[0], unmatched))
    return Parting(unmatched[0].kind, _counterpart(unmatched[0], alone), unmatched[0])


def _counterpart(decision: Decision, candidates: Sequence[Decision]) -> Decision | None:
    same = [candidate for candidate in candidates if candidate.key[:2] == decision.key[:2]]
    like = [candidate for candidate in candidates if candidate.kind == decision.kind]
    return next(iter([*same, *like]), None)


def _short(text: str) -> str:
    return text if len(text) <= _LONGEST else text[: _LONGEST - 3] + "..."
