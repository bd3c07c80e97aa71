"""Messages come out of a frame as they went in, and nothing else comes out."""

import json
from typing import Any, NamedTuple, get_args

import pytest

from realexec.wire import messages
from realexec.wire.codec import Codec
from realexec.wire.frames import ProtocolError, encoded, head_of, lengths
from realexec.wire.messages import (
    CODEC,
    PACKED,
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

STEPS = StepsDone(3, 2**61, (2**61 + 1, 2**61 + 5), {7: (1, 2**31 - 1), 0: (5,), 9: ()}, (7,), True, (0, 2))
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
    RunRounds(3, 1, ((0, 0, 1), (4, 1, 3)), ((7, 0, 3),), ((8, 42),), 1 << 62),
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
    from realexec.wire.frames import Limits

    return Limits()


def in_tuples(value: Any) -> Any:
    if isinstance(value, list | tuple):
        return tuple(in_tuples(part) for part in value)
    return {key: in_tuples(part) for key, part in value.items()} if isinstance(value, dict) else value


@pytest.mark.parametrize("message", EXAMPLES, ids=lambda message: type(message).__name__)
def test_a_message_comes_as_it_was_sent(message: Any) -> None:
    came = CODEC.decode(*through_a_frame(*CODEC.encode(message)))
    assert type(came) is type(message)
    assert came == (type(message)(*map(in_tuples, message)) if isinstance(message, Located) else message)
    if isinstance(message, StepsDone):
        assert list(came.tokens) == list(message.tokens), "in the same order"


def test_every_message_of_the_unions_is_known() -> None:
    union = {*get_args(messages.ToWorker), *get_args(messages.FromWorker), messages.BetweenWorkers}
    assert union == {
        one for one in vars(messages).values() if hasattr(one, "_fields") and one is not NamedTuple
    }
    assert set(PACKED) <= union


def test_token_ids_are_no_part_of_the_head() -> None:
    head, payload = CODEC.encode(Hold(5, tuple(range(100_000, 104_000)), (), 12))
    assert len(json.dumps(head)) < 100 and len(payload) == 16_000


def changed(message: Any, **fields: Any) -> tuple[dict[str, Any], bytes]:
    """As it is sent, with other fields (left out: ...)."""
    head, payload = CODEC.encode(message)
    sent = dict(zip(message._fields, json.loads(json.dumps(head["fields"])))) | fields
    return {**head, "fields": [value for value in sent.values() if value is not ...]}, payload


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
    "fields of another kind": ({"type": "Died", "fields": {"0": "x"}}, b""),
    "no fields": ({"type": "Died"}, b""),
    "a payload too many": ({"type": "Died", "fields": ["x"]}, b"0000"),
    "short tuple": changed(RunSteps(1, (), True, 4, False), chunks=[[1, 2]]),
    "no list": changed(RunSteps(1, (), True, 4, False), chunks={"0": 1}),
    "none of a union": changed(RunSteps(1, (), True, 4, False), layers="all"),
    "more numbers than came": changed(Hold(1, (1, 2), (), 3), prompt=3),
    "fewer numbers than came": changed(Hold(1, (1, 2), (), 3), prompt=1),
    "negative length": changed(Hold(1, (1, 2), (), 3), prompt=-1),
    "length of another kind": changed(Hold(1, (1, 2), (), 3), prompt=[2]),
    "huge length": changed(Hold(1, (1, 2), (), 3), prompt=1 << 70),
    "rows of another kind": changed(STEPS, tokens=7),
    "row without a key": changed(STEPS, tokens=[[2]]),
    "row with a list for a key": changed(STEPS, tokens=[[[7], 2], [0, 1], [9, 0]]),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_no_message_is_refused(name: str) -> None:
    head, payload = REFUSED[name]
    with pytest.raises(ProtocolError, match="a frame is no message"):
        CODEC.decode(dict(head), payload)


def test_a_field_that_no_frame_can_hold_is_refused_when_the_table_is_made() -> None:
    class Odd(NamedTuple):
        what: set[int]

    with pytest.raises(TypeError, match="no message may have a field of set"):
        Codec([Odd], {})
