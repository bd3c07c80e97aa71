"""Llumnix v2's adaptive prefill and decode, by hand."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from policies.llumnix.adaptive_pd import AdaptivePd, BinPacking
from serving.protocols.migration import paired
from serving.protocols.splitting import decode_place, prefills_again
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.estimates import Estimates, ModelEstimates
from serving.vocabulary.request import Request

# A step takes 10 ms and 1 ms more for every request of 100 tokens, until 100 of them take 110 ms.
KNOWN = ModelEstimates(
    model="m",
    prefill_tokens_per_s=1000.0,
    decode_step_s=0.11,
    decode_sequences=100,
    decode_context_tokens=100,
    kv_tokens=100_000,
    decode_first_s=0.01,
)
ESTIMATES = Estimates((KNOWN,), "made up")
REQUEST = Request(0, 0, 100, 50, "m")


@dataclass
class Split:
    """Instances; of decode instances the number of requests of 100 prompt tokens each."""

    prefill: Sequence[int] = (0, 1, 2)
    held: dict[int, int] = field(default_factory=lambda: {3: 0})
    receiving: Sequence[int] = ()
    full: Sequence[int] = ()
    prompts: dict[int, int] = field(default_factory=dict)
    turning: Sequence[int] = ()
    backlog_tokens: int = 100
    model: str = "m"

    @property
    def decode(self) -> list[int]:
        return sorted(self.held)

    def prompt_tokens(self, replica: int) -> int:
        return self.prompts.get(replica, 0)

    def decoding(self, replica: int) -> tuple[int, int]:
        return self.held[replica], 100 * self.held[replica]

    def receives(self, replica: int) -> bool:
        return replica in self.receiving

    def has_room(self, replica: int, request: Request) -> bool:
        return replica not in self.full


def place(view: Split, requests: int = 1, policy: AdaptivePd | None = None) -> int | None:
    answer = decode_place(policy or adaptive(), [REQUEST] * requests, view)
    return None if answer is None else answer[0]


def adaptive() -> AdaptivePd:
    return AdaptivePd(estimates=ESTIMATES, tpot_ms=50.0, output_tokens=0)


def test_the_prediction_is_a_line_through_the_known_steps() -> None:
    assert KNOWN.step_s(0, 0) == pytest.approx(0.01)
    assert KNOWN.step_s(32, 3200) == pytest.approx(0.042)
    assert KNOWN.step_s(100, 0) == pytest.approx(0.06)  # half by requests, half by tokens


@pytest.mark.parametrize(
    ("view", "requests", "goes_to"),
    [
        (Split(held={3: 5, 4: 20, 5: 31}), 1, 5),  # 42 ms of 42.5
        (Split(held={3: 5, 4: 20, 5: 32}), 1, 4),  # 43 ms would be too many
        (Split(held={3: 5, 4: 20, 5: 31}), 2, 4),
        (Split(held={3: 5, 4: 20, 5: 31}, full=(5,)), 1, 4),  # no memory there
        (Split(held={3: 5, 4: 20, 5: 31}, receiving=(5,)), 1, 4),
        (Split(held={3: 40, 4: 33}, prompts={1: 500, 2: 400}), 1, 2),  # fewer prompt tokens than 1 has
        (Split(held={3: 40, 4: 33}, prompts={1: 400, 2: 400}), 1, 1),  # 0 is reserved for prefill
        (Split(held={3: 40, 4: 33}, prefill=(0,)), 1, 4),  # none turns: the least of those too slow
        (Split(held={3: 40, 4: 33}, turning=(6,)), 1, None),  # one is about to decode
        (Split(held={3: 40, 4: 33}, receiving=(4,)), 1, None),
        (Split(held={3: 40}, full=(3,), prefill=(0,)), 1, None),  # memory is full everywhere
        (Split(held={}, prefill=(0,)), 1, 0),  # nobody decodes, so the reserved one does
    ],
)
def test_decode_goes_to_the_fullest_that_keeps_the_objective(
    view: Split, requests: int, goes_to: int | None
) -> None:
    assert place(view, requests) == goes_to


def test_an_empty_decode_instance_prefills_again_except_the_reserved_one() -> None:
    policy = adaptive()
    assert prefills_again(policy, 3, Split(held={3: 0, 4: 0})) is None
    assert prefills_again(policy, 4, Split(held={3: 0, 4: 0})) == "it decodes nothing"
    assert prefills_again(policy, 3, Split(held={1: 0, 3: 0})) is None  # 3 stays the reserved one
    assert prefills_again(policy, 1, Split(held={1: 0})) is None  # 3 is lost, so 1 is the next
    assert prefills_again(policy, 1, Split(held={1: 0}, prefill=())) == "no instance prefills"


@dataclass
class Decoding:
    """Decode instances of so many requests of 100 prompt tokens each; a request needs 200 tokens."""

    held: dict[int, int]
    model: str = "m"
    busy: Sequence[int] = ()
    room_tokens: int = 100_000
    leaving: Sequence[int] = ()
    loading: Sequence[int] = ()

    @property
    def taking(self) -> list[int]:
        return sorted(self.held)

    def engaged(self, replica: int) -> bool:
        return replica in self.busy

    def load(self, replica: int, signal: str) -> int:
        return self.held[replica] * (1 if signal == "outstanding" else 200)

    def prompt_tokens(self, replica: int) -> int:
        return 100 * self.held[replica]

    def kv_demands(self, replica: int) -> Mapping[int, int]:
        return dict.fromkeys(range(self.held[replica]), 200)

    def kv_tokens(self, replica: int) -> int:
        return self.room_tokens


def pairs(view: Decoding) -> list[tuple[int, int]]:
    policy: Any = BinPacking(estimates=ESTIMATES, tpot_ms=50.0, output_tokens=0)
    return [(one.source, one.destination) for one in paired(policy, view)]  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("view", "moves"),
    [
        (Decoding({0: 36, 1: 39, 2: 30}), [(1, 0)]),  # 49 ms: above 47.5; 0 would have 47 with it
        (Decoding({0: 36, 1: 37, 2: 30}), []),  # 47 ms, and nobody is below 30
        (Decoding({0: 36, 1: 45, 2: 42}), [(1, 0)]),  # to 47 ms; mitigation may go up to the objective
        (Decoding({0: 10, 1: 15, 2: 5}), [(2, 1)]),  # the emptiest gives to the fullest
        (Decoding({0: 10, 1: 31, 2: 5}), [(2, 1)]),  # 42 ms with it
        (Decoding({0: 10, 1: 32, 2: 5}), [(2, 0)]),  # 43 ms would be too many
        (Decoding({0: 5, 1: 15, 2: 0}), []),  # 0 is the reserved one, and 1 the fullest
        (Decoding({0: 36, 1: 45, 2: 30, 3: 5, 4: 10}), [(1, 0), (3, 2)]),  # one pair of each kind
        (Decoding({0: 10, 1: 15, 2: 5}, busy=(2,)), []),  # it migrates already
        (Decoding({0: 10, 1: 15, 2: 5}, room_tokens=3100), [(2, 0)]),  # 1 has no memory for it
    ],
)
def test_mitigation_and_consolidation(view: Decoding, moves: list[tuple[int, int]]) -> None:
    assert pairs(view) == moves


def test_parameters_that_cannot_be() -> None:
    for wrong in ({"tpot_ms": 0}, {"dispatch_share": 1.1}, {"output_tokens": -1}):
        with pytest.raises(ValueError, match="must be"):
            AdaptivePd(estimates=ESTIMATES, **wrong)
    with pytest.raises(ValueError, match="in this order"):
        BinPacking(estimates=ESTIMATES, floor_share=0.9)


@pytest.mark.parametrize("answer", [(9, "why"), (3, ""), "3", (4, "why")])
def test_a_wrong_answer_is_told_as_the_policys(answer: object) -> None:
    class Says:
        def decode_place(self, requests: Sequence[Request], view: Split) -> object:
            return answer

        def prefills_again(self, replica: int, view: Split) -> object:
            return ""

    with pytest.raises(PolicyError, match="Says, method decode_place"):
        decode_place(Says(), [REQUEST], Split(held={3: 1, 4: 1}, receiving=(4,)))
    with pytest.raises(PolicyError, match="Says, method prefills_again"):
        prefills_again(Says(), 3, Split())
