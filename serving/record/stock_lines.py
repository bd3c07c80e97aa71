"""Events of replicas whose engines schedule by themselves, as journal text and back."""

from collections.abc import Callable, Mapping, Sequence
from json.encoder import encode_basestring_ascii as quoted
from typing import Any, Final

from serving.vocabulary.events import Dropped, Event, Observed, Streamed


def _streamed(event: Streamed) -> str:
    tokens = ",".join([f"[{request},{count}]" for request, count in event.tokens])
    return f'["streamed",{event.replica},[{tokens}],[{",".join(map(str, event.finished))}]]'


def _dropped(event: Dropped) -> str:
    refused = "true" if event.refused else "false"
    return f'["dropped",{event.replica},{event.request},{refused},{quoted(event.cause)}]'


def _observed(event: Observed) -> str:
    load = f"{event.as_of_ns},{event.running},{event.waiting}"
    memory = f"{event.used_blocks},{event.total_blocks},{event.block_tokens},{event.preemptions}"
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
