"""Reports of engines that run by themselves, in the stories of requests and instances."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from servetwin.story.cluster_state import ClusterState
from servetwin.story.line import Lines, StoryLine, count
from servetwin.story.request_record import RequestRecord, stages
from serving.vocabulary.events import Dropped, Observed, Streamed


def _streamed(record: RequestRecord, state: ClusterState, now_ns: int, event: Streamed) -> Lines:
    """Report the first tokens since the request was sent there, and its end; only count other tokens."""
    mine, tokens = record.mine, dict(event.tokens).get(record.id, 0)
    if mine is None or (not tokens and record.id not in event.finished):
        return
    if tokens and record.stage != "decoding":
        record.enter("decoding", now_ns)
        yield StoryLine(now_ns, f"has {count(mine.made, 'token')}, the last from server {event.replica}")
    if record.id in event.finished:
        yield StoryLine(now_ns, f"finishes on server {event.replica} with {count(mine.made, 'token')}")
        yield from stages(record, now_ns)
        record.over = True


def _dropped(record: RequestRecord, state: ClusterState, now_ns: int, event: Dropped) -> Lines:
    if event.request == record.id:
        text = "refuses it" if event.refused else "lost the connection with it"
        record.enter("waiting", now_ns)
        yield StoryLine(now_ns, f"server {event.replica} {text}", event.cause)


def _ignore(record: RequestRecord, state: ClusterState, now_ns: int, event: Observed) -> Lines:
    return iter(())


def _tokens(record: Any, state: ClusterState, now_ns: int, event: Streamed) -> Lines:
    if event.replica == record.id:
        for name, amount in (
            ("token", sum(tokens for _, tokens in event.tokens)),
            ("finished request", len(event.finished)),
        ):
            if amount:
                record.work.add(name, amount)
    return iter(())


def _observed(record: Any, state: ClusterState, now_ns: int, event: Observed) -> Lines:
    if event.replica == record.id:
        record.work.add("look at its metrics")
    return iter(())


def _count_dropped(record: Any, state: ClusterState, now_ns: int, event: Dropped) -> Lines:
    if event.replica == record.id:
        record.work.add("request without an answer")
    return iter(())


OF_REQUEST: Final[Mapping[type, Callable[[RequestRecord, ClusterState, int, Any], Lines]]] = {
    Streamed: _streamed,
    Dropped: _dropped,
    Observed: _ignore,
}
OF_INSTANCE: Final[Mapping[type, Callable[[Any, ClusterState, int, Any], Lines]]] = {
    Streamed: _tokens,
    Dropped: _count_dropped,
    Observed: _observed,
}
