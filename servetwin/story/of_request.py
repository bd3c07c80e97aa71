"""The story of one request: a function per kind of event and of action."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any, Final

from servetwin.story.books import Books
from servetwin.story.line import Lines, StoryLine, count, layer_range, numbers, seconds, size, tokens
from servetwin.story.moments import Moment
from servetwin.story.of_stock import OF_REQUEST
from servetwin.story.tale import FIRST_STEPS, Tale, count_report, decoded, decodes, stages, unfinished
from serving.vocabulary.actions import (
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
    Loaded,
    LoadStopped,
    LossNotice,
    Lost,
    LostHost,
    LostLink,
    LostSsd,
    Opened,
    Ran,
    Sent,
    Woke,
)

# Lines about migrations in the stories of requests and instances.

_SAID = {
    "begun": "a migration from instance {0} to {1} begins",
    "committed": "its migration from instance {0} to {1} is complete",
    "aborted": "its migration from instance {0} to {1} is aborted",
}


def migrates(tale: Tale, books: Books, now_ns: int, action: Migrate) -> Lines:
    """Report the phase of this request's migration."""
    if action.request == tale.id:
        yield StoryLine(now_ns, _SAID[action.phase].format(action.source, action.target), action.reason)


def leaves_batch(tale: Tale, books: Books, now_ns: int, action: Detach) -> Lines:
    """Report that the request left its batch; it decodes again at its destination or at its source."""
    if action.request == tale.id and tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        tale.enter("migration", now_ns)
        what = f"leaves the batch of instance {action.replica} with {count(tale.mine.made, 'token')}"
        yield StoryLine(now_ns, what, action.reason)


def request_story(moments: Iterator[Moment], tale: Tale) -> Lines:
    """Yield the request's lines from its arrival until it ends; reads no further."""
    books, now_ns = Books(), 0
    for now_ns, event, actions in moments:
        books.happens(now_ns, event)
        yield from EVENTS[type(event)](tale, books, now_ns, event)
        for action in actions:
            books.follows(now_ns, action)
            yield from ACTIONS[type(action)](tale, books, now_ns, action)
        if tale.over:
            return
    if tale.mine is not None:
        yield from unfinished(tale, books, now_ns)


def _arrived(tale: Tale, books: Books, now_ns: int, event: Arrived) -> Lines:
    request = event.request
    if request.id != tale.id:
        return
    tale.mine, tale.arrived_ns = books.requests[tale.id], now_ns
    tale.enter("waiting", now_ns)
    prompt, most = count(request.prompt_tokens, "prompt token"), count(request.max_new_tokens, "new one")
    more = f", priority {request.priority}" if request.priority else ""
    if request.reserved_tokens:
        more += f", room is kept for {request.reserved_tokens:,}"
    if request.shared_prefix:
        more += f", its first {request.shared_prefix[-1][1]:,} tokens occurred before"
    yield StoryLine(now_ns, f"arrives for {request.model}: {prompt}, at most {most}{more}")


def _ran(tale: Tale, books: Books, now_ns: int, event: Ran) -> Lines:
    report = books.report
    if tale.mine is None or report is None or report.run is None:
        return
    if any(request == tale.id for request, _, _ in report.computed):
        yield from _computed(tale, books, now_ns, event)
    if tale.id in report.joined:
        decodes(tale, now_ns)
        before = report.joined[tale.id]
        yield StoryLine(now_ns, f"took part in all but {before:,} of the {event.steps:,} steps reported now")
    only_prompt = event.steps == 1 and tale.id in report.completed
    if tale.decoding is not None and tale.mine.replica == event.replica and event.steps and not only_prompt:
        beside = any(request != tale.id for request, _, _ in report.computed)
        count_report(tale.decoding, report.decoding - 1, beside)
    if tale.id in event.finished:
        yield from _finished(tale, books, now_ns, event)


def _computed(tale: Tale, books: Books, now_ns: int, event: Ran) -> Lines:
    """Report that a step, the first of the reported ones, computed tokens of the request's prompt."""
    report, mine = books.report, tale.mine
    assert report is not None and report.run is not None and mine is not None
    start, amount = next((start, amount) for request, start, amount in report.computed if request == tale.id)
    others = len(report.computed) - 1
    beside = f", with {count(others, 'other prompt')}" if others else ""
    took = seconds(now_ns - report.began_ns)
    if report.run.layers is not None:
        what = f"{layer_range(report.run.layers)} of its {count(amount, 'prompt token')}"
        yield StoryLine(now_ns, f"{what} ran on instance {event.replica} in {took}{beside}")
        return
    steps = f"{took}" if event.steps == 1 else f"the first of {event.steps:,} steps that took {took}"
    what = f"{tokens(start, amount)} computed on instance {event.replica} in {steps}{beside}"
    if tale.id not in report.completed:
        yield StoryLine(now_ns, what)
    elif report.run.hand_over:
        tale.enter("hand-over", now_ns)
        yield StoryLine(now_ns, f"{what}: the prompt is complete and waits there for its KV to be taken over")
    else:
        yield from _first_token(tale, now_ns, report.began_ns, event.steps)
        yield StoryLine(now_ns, f"{what}: complete, it decodes from the next step on")


def _first_token(tale: Tale, now_ns: int, began_ns: int, steps: int) -> Lines:
    """Report the first token, after the first step; of several steps only requests.parquet has its time."""
    first_ns = tale.first_token_ns
    if steps == 1:
        decodes(tale, now_ns)
    elif first_ns is not None and began_ns < first_ns < now_ns:
        decodes(tale, first_ns)
        yield StoryLine(first_ns, "first token", "from requests.parquet")
    else:
        tale.enter(FIRST_STEPS, began_ns)
        decodes(tale, now_ns, began_ns)


def _finished(tale: Tale, books: Books, now_ns: int, event: Ran) -> Lines:
    assert tale.mine is not None
    yield from decoded(tale, books, now_ns)
    made = tale.mine.made
    why = "that is max_new_tokens" if made >= tale.mine.request.max_new_tokens else ""
    yield StoryLine(now_ns, f"finishes on instance {event.replica} with {count(made, 'token')}", why)
    yield from stages(tale, now_ns)
    tale.over = True


def _lost(tale: Tale, books: Books, now_ns: int, event: Lost) -> Lines:
    if tale.mine is None:
        return
    ends = {end for _, send in tale.transfers.values() for end in (send.source, send.target)}
    if event.replica == tale.mine.replica or event.replica in ends:
        yield from decoded(tale, books, now_ns)
        yield StoryLine(now_ns, f"instance {event.replica} is lost with all it held", event.cause)


def _closing(tale: Tale, books: Books, now_ns: int, event: Closing) -> Lines:
    if tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        yield StoryLine(now_ns, "the run ends before the request does", event.cause)


def _sent(tale: Tale, books: Books, now_ns: int, event: Sent) -> Lines:
    began_ns, send = tale.transfers.pop(event.transfer, (0, None))
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


def _assign(tale: Tale, books: Books, now_ns: int, action: Assign) -> Lines:
    if action.request == tale.id:
        yield StoryLine(now_ns, f"is assigned to instance {action.replica}", action.reason)


def _reject(tale: Tale, books: Books, now_ns: int, action: Reject) -> Lines:
    if action.request == tale.id:
        tale.over = True
        yield StoryLine(now_ns, "is rejected", action.reason)


def _fail(tale: Tale, books: Books, now_ns: int, action: Fail) -> Lines:
    if action.request == tale.id and tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        tale.over = True
        yield StoryLine(now_ns, f"fails with {count(tale.mine.made, 'token')}", action.reason)
        yield from stages(tale, now_ns)


def _run(tale: Tale, books: Books, now_ns: int, action: Run) -> Lines:
    """Report the first step of the prompt, which ends a wait; later steps are reported when computed."""
    chunk = next((chunk for chunk in action.chunks if chunk[0] == tale.id), None)
    if chunk is None or tale.mine is None or tale.stage != "waiting":
        return
    waited_ns = tale.enter("prompt", now_ns)
    waited = f"has waited {seconds(waited_ns)}; " if waited_ns else ""
    found = (
        f"; the KV of {count(chunk[1], 'token')} was found again"
        if chunk[1] and action.layers is None
        else ""
    )
    whole = f"{tale.mine.known_tokens:,}"
    if tale.mine.made:
        whole += f" ({tale.mine.made:,} of them its own)"
    what = f"takes {tokens(chunk[1], chunk[2])} of {whole}{found}"
    if action.layers is not None:
        what = f"runs {layer_range(action.layers)} of its prompt"
    yield StoryLine(now_ns, f"{waited}a step on instance {action.replica} {what}", action.reason)


def _interrupt(tale: Tale, books: Books, now_ns: int, action: Interrupt) -> Lines:
    """Report an interrupt that this request's arrival caused."""
    if tale.arrived_ns == now_ns and tale.mine is not None and action.replica == tale.mine.replica:
        grace = (
            f" after {count(action.grace_steps, 'more step')}" if action.grace_steps else " at the next step"
        )
        yield StoryLine(now_ns, f"the run on instance {action.replica} is to end{grace}", action.reason)


def _preempt(tale: Tale, books: Books, now_ns: int, action: Preempt) -> Lines:
    if action.request == tale.id and tale.mine is not None:
        yield from decoded(tale, books, now_ns)
        tale.enter("waiting", now_ns)
        what = f"is preempted on instance {action.replica} with {count(tale.mine.made, 'token')}"
        kv = "goes to host memory" if action.swap_ns else "is dropped"
        yield StoryLine(now_ns, f"{what}; its KV {kv}, it waits there again", action.reason)


def _send(tale: Tale, books: Books, now_ns: int, action: Send) -> Lines:
    if tale.id not in action.requests:
        return
    tale.transfers[action.transfer] = now_ns, action
    if tale.stage == "prompt" and action.what == "kv":  # the last layer has run, if run layer by layer
        tale.enter("hand-over", now_ns)
    others = [one for one in action.requests if one != tale.id]
    beside = f", with that of {numbers(others, 4)}" if others else ""
    way = f"from instance {action.source} to {action.target}"
    if action.source == action.target:
        way = f"on instance {action.source}"
    what = f"{_name(action)}{_extent(tale.id, action)}"
    yield StoryLine(
        now_ns,
        f"its {what} ({size(action.size_bytes)}{beside}) {_verb(action, 'is', 'are')} sent {way}",
        action.reason,
    )


def _extent(request: int, send: Send) -> str:
    """Return the layers and tokens, if the transfer names them."""
    said = "" if send.layers is None or send.what != "kv" else f" of {layer_range(send.layers)}"
    if send.positions:
        first, last = send.positions[send.requests.index(request)]
        said += f"{',' if said else ' of'} {tokens(first, last - first)}"
    return said


def _name(send: Send) -> str:
    return "KV" if send.what == "kv" else send.what


def _verb(send: Send, one: str, several: str) -> str:
    return one if send.what == "kv" else several


def _stop_send(tale: Tale, books: Books, now_ns: int, action: StopSend) -> Lines:
    if action.transfer in tale.transfers:
        name = _name(tale.transfers[action.transfer][1])
        yield StoryLine(now_ns, f"the transfer of its {name} is to stop", action.reason)


def _adopt(tale: Tale, books: Books, now_ns: int, action: JoinBatch) -> Lines:
    if tale.id not in action.requests or tale.mine is None:
        return
    if tale.mine.stage == "joining":
        tale.enter("decoding", now_ns)
        what = f"joins the run in progress on instance {action.replica}, from its next step on"
    else:
        decodes(tale, now_ns)
        what = f"decodes on instance {action.replica} from its next step on"
    yield StoryLine(now_ns, what, action.reason)


def _nothing(tale: Tale, books: Books, now_ns: int, fact: Any) -> Lines:
    """Ignore a fact about instances; its effects on the request have their own facts."""
    return iter(())


Teller = Callable[[Tale, Books, int, Any], Lines]
EVENTS: Final[Mapping[type, Teller]] = {
    Arrived: _arrived,
    Ran: _ran,
    Lost: _lost,
    Closing: _closing,
    Sent: _sent,
    **dict.fromkeys((LossNotice, LostHost, LostSsd, LostLink, Opened, Loaded, LoadStopped, Woke), _nothing),
    **OF_REQUEST,
}
ACTIONS: Final[Mapping[type, Teller]] = {
    Assign: _assign,
    Reject: _reject,
    Fail: _fail,
    Run: _run,
    Interrupt: _interrupt,
    Preempt: _preempt,
    Detach: leaves_batch,
    Migrate: migrates,
    Send: _send,
    StopSend: _stop_send,
    JoinBatch: _adopt,
    AllocateGpus: _nothing,
    SwitchRole: _nothing,
    ReleaseGpus: _nothing,
    Load: _nothing,
    StopLoad: _nothing,
    Wake: _nothing,
}
