"""The journal: one line per event with the actions that answered it, written as text and parsed back.

A line is a JSON array ``[now_ns, event, [action, ...]]``; events and actions are arrays that begin with their
name and list their fields in order. Rarely set fields come last, in actions before the reason, and only up to
the last field that is set. The first line is a header object, the last a footer object. This module only
converts; the drivers write.
"""

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from hashlib import sha256
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from serving.record.json_text import as_tuples
from serving.vocabulary.actions import (
    Abort,
    Action,
    AllocateGpus,
    Assign,
    Detach,
    Endpoint,
    Fail,
    Interrupt,
    JoinBatch,
    Load,
    Migrate,
    Preempt,
    Reject,
    ReleaseGpus,
    Run,
    Send,
    Shard,
    Span,
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.events import (
    Arrived,
    Closing,
    Disconnected,
    Dropped,
    Event,
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Observed,
    Opened,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Streamed,
    Woke,
)
from serving.vocabulary.request import Request

# Events of replicas whose engines schedule by themselves, as journal text and back.


def _streamed(event: Streamed) -> str:
    tokens = ",".join([f"[{request},{count}]" for request, count in event.tokens])
    return f'["streamed",{event.replica},[{tokens}],[{",".join(map(str, event.finished))}]]'


def _dropped(event: Dropped) -> str:
    refused = "true" if event.refused else "false"
    return f'["dropped",{event.replica},{event.request},{refused},{quoted(event.cause)}]'


def _observed(event: Observed) -> str:
    load = f"{event.as_of_ns},{event.running},{event.waiting}"
    memory = f"{event.used_blocks},{event.total_blocks},{event.block_tokens},{event.preemptions}"
    if event.queried_tokens or event.found_tokens:
        memory += f",{event.queried_tokens},{event.found_tokens}"
    return f'["observed",{event.replica},{load},{memory}]'


TEXT: Final[Mapping[type, Callable[[Any], str]]] = {
    Streamed: _streamed,
    Dropped: _dropped,
    Observed: _observed,
}


def _parse_streamed(replica: int, tokens: Sequence[Sequence[int]], finished: Sequence[int]) -> Event:
    pairs = tuple([(request, count) for request, count in tokens])
    if replica < 0 or min([count for _, count in pairs], default=0) < 0:
        raise ValueError(f"replica {replica} sent a negative number")
    return Streamed(replica, pairs, tuple(finished))


def _parse_dropped(replica: int, request: int, refused: bool, cause: str) -> Event:
    if replica < 0:
        raise ValueError(f"replica {replica} dropped a request")
    return Dropped(replica, request, refused, cause)


def _parse_observed(*numbers: int) -> Event:
    if min(numbers) < 0:
        raise ValueError("a replica reported a negative number")
    return Observed(*numbers)


PARSE: Final[Mapping[str, Callable[..., Event]]] = {
    "streamed": _parse_streamed,
    "dropped": _parse_dropped,
    "observed": _parse_observed,
}


FORMAT = 6


def _arrived(event: Arrived) -> str:
    r = event.request
    numbers = f"{r.id},{r.arrival_ns},{r.prompt_tokens},{r.max_new_tokens}"
    seldom = f",{r.reserved_tokens}" if r.reserved_tokens else ""  # written only if set
    if r.shared_prefix:
        parts = ",".join([f"[{owner},{end}]" for owner, end in r.shared_prefix])
        seldom = f",{r.reserved_tokens},[{parts}]"
    return f'["arrived",{numbers},{quoted(r.model)},{r.priority}{seldom}]'


def _ran(event: Ran) -> str:
    finished = ",".join(map(str, event.finished))
    running = "true" if event.running else "false"  # no call: this line is written for every event
    joins = f",{_numbers(event.joins)}" if event.joins else ""
    if event.micro_batch >= 0:
        joins = f",{_numbers(event.joins)},{event.micro_batch},{_numbers(event.batch_steps)}"
    text = f"{event.steps},[{finished}],{running},{event.last_step_ns}{joins}"
    return f'["ran",{event.replica},{event.epoch},{text}]'


def _run(action: Run) -> str:
    chunks = ",".join([f"[{request},{start},{tokens}]" for request, start, tokens in action.chunks])
    decode = "true" if action.decode else "false"
    until_finish = "true" if action.until_finish else "false"
    hand_over = ",true" if action.hand_over else ""  # written only if set
    if action.layers is not None:
        cores = f",{action.cpu_cores}" if action.cpu_cores else ""
        inputs = f",{_pairs(action.inputs)}{cores}" if action.inputs or cores else ""
        hand_over = f",{_truth(action.hand_over)},{_numbers(action.layers)}{inputs}"
    if action.micro_batch >= 0:
        hand_over = f",{_truth(action.hand_over)},null,[],0,{action.micro_batch}"
        if action.spans:
            hand_over += f",{_numbers(action.path)},{_pairs(action.spans)}"
    text = f"[{chunks}],{decode},{action.max_steps},{until_finish}{hand_over}"
    return f'["run",{action.replica},{action.epoch},{text},{quoted(action.reason)}]'


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _endpoints(endpoints: Sequence[Endpoint]) -> str:
    return ",".join([f"[{quoted(kind)},{number}]" for kind, number in endpoints])


def _numbers(numbers: Iterable[int]) -> str:
    return f"[{','.join(map(str, numbers))}]"


def _load(action: Load) -> str:
    shards = ",".join(
        [
            f"[{shard.source_gpu},{shard.target_gpu},{shard.share!r},{shard.rate_bytes_per_s!r}]"
            for shard in action.shards
        ]
    )
    way = f"[{_endpoints(action.sources)}],[{_endpoints(action.targets)}],[{shards}]"
    flags = f"{_truth(action.every_layer)},{_truth(action.cold)}"
    if action.layers is not None:
        flags += f",{_truth(action.layers_first)},{_numbers(action.layers)}"
    elif action.layers_first:  # written only if set
        flags += ",true"
    return f'["load",{action.load},{quoted(action.model)},{way},{flags},{quoted(action.reason)}]'


def _send(action: Send) -> str:
    way = f"{_numbers(action.requests)},{action.source},{action.target},{action.size_bytes}"
    if action.positions or action.control_ns:
        layers = "null" if action.layers is None else _numbers(action.layers)
        way += f",{layers},[{','.join([_numbers(position) for position in action.positions])}]"
        if action.control_ns or action.slowdown_ppm:
            way += f",{action.control_ns}{_seldom(action.slowdown_ppm)}"
    elif action.layers is not None:
        way += f",{_numbers(action.layers)}"
    return f'["send",{action.transfer},{quoted(action.what)},{way},{quoted(action.reason)}]'


def _place(action: AllocateGpus) -> str:
    where = f"{action.replica},{quoted(action.model)},{_numbers(action.gpus)}"
    flags = f"{quoted(action.role)},{_truth(action.warm)}{_layers(action.layers)}"
    return f'["allocategpus",{where},{flags},{quoted(action.reason)}]'


def _adopt(action: JoinBatch) -> str:
    layers = ",null" if action.swap_ns and action.layers is None else _layers(action.layers)
    requests = f"{action.replica},{_numbers(action.requests)}{layers}{_seldom(action.swap_ns)}"
    return f'["joinbatch",{requests},{quoted(action.reason)}]'


def _layers(layers: Span | None) -> str:
    return "" if layers is None else f",{_numbers(layers)}"


def _pairs(pairs: Sequence[tuple[int, int]]) -> str:
    return f"[{','.join([f'[{pair},{other}]' for pair, other in pairs])}]"


def _seldom(number: int) -> str:
    return f",{number}" if number else ""


_EVENT_TEXT: dict[type, Callable[[Any], str]] = {
    Arrived: _arrived,
    Ran: _ran,
    Lost: lambda e: f'["lost",{e.replica},{quoted(e.cause)}]',
    LossNotice: lambda e: f'["lossnotice",{quoted(e.what)},{e.number},{e.at_ns},{quoted(e.cause)}]',
    LostHost: lambda e: f'["losthost",{e.host},{quoted(e.cause)}]',
    LostSsd: lambda e: f'["lostssd",{e.host},{quoted(e.cause)}]',
    LostLink: lambda e: f'["lostlink",{quoted(e.link)},{e.nic},{quoted(e.cause)}]',
    SchedulerLost: lambda e: f'["schedulerlost",{quoted(e.cause)}]',
    SchedulerBack: lambda e: '["schedulerback"]',
    Disconnected: lambda e: f'["disconnected",{e.request}]',
    Closing: lambda e: f'["closing",{quoted(e.cause)}]',
    Opened: lambda e: '["opened"]',
    Loaded: lambda e: f'["loaded",{e.load},{e.target},{e.layers},{_truth(e.fully_loaded)}{_seldom(e.first)}]',
    LoadStopped: lambda e: (
        f'["loadstopped",{e.load},{e.target},{e.layers},{quoted(e.cause)}{_seldom(e.first)}]'
    ),
    Sent: lambda e: f'["sent",{e.transfer},{e.moved_bytes},{quoted(e.cause)}]',
    Woke: lambda e: '["woke"]',
    **TEXT,
}
_ACTION_TEXT: dict[type, Callable[[Any], str]] = {
    Run: _run,
    Assign: lambda a: f'["assign",{a.request},{a.replica},{quoted(a.reason)}]',
    Reject: lambda a: f'["reject",{a.request},{quoted(a.reason)}]',
    Interrupt: lambda a: (
        f'["interrupt",{a.replica},{quoted(a.reason)},{a.grace_steps}{",true" if a.later else ""}]'
    ),
    Detach: lambda a: f'["detach",{a.replica},{a.request},{quoted(a.reason)}]',
    Migrate: lambda a: f'["migrate",{a.request},{a.source},{a.target},{quoted(a.phase)},{quoted(a.reason)}]',
    Preempt: lambda a: f'["preempt",{a.replica},{a.request}{_seldom(a.swap_ns)},{quoted(a.reason)}]',
    Fail: lambda a: f'["fail",{a.request},{quoted(a.reason)}]',
    Abort: lambda a: f'["abort",{a.request},{a.replica},{a.tokens},{quoted(a.reason)}]',
    Load: _load,
    StopLoad: lambda a: f'["stopload",{a.load},{quoted(a.reason)}]',
    Send: _send,
    StopSend: lambda a: f'["stopsend",{a.transfer},{quoted(a.reason)}]',
    AllocateGpus: _place,
    SwitchRole: lambda a: f'["switchrole",{a.replica},{quoted(a.role)},{quoted(a.reason)}]',
    ReleaseGpus: lambda a: f'["releasegpus",{a.replica},{quoted(a.reason)}]',
    JoinBatch: _adopt,
    Wake: lambda a: f'["wake",{a.at_ns},{quoted(a.reason)}]',
}

_DATA_EVENTS: dict[str, Any] = {
    "lossnotice": LossNotice,
    "losthost": LostHost,
    "lostssd": LostSsd,
    "schedulerlost": SchedulerLost,
    "schedulerback": SchedulerBack,
    "disconnected": Disconnected,
    "closing": Closing,
    "opened": Opened,
    "loaded": Loaded,
    "loadstopped": LoadStopped,
    "sent": Sent,
    "woke": Woke,
}
ACTION_NAMES = frozenset([kind.__name__ for kind in _ACTION_TEXT])
_ACTIONS: dict[str, Any] = {kind.__name__.lower(): kind for kind in _ACTION_TEXT}
# Number of fields before the rarely set ones, and before the reason.
_SELDOM = {"run": 6, "allocategpus": 5, "load": 7, "send": 6, "joinbatch": 2, "preempt": 2}


def event_text(event: Event) -> str:
    """The event as a JSON array."""
    return _EVENT_TEXT[type(event)](event)


def action_text(action: Action) -> str:
    """The action as a JSON array."""
    return _ACTION_TEXT[type(action)](action)


def line(now_ns: int, event: Event, actions: Sequence[Action], counts: Sequence[int] = ()) -> str:
    """One journal line, without line end. ``counts``: the step counts that the driver returned meanwhile."""
    text = ",".join([_ACTION_TEXT[type(action)](action) for action in actions])
    if counts:
        return f"[{now_ns},{_EVENT_TEXT[type(event)](event)},[{text}],{_numbers(counts)}]"
    return f"[{now_ns},{_EVENT_TEXT[type(event)](event)},[{text}]]"


def parse_event(fields: Sequence[Any]) -> Event:
    """The event of a parsed array. Raises ValueError or TypeError if the array is no event."""
    name, *rest = fields
    if name == "ran":
        replica, epoch, steps, finished, running, last_step_ns, *joins = rest
        if replica < 0 or steps < 0:
            raise ValueError(f"replica {replica} ran {steps} steps")
        if joins and type(joins[0]) is not list:
            raise ValueError(f"steps before which requests joined are {joins[0]}")
        return Ran(replica, epoch, steps, tuple(finished), running, last_step_ns, *as_tuples(joins))
    if name == "arrived":
        return Arrived(_parse_request(rest))
    if name == "lost":
        if rest[0] < 0:
            raise ValueError(f"replica {rest[0]} was lost")
        return Lost(*rest)
    if name in ("loaded", "loadstopped") and len(rest) > 4 and rest[4] < 1:
        raise ValueError("a load from layer 0 on is written without it")
    if name == "lostlink":
        if rest[1] < -1:
            raise ValueError(f"NIC {rest[1]} was lost")
        return LostLink(*rest)
    if name in _DATA_EVENTS:
        if min((number for number in rest if type(number) is int), default=0) < 0:
            raise ValueError(f"{name} with a negative number")
        return _DATA_EVENTS[name](*rest)  # type: ignore[no-any-return]
    if name in PARSE:
        return PARSE[name](*rest)
    raise ValueError(f"no event is called {name!r}")


def _parse_request(fields: Sequence[Any]) -> Request:
    if len(fields) == 7 and fields[6] < 1:
        raise ValueError("a reserve of nothing is not written")
    if len(fields) < 8:
        return Request(*fields)
    *most, parts = fields
    if not parts:
        raise ValueError("a prompt that shares nothing is written without parts")
    values = [*most, tuple([(owner, end) for owner, end in parts])]
    return Request(*values)


def parse_action(fields: Sequence[Any]) -> Action:
    """The action of a parsed array. Raises ValueError or TypeError if the array is no action."""
    name, *rest = fields
    if name in _ACTIONS:
        values = as_tuples(rest)
        before = _SELDOM.get(name)
        if before is not None:
            *most, reason = values
            values = [*most[:before], reason, *most[before:]]
        if name == "load":
            values[4] = tuple([Shard(*shard) for shard in values[4]])
        return _ACTIONS[name](*values)  # type: ignore[no-any-return]
    raise ValueError(f"no action is called {name!r}")


def header_text(fields: dict[str, object]) -> str:
    """The first line: format, source of the run, seed, hashes of configuration and estimates."""
    return json.dumps({"servetwin_journal": FORMAT, **fields}, sort_keys=True, separators=(",", ":"))


def footer_text(events: int, actions: int, digest: str) -> str:
    """The last line: how many events and actions the journal holds, and the digest of the lines above."""
    footer = {"actions": actions, "events": events, "sha256": digest}
    return json.dumps(footer, sort_keys=True, separators=(",", ":"))


def digest_of(lines: Iterable[str]) -> str:
    """SHA-256 over the lines, each with its line end."""
    digest = sha256()
    for text in lines:
        digest.update(text.encode() + b"\n")
    return digest.hexdigest()
