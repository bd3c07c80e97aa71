"""Reports of engines that run by themselves, in the stories of requests and instances."""

from collections.abc import Callable, Mapping
from typing import Any, Final

from servetwin.story.books import Books
from servetwin.story.line import Lines, StoryLine, count
from servetwin.story.tale import Tale, stages
from serving.vocabulary.events import Dropped, Observed, Streamed


def _streamed(tale: Tale, books: Books, now_ns: int, event: Streamed) -> Lines:
    """Report the first tokens since the request was sent there, and its end; only count other tokens."""
    mine, tokens = tale.mine, dict(event.tokens).get(tale.id, 0)
    if mine is None or (not tokens and tale.id not in event.finished):
        return
    if tokens and tale.stage != "decoding":
        tale.enter("decoding", now_ns)
        yield StoryLine(now_ns, f"has {count(mine.made, 'token')}, the last from server {event.replica}")
    if tale.id in event.finished:
        yield StoryLine(now_ns, f"finishes on server {event.replica} with {count(mine.made, 'token')}")
        yield from stages(tale, now_ns)
        tale.over = True


def _dropped(tale: Tale, books: Books, now_ns: int, event: Dropped) -> Lines:
    if event.request == tale.id:
        what = "refuses it" if event.refused else "lost the connection with it"
        tale.enter("waiting", now_ns)
        yield StoryLine(now_ns, f"server {event.replica} {what}", event.cause)


def _nothing(tale: Tale, books: Books, now_ns: int, event: Observed) -> Lines:
    return iter(())


def _tokens(life: Any, books: Books, now_ns: int, event: Streamed) -> Lines:
    if event.replica == life.id:
        for name, amount in (
            ("token", sum(tokens for _, tokens in event.tokens)),
            ("finished request", len(event.finished)),
        ):
            if amount:
                life.work.add(name, amount)
    return iter(())


def _told(life: Any, books: Books, now_ns: int, event: Observed) -> Lines:
    if event.replica == life.id:
        life.work.add("look at its metrics")
    return iter(())


def _refused(life: Any, books: Books, now_ns: int, event: Dropped) -> Lines:
    if event.replica == life.id:
        life.work.add("request without an answer")
    return iter(())


OF_REQUEST: Final[Mapping[type, Callable[[Tale, Books, int, Any], Lines]]] = {
    Streamed: _streamed,
    Dropped: _dropped,
    Observed: _nothing,
}
OF_INSTANCE: Final[Mapping[type, Callable[[Any, Books, int, Any], Lines]]] = {
    Streamed: _tokens,
    Dropped: _refused,
    Observed: _told,
}
