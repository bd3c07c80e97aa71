"""Messages come out of a frame as they went in, and nothing else comes out."""

from collections.abc import Iterator
from typing import Any, NamedTuple, get_args

import msgspec
import pytest

from realexec.wire import messages
from realexec.wire.frames import ProtocolError, encoded, head_of, lengths
from realexec.wire.messages import (
    CODEC,
    Died,
    Hold,
    Join,
    Located,
    Passed,
    Pull,
    RoundsDone,
    RunRounds,
    RunSteps,
    StepsDone,
    StopRounds,
    StopSteps,
)

STEPS = StepsDone(
    epoch=3,
    started_ns=2**61,
    ends_ns=(2**61 + 1, 2**61 + 5),
    tokens={7: (1, 2**31 - 1), 0: (5,), 9: ()},
    finished=(7,),
    running=True,
    joins=(0, 2),
)
EXAMPLES: list[Any] = [
    Hold(5, tuple(range(4000)), (), 12),
    Hold(0, (), (1, 2), 0),
    RunSteps(1, ((4, 0, 16), (5, 32, 1)), False, 1 << 40, True, True, (0, 12)),
    RunSteps(1, (), True, 4, False),
    StopSteps(1),
    Join((1, 2, 3), ((5, 6), (), (7,))),
    Join((), ()),
    Pull(4, 30, ("host", 1), "replica"),
    STEPS,
    STEPS._replace(tokens={}, ends_ns=(), joins=()),
    Located(3, ((0, 4096, 12), {"at": [1, (2, 3)]}, None, "x")),
    RunRounds(
        number=3, batch=1, path=((0, 0, 1), (4, 1, 3)), chunks=((7, 0, 3),), decode=((8, 42),), rounds=1 << 62
    ),
    StopRounds(),
    Passed(3, 1, (4096, 128), (8, 42), (1 << 40, 0, 7, 0)),
    RoundsDone(3, (2**61, 2**61 + 4), {8: (5, 6)}, (8,), ((9, 0, 7, 0), (8, 128, 7, 1))),
    Died('he said "no"\n\u20ac'),
]


def through_a_frame(head: dict[str, Any], payload: bytes) -> tuple[dict[str, Any], bytes]:
    frame = encoded(head, len(payload)) + payload
    head_bytes, payload_bytes = lengths(frame[:20], messages_limits())
    assert len(frame) == 20 + head_bytes + payload_bytes
    return head_of(frame[20 : 20 + head_bytes]), frame[20 + head_bytes :]


def messages_limits() -> Any:
    from realexec.wire.frames import FrameLimits

    return FrameLimits()


def in_lists(value: Any) -> Any:
    """What a field of any kind holds, as it arrives."""
    if isinstance(value, list | tuple):
        return [in_lists(part) for part in value]
    return {key: in_lists(part) for key, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent(message: Any) -> None:
    came = CODEC.decode(*through_a_frame(*CODEC.encode(message)))
    assert type(came) is type(message)
    if isinstance(message, Located):
        message = message._replace(places=tuple(in_lists(message.places)))
    assert came == message
    if isinstance(message, StepsDone):
        assert list(came.tokens) == list(message.tokens), "in the same order"


def test_every_message_of_the_unions_is_known() -> None:
    union = {*get_args(messages.ToWorker), *get_args(messages.FromWorker), messages.BetweenWorkers}
    assert union == {
        one for one in vars(messages).values() if hasattr(one, "_fields") and one is not NamedTuple
    }


def test_token_ids_take_few_bytes() -> None:
    head, payload = CODEC.encode(Hold(5, tuple(range(60_000, 64_000)), (), 12))
    assert len(head) == 1 and len(payload) < 12_020


def changed(message: Any, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """As it is sent, with other fields (left out: ...)."""
    sent = message._asdict() | fields
    values = [value for value in sent.values() if value is not ...]
    return {"type": type(message).__name__}, msgspec.msgpack.encode(values)


def cut(message: Any) -> Iterator[tuple[dict[str, Any], bytes]]:
    """Its frame with every shorter payload."""
    head, payload = CODEC.encode(message)
    yield from ((head, payload[:length]) for length in range(len(payload)))


REFUSED = {
    "unknown": ({"type": "Exec", "code": "1"}, b""),
    "no type": ({}, b""),
    "type of another kind": ({"type": ["Died"]}, b""),
    "missing field": changed(Died("x"), cause=...),
    "further field": changed(Died("x"), why="y"),
    "text for a number": changed(StopSteps(0), grace_steps="0"),
    "bool for a number": changed(StopSteps(0), grace_steps=True),
    "fraction for a number": changed(StopSteps(0), grace_steps=0.5),
    "number for a text": changed(Died("x"), cause=5),
    "fields of another kind": ({"type": "Died"}, msgspec.msgpack.encode({"0": "x"})),
    "no fields": ({"type": "Died"}, b""),
    "further bytes": ({"type": "Died"}, msgspec.msgpack.encode(["x"]) + b"0"),
    "text that is no UTF-8": ({"type": "Died"}, b"\x91\xa2\xff\xfe"),
    "too deep": ({"type": "Opened"}, b"\x91" * 200_000),
    "bytes of no kind": ({"type": "Died"}, b"\xc1"),
    "more numbers than there can be": ({"type": "Located"}, b"\x92\x01\xdd\xff\xff\xff\xff"),
    "short tuple": changed(RunSteps(1, (), True, 4, False), chunks=[[1, 2]]),
    "no list": changed(RunSteps(1, (), True, 4, False), chunks={"0": 1}),
    "none of a union": changed(RunSteps(1, (), True, 4, False), layers="all"),
    "number for a row": changed(Hold(1, (1, 2), (), 3), prompt=3),
    "text in a row": changed(Hold(1, (1, 2), (), 3), prompt=(1, "2")),
    "fraction in a row": changed(Hold(1, (1, 2), (), 3), prompt=(1, 0.5)),
    "rows of another kind": changed(STEPS, tokens=7),
    "a list for rows with keys": changed(STEPS, tokens=[[2]]),
    "row with a text for a key": changed(STEPS, tokens={"7": (1,)}),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_message_is_refused(name: str) -> None:
    head, payload = REFUSED[name]
    with pytest.raises(ProtocolError, match="a frame is no message"):
        CODEC.decode(dict(head), payload)


@pytest.mark.parametrize(
    "message", [STEPS, EXAMPLES[2], Died("x")], ids=lambda message: type(message).__name__
)
def test_a_message_that_ends_too_early_is_refused(message: Any) -> None:
    for head, payload in cut(message):
        with pytest.raises(ProtocolError, match="a frame is no message"):
            CODEC.decode(head, payload)
