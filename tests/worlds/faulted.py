"""Worlds in which things are lost, each run as ``servetwin simulate`` runs it, coalesced and step by step.

After every event all invariants are checked; at the end every request has ended, every one that failed has a
reason, a fresh controller gives the same answers to the same events, and both ways to run give one summary.
"""

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from servetwin.assemble import build
from servetwin.assemble.shared_prefixes import named_requests
from servetwin.config.compose.compose import load_config
from servetwin.run.prepared import Prepared, Simulated
from servetwin.run.simulate import execute, prepare
from serving.controller import Controller
from serving.record.invariants import check
from serving.record.journal import line
from serving.record.replay import replay
from serving.vocabulary.actions import Action, AllocateGpus
from serving.vocabulary.events import Event
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S
from simcore.faults.plan import Loss
from tests.worlds.journals import complete_journal
from traces.columns import Names

MOST_EVENTS = 60_000
CLOCKS = (".decisions.cpu_ms_p99",)  # measured CPU time outside ``sim``: no two runs have the same


@dataclass
class Ends:
    """How every request ended; also a recorder that keeps it."""

    finished_ids: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)
    given_up: dict[int, str] = field(default_factory=dict)

    def finished(
        self, request: Request, output_tokens: int, first_ns: int, end_ns: int, replica: int, preemptions: int
    ) -> None:
        assert request.id not in self.finished_ids and 0 <= first_ns <= end_ns
        self.finished_ids[request.id] = output_tokens

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        self.rejected[request.id] = reason

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.lost[request.id] = reason

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        assert first_fixed >= 0

    def busy(self, replica: int, busy_ns: int) -> None:
        assert busy_ns >= 0


class Checked:
    """A journal that checks all invariants of the run's controller after every event, and keeps the lines."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.placed: list[int] = []  # replicas that came later
        self.actions = 0
        self.events: Counter[str] = Counter()

    def watch(self, controller: Controller) -> None:
        """Receive the run's controller."""
        self.controller = controller

    def write(self, now_ns: int, event: Event, actions: Sequence[Action], told: Sequence[int] = ()) -> None:
        """Check after one event."""
        check(self.controller)
        self.lines.append(line(now_ns, event, actions, told))
        self.actions += len(actions)
        self.placed += [one.replica for one in actions if isinstance(one, AllocateGpus)]
        self.events[type(event).__name__] += 1
        assert len(self.lines) < MOST_EVENTS, "the world does not come to its end"


@dataclass(frozen=True)
class Played:
    """What became of a world."""

    words: list[str]
    arrived: int
    replicas: int  # at the start
    ends: Ends
    losses: list[Loss]
    checked: Checked
    done: Simulated


def prepared_world(words: Sequence[str]) -> Prepared:
    """A world that may be played several times."""
    return prepare(load_config([*words, "out=OUT"], "simulate"))


def play(words: list[str], prepared: Prepared | None = None) -> Played:
    """Run it, with all checks. ``prepared``: by these words, if it is known."""
    prepared = prepared or prepared_world(words)
    checked = Checked()
    done = execute(replace(prepared, on_controller=checked.watch), checked)
    counts = len(prepared.workload), len(prepared.replicas)
    played = Played(words, *counts, _ends(done), _losses(done), checked, done)
    _conserved(played, prepared)
    _within_bounds(played)
    _replays(played, prepared)
    return played


def play_both(words: list[str], prepared: Prepared | None = None) -> Played:
    """Run it coalesced and step by step; both give the same numbers. Returns the coalesced run."""
    prepared = prepared or prepared_world(words)
    config = prepared.config
    played = play(words, prepared)
    exact = replace(config, engine=replace(config.engine, exact=not config.engine.exact))
    alone = play(words, replace(prepared, config=exact))
    assert (found := differences(played.done, alone.done)) == [], "\n".join(found)
    return played


def differences(coalesced: Simulated, exact: Simulated) -> list[str]:
    """Every number of ``summary.json`` but ``sim``, and every column of requests, in which the two differ."""
    one, other = flat(coalesced.summary), flat(exact.summary)
    found = [
        f"{key}: {one.get(key)!r} coalesced, {other.get(key)!r} step by step"
        for key in sorted(one.keys() | other.keys())
        if key not in CLOCKS and repr(one.get(key)) != repr(other.get(key))
    ]
    for name, column in coalesced.columns.items():
        same = plain(column) == plain(exact.columns[name])
        found += [] if same else [f"requests.parquet: {name}"]
    return found


def plain(column: Any) -> list[str]:
    """A column's values as text, so that NaN equals NaN."""
    if isinstance(column, Names):
        return [column.words[code] if code >= 0 else "" for code in column.codes]
    return [str(value) for value in column.tolist()]


def flat(value: Any, key: str = "") -> dict[str, Any]:
    """Every single value by its path."""
    if isinstance(value, dict):
        return {path: one for name in value for path, one in flat(value[name], f"{key}.{name}").items()}
    if isinstance(value, list | tuple):
        return {path: one for at, each in enumerate(value) for path, one in flat(each, f"{key}.{at}").items()}
    return {key: value}


def _ends(done: Simulated) -> Ends:
    ends = Ends(dict(zip(map(int, done.columns["request"]), map(int, done.columns["output_tokens"]))))
    rows = done.unserved.columns()
    outcomes, reasons = plain(rows["outcome"]), plain(rows["reason"])
    for request, outcome, reason in zip(plain(rows["request"]), outcomes, reasons):
        ways = {"rejected": ends.rejected, "failed": ends.lost, "timed_out": ends.given_up}
        ways[outcome][int(request)] = reason
    return ends


def _losses(done: Simulated) -> list[Loss]:
    return [
        Loss(
            round(one["at_s"] * NS_PER_S),
            one["what"],
            one["which"],
            tuple(one["replicas"]),
            nothing=one["nothing"],
            back_ns=_back_ns(one),
        )
        for one in done.summary.get("faults", ())
    ]


def _back_ns(row: Mapping[str, Any]) -> int | None:
    """When the global scheduler worked again; of other losses None."""
    if row["what"] != "scheduler" or row["recovered_s"] is None:
        return None
    return round((row["at_s"] + row["recovered_s"]) * NS_PER_S)


def _controller(prepared: Prepared) -> Controller:
    named = named_requests(prepared.config, prepared.workload)
    return build.controller_of(
        prepared.config,
        prepared.hardware_of_model,
        prepared.replicas,
        prepared.estimates,
        named_requests=named,
    )


def _conserved(played: Played, prepared: Prepared) -> None:
    ends, controller = played.ends, played.checked.controller
    ways = [*ends.finished_ids, *ends.rejected, *ends.lost, *ends.given_up]
    assert sorted(ways) == list(range(played.arrived)), "every request ends once"
    assert all([*ends.rejected.values(), *ends.lost.values()]), "who has no answer has a reason"
    counts = controller.arrived, controller.finished, controller.rejected, controller.failed
    told = played.done.summary.get("client_timeouts")
    if told is None:
        assert counts == (played.arrived, len(ends.finished_ids), len(ends.rejected), len(ends.lost))
    else:
        _attempts_conserved(played, told)
    wanted = {one.id: min(tokens, one.max_new_tokens) for one, tokens in _arrivals(prepared)}
    assert all(wanted[request] == tokens for request, tokens in ends.finished_ids.items())
    if any(not loss.nothing for loss in played.losses):
        return
    assert not ends.lost, "nothing was lost, so nothing fails"


def _attempts_conserved(played: Played, told: Mapping[str, Any]) -> None:
    """Each attempt ends once, and each request by its last attempt."""
    ends, controller, summary = played.ends, played.checked.controller, played.done.summary
    assert controller.arrived == played.arrived + told["retries"] - told["on_the_way_in"]
    ended = controller.finished + controller.rejected + controller.failed + controller.aborted
    assert controller.arrived == ended and not controller.aborts.leaving
    assert told["time_outs"] == told["retries"] + told["given_up"]
    assert told["given_up"] == len(ends.given_up) == summary["requests"]["timed_out"]
    # An answer that nobody waits for any more is finished all the same.
    assert len(ends.finished_ids) <= controller.finished
    assert controller.aborted <= told["time_outs"] - told["on_the_way_in"] - told["answered_too_late"]
    assert played.checked.events["Disconnected"] == (
        told["time_outs"] - told["on_the_way_in"] - told["answered_too_late"]
    )


def _within_bounds(played: Played) -> None:
    """A replica works while it exists, and shares are shares."""
    summary, nearly = played.done.summary, 1 + 1e-9
    span_s = summary["duration_s"]
    numbers = dict.fromkeys([*range(played.replicas), *played.checked.placed])
    busy_s = dict(
        zip(sorted(numbers), [share * span_s for share in summary["replica_busy_share"]], strict=True)
    )
    assert all(one <= span_s * nearly for one in busy_s.values()), "a replica works after the end"
    for loss in played.losses:
        for replica in loss.replicas:
            assert busy_s[replica] <= loss.at_ns / NS_PER_S * nearly, f"replica {replica} works though lost"
    shares = [("pipeline_parallel", "bubble_share"), ("data_parallel", "waiting_share")]
    shares.append(("data_parallel", "dummy_share"))
    for section, name in shares:
        share = summary.get(section, {}).get(name)
        assert share is None or 0 <= share <= 1, f"{name} is {share}"


def _arrivals(prepared: Prepared) -> list[tuple[Request, int]]:
    return list(build.arrivals_of(prepared.config, prepared.workload, prepared.limits))


def _replays(played: Played, prepared: Prepared) -> None:
    header: dict[str, Any] = {"source": "test", "carries_out": []}
    checked = played.checked
    text = [f"{one}\n" for one in complete_journal(header, checked.lines, checked.actions)]
    report = replay(text, _controller(prepared))
    assert (report.different, report.cut) == (0, None), report.first_difference
    for last in checked.lines[-1:]:  # none if no request came in
        json.loads(last)


def command_of(words: Sequence[str]) -> str:
    """What repeats the run by hand."""
    return f"servetwin simulate {' '.join(words)} journal=true out=out/faulted overwrite=true"
