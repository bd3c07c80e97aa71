"""The story of one request: a function per kind of event and of action."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from servetwin.story.cluster_state import ClusterState
from servetwin.story.line import Lines, StoryLine, count, layer_range, numbers, seconds, size, tokens
from servetwin.story.moments import Moment
from servetwin.story.of_stock import OF_REQUEST
from servetwin.story.request_record import (
    FIRST_STEPS,
    RequestRecord,
    count_report,
    decoded,
    decodes,
    stages,
    unfinished,
)
from serving.vocabulary.actions import (
    Abort,
    AllocateGpus,
    Assign,
    Detach,
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
    StopLoad,
    StopSend,
    SwitchRole,
    Wake,
)
from serving.vocabulary.events import (
    Arrived,
    Closing,
    Disconnected,
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Opened,
    Ran,
    SchedulerBack,
    SchedulerLost,
    Sent,
    Woke,
)

# Lines about migrations in the stories of requests and instances.

_SAID = {
    "begun": "a migration from instance {0} to {1} begins",
    "committed": "its migration from instance {0} to {1} is complete",
    "aborted": "its migration from instance {0} to {1} is aborted",
}


def migrates(record: RequestRecord, state: ClusterState, now_ns: int, action: Migrate) -> Lines:
    """Report the phase of this request's migration."""
    if action.request == record.id:
        yield StoryLine(now_ns, _SAID[action.phase].format(action.source, action.target), action.reason)


def leaves_batch(record: RequestRecord, state: ClusterState, now_ns: int, action: Detach) -> Lines:
    """Report that the request left its batch; it decodes again at its destination or at its source."""
    if action.request == record.id and record.mine is not None:
        yield from decoded(record, state, now_ns)
        record.enter("migration", now_ns)
        text = f"leaves the batch of instance {action.replica} with {count(record.mine.made, 'token')}"
        yield StoryLine(now_ns, text, action.reason)


def request_story(moments: Iterator[Moment], record: RequestRecord) -> Lines:
    """Yield the request's lines from its arrival until it ends; reads no further."""
    state, now_ns = ClusterState(), 0
    for now_ns, event, actions in moments:
        state.happens(now_ns, event)
        yield from EVENTS[type(event)](record, state, now_ns, event)
        for action in actions:
            state.follows(now_ns, action)
            yield from ACTIONS[type(action)](record, state, now_ns, action)
        if record.over:
            return
    if record.mine is not None:
        yield from unfinished(record, state, now_ns)


def _arrived(record: RequestRecord, state: ClusterState, now_ns: int, event: Arrived) -> Lines:
    request = event.request
    if request.id != record.id:
        return
    record.mine, record.arrived_ns = state.requests[record.id], now_ns
    record.enter("waiting", now_ns)
    prompt, most = count(request.prompt_tokens, "prompt token"), count(request.max_new_tokens, "new one")
    remarks = f", priority {request.priority}" if request.priority else ""
    if request.reserved_tokens:
        remarks += f", room is kept for {request.reserved_tokens:,}"
    if request.shared_prefix:
        remarks += f", its first {request.shared_prefix[-1][1]:,} tokens occurred before"
    yield StoryLine(now_ns, f"arrives for {request.model}: {prompt}, at most {most}{remarks}")


def _ran(record: RequestRecord, state: ClusterState, now_ns: int, event: Ran) -> Lines:
    report = state.report
    if record.mine is None or report is None or report.run is None:
        return
    if any(request == record.id for request, _, _ in report.computed):
        yield from _computed(record, state, now_ns, event)
    if record.id in report.joined:
        decodes(record, now_ns)
        before = report.joined[record.id]
        yield StoryLine(now_ns, f"took part in all but {before:,} of the {event.steps:,} steps reported now")
    only_prompt = event.steps == 1 and record.id in report.completed
    if (
        record.decoding is not None
        and record.mine.replica == event.replica
        and event.steps
        and not only_prompt
    ):
        beside = any(request != record.id for request, _, _ in report.computed)
        count_report(record.decoding, report.decoding - 1, beside)
    if record.id in event.finished:
        yield from _finished(record, state, now_ns, event)


def _computed(record: RequestRecord, state: ClusterState, now_ns: int, event: Ran) -> Lines:
    """Report that a step, the first of the reported ones, computed tokens of the request's prompt."""
    report, mine = state.report, record.mine
    assert report is not None and report.run is not None and mine is not None
    start, amount = next(
        (start, amount) for request, start, amount in report.computed if request == record.id
    )
    rest = len(report.computed) - 1
    beside = f", with {count(rest, 'other prompt')}" if rest else ""
    took = seconds(now_ns - report.began_ns)
    if report.run.layers is not None:
        text = f"{layer_range(report.run.layers)} of its {count(amount, 'prompt token')}"
        yield StoryLine(now_ns, f"{text} ran on instance {event.replica} in {took}{beside}")
        return
    steps = f"{took}" if event.steps == 1 else f"the first of {event.steps:,} steps that took {took}"
    text = f"{tokens(start, amount)} computed on instance {event.replica} in {steps}{beside}"
    if record.id not in report.completed:
        yield StoryLine(now_ns, text)
    elif report.run.hand_over:
        record.enter("hand-over", now_ns)
        yield StoryLine(now_ns, f"{text}: the prompt is complete and waits there for its KV to be taken over")
    else:
        yield from _first_token(record, now_ns, report.began_ns, event.steps)
        yield StoryLine(now_ns, f"{text}: complete, it decodes from the next step on")


def _first_token(record: RequestRecord, now_ns: int, began_ns: int, steps: int) -> Lines:
    """Report the first token, after the first step; of several steps only requests.parquet has its time."""
    first_ns = record.first_token_ns
    if steps == 1:
        decodes(record, now_ns)
    elif first_ns is not None and began_ns < first_ns < now_ns:
        decodes(record, first_ns)
        yield StoryLine(first_ns, "first token", "from requests.parquet")
    else:
        record.enter(FIRST_STEPS, began_ns)
        decodes(record, now_ns, began_ns)


def _finished(record: RequestRecord, state: ClusterState, now_ns: int, event: Ran) -> Lines:
    assert record.mine is not None
    yield from decoded(record, state, now_ns)
    made = record.mine.made
    why = "that is max_new_tokens" if made >= record.mine.request.max_new_tokens else ""
    yield StoryLine(now_ns, f"finishes on instance {event.replica} with {count(made, 'token')}", why)
    yield from stages(record, now_ns)
    record.over = True


def _lost(record: RequestRecord, state: ClusterState, now_ns: int, event: Lost) -> Lines:
    if record.mine is None:
        return
    ends = {end for _, send in record.transfers.values() for end in (send.source, send.target)}
    if event.replica == record.mine.replica or event.replica in ends:
        yield from decoded(record, state, now_ns)
        yield StoryLine(now_ns, f"instance {event.replica} is lost with all it held", event.cause)


def _closing(record: RequestRecord, state: ClusterState, now_ns: int, event: Closing) -> Lines:
    if record.mine is not None:
        yield from decoded(record, state, now_ns)
        yield StoryLine(now_ns, "the run ends before the request does", event.cause)


def _sent(record: RequestRecord, state: ClusterState, now_ns: int, event: Sent) -> Lines:
    began_ns, send = record.transfers.pop(event.transfer, (0, None))
    if send is None:
        return
    took = seconds(now_ns - began_ns)
    if event.cause:
        yield StoryLine(now_ns, f"its {_name(send)} stopped after {size(event.moved_bytes)}", event.cause)
    else:
        yield StoryLine(
            now_ns,
            f"its {_name(send)} {_verb(send, 'has', 'have')} come to instance {send.target}, after {took}",
        )


def _assign(record: RequestRecord, state: ClusterState, now_ns: int, action: Assign) -> Lines:
    if action.request == record.id:
        yield StoryLine(now_ns, f"is assigned to instance {action.replica}", action.reason)


def _reject(record: RequestRecord, state: ClusterState, now_ns: int, action: Reject) -> Lines:
    if action.request == record.id:
        record.over = True
        yield StoryLine(now_ns, "is rejected", action.reason)


def _fail(record: RequestRecord, state: ClusterState, now_ns: int, action: Fail) -> Lines:
    if action.request == record.id and record.mine is not None:
        yield from decoded(record, state, now_ns)
        record.over = True
        yield StoryLine(now_ns, f"fails with {count(record.mine.made, 'token')}", action.reason)
        yield from stages(record, now_ns)


def _disconnected(record: RequestRecord, state: ClusterState, now_ns: int, event: Disconnected) -> Lines:
    if event.request == record.id and record.mine is not None and not record.over:
        yield StoryLine(now_ns, "its client gives up and closes the connection")


def _abort(record: RequestRecord, state: ClusterState, now_ns: int, action: Abort) -> Lines:
    if action.request == record.id and record.mine is not None:
        yield from decoded(record, state, now_ns)
        record.over = True
        yield StoryLine(now_ns, f"is aborted with {count(record.mine.made, 'token')}", action.reason)
        yield from stages(record, now_ns)


def _run(record: RequestRecord, state: ClusterState, now_ns: int, action: Run) -> Lines:
    """Report the first step of the prompt, which ends a wait; later steps are reported when computed."""
    chunk = next((chunk for chunk in action.chunks if chunk[0] == record.id), None)
    if chunk is None or record.mine is None or record.stage != "waiting":
        return
    waited_ns = record.enter("prompt", now_ns)
    waited = f"has waited {seconds(waited_ns)}; " if waited_ns else ""
    reused = (
        f"; the KV of {count(chunk[1], 'token')} was found again"
        if chunk[1] and action.layers is None
        else ""
    )
    whole = f"{record.mine.known_tokens:,}"
    if record.mine.made:
        whole += f" ({record.mine.made:,} of them its own)"
    text = f"takes {tokens(chunk[1], chunk[2])} of {whole}{reused}"
    if action.layers is not None:
        text = f"runs {layer_range(action.layers)} of its prompt"
    yield StoryLine(now_ns, f"{waited}a step on instance {action.replica} {text}", action.reason)


def _interrupt(record: RequestRecord, state: ClusterState, now_ns: int, action: Interrupt) -> Lines:
    """Report an interrupt that this request's arrival caused."""
    if record.arrived_ns == now_ns and record.mine is not None and action.replica == record.mine.replica:
        grace = (
            f" after {count(action.grace_steps, 'more step')}" if action.grace_steps else " at the next step"
        )
        yield StoryLine(now_ns, f"the run on instance {action.replica} is to end{grace}", action.reason)


def _preempt(record: RequestRecord, state: ClusterState, now_ns: int, action: Preempt) -> Lines:
    if action.request == record.id and record.mine is not None:
        yield from decoded(record, state, now_ns)
        record.enter("waiting", now_ns)
        text = f"is preempted on instance {action.replica} with {count(record.mine.made, 'token')}"
        kv = "goes to host memory" if action.swap_ns else "is dropped"
        yield StoryLine(now_ns, f"{text}; its KV {kv}, it waits there again", action.reason)


def _send(record: RequestRecord, state: ClusterState, now_ns: int, action: Send) -> Lines:
    if record.id not in action.requests:
        return
    record.transfers[action.transfer] = now_ns, action
    if record.stage == "prompt" and action.what == "kv":  # the last layer has run, if run layer by layer
        record.enter("hand-over", now_ns)
    rest = [request for request in action.requests if request != record.id]
    beside = f", with that of {numbers(rest, 4)}" if rest else ""
    way = f"from instance {action.source} to {action.target}"
    if action.source == action.target:
        way = f"on instance {action.source}"
    text = f"{_name(action)}{_extent(record.id, action)}"
    yield StoryLine(
        now_ns,
        f"its {text} ({size(action.size_bytes)}{beside}) {_verb(action, 'is', 'are')} sent {way}",
        action.reason,
    )


def _extent(request: int, send: Send) -> str:
    """Return the layers and tokens, if the transfer names them."""
    span = "" if send.layers is None or send.what != "kv" else f" of {layer_range(send.layers)}"
    if send.positions:
        first, last = send.positions[send.requests.index(request)]
        span += f"{',' if span else ' of'} {tokens(first, last - first)}"
    return span


def _name(send: Send) -> str:
    return "KV" if send.what == "kv" else send.what


def _verb(send: Send, single: str, several: str) -> str:
    return single if send.what == "kv" else several


def _stop_send(record: RequestRecord, state: ClusterState, now_ns: int, action: StopSend) -> Lines:
    if action.transfer in record.transfers:
        name = _name(record.transfers[action.transfer][1])
        yield StoryLine(now_ns, f"the transfer of its {name} is to stop", action.reason)


def _join_batch(record: RequestRecord, state: ClusterState, now_ns: int, action: JoinBatch) -> Lines:
    if record.id not in action.requests or record.mine is None:
        return
    if record.mine.stage == "joining":
        record.enter("decoding", now_ns)
        text = f"joins the run in progress on instance {action.replica}, from its next step on"
    else:
        decodes(record, now_ns)
        text = f"decodes on instance {action.replica} from its next step on"
    yield StoryLine(now_ns, text, action.reason)


def _ignore(record: RequestRecord, state: ClusterState, now_ns: int, fact: Any) -> Lines:
    """Ignore a fact about instances; its effects on the request have their own facts."""
    return iter(())


Teller = Callable[[RequestRecord, ClusterState, int, Any], Lines]
EVENTS: Final[Mapping[type, Teller]] = {
    Arrived: _arrived,
    Ran: _ran,
    Lost: _lost,
    Disconnected: _disconnected,
    Closing: _closing,
    Sent: _sent,
    **dict.fromkeys((LossNotice, LostHost, LostSsd, LostLink, SchedulerLost, SchedulerBack), _ignore),
    **dict.fromkeys((Opened, Loaded, LoadStopped, Woke), _ignore),
    **OF_REQUEST,
}
ACTIONS: Final[Mapping[type, Teller]] = {
    Assign: _assign,
    Reject: _reject,
    Fail: _fail,
    Abort: _abort,
    Run: _run,
    Interrupt: _interrupt,
    Preempt: _preempt,
    Detach: leaves_batch,
    Migrate: migrates,
    Send: _send,
    StopSend: _stop_send,
    JoinBatch: _join_batch,
    AllocateGpus: _ignore,
    SwitchRole: _ignore,
    ReleaseGpus: _ignore,
    Load: _ignore,
    StopLoad: _ignore,
    Wake: _ignore,
}
