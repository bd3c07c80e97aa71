"""TokenScale's convertible decoders, by hand."""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from policies.dispatch import ConvertibleDecoders
from serving.protocols.splitting import chunk_tokens, converted
from serving.vocabulary.errors import PolicyError
from serving.vocabulary.request import Request
from tests.worlds.signals import ESTIMATES

# 1,000 prompt tokens/s and a decode step of 20 ms: a step of 100 ms has 80 prompt tokens, 800 a second.


@dataclass
class Split:
    """Instances of a split system with the prompt tokens that decode instances compute themselves."""

    backlog_tokens: int
    prefill: Sequence[int] = (0,)
    decode: Sequence[int] = (1, 2, 3)
    own: dict[int, int] = field(default_factory=dict)
    full: Sequence[int] = ()
    model: str = "m"

    def prompt_tokens(self, replica: int) -> int:
        return self.own.get(replica, 0)

    def has_room(self, replica: int, request: Request) -> bool:
        return replica not in self.full


def converts(view: Split, prompt: int = 200, **parameters: Any) -> int | None:
    """The decode instance that computes a prompt of so many tokens."""
    policy = ConvertibleDecoders(estimates=ESTIMATES, **parameters)
    answer = converted(policy, Request(0, 0, prompt, 50, "m"), view)
    return None if answer is None else answer[0]


def test_a_step_has_what_it_computes_within_the_objective() -> None:
    assert ConvertibleDecoders(estimates=ESTIMATES).chunk_tokens("m") == 80
    assert ConvertibleDecoders(estimates=ESTIMATES, tpot_ms=50).chunk_tokens("m") == 30
    assert ConvertibleDecoders(estimates=ESTIMATES, chunk_tokens=512).chunk_tokens("m") == 512


@pytest.mark.parametrize(
    ("view", "prompt", "goes_to"),
    [
        (Split(50), 200, None),  # 250 ms at the prefill instance, as the objective of so short a prompt says
        (Split(51), 100, None),
        (Split(151), 100, 1),  # 251 ms there, 125 ms in chunks
        (Split(400), 200, 1),  # 600 ms there, 250 ms in chunks
        (Split(400, prefill=(0, 4, 5)), 200, None),  # 200 ms
        (Split(400, own={1: 1}), 200, None),  # 251 ms in chunks as well: the prompt waits
        (Split(5000), 1200, 1),  # 1.5 s in chunks, within 2 s
        (Split(400, full=(1,)), 200, None),  # no memory for it
        (Split(400, decode=()), 200, None),
        (Split(0, prefill=()), 200, 1),  # nobody prefills
    ],
)
def test_a_prompt_goes_where_its_first_token_keeps_its_objective(
    view: Split, prompt: int, goes_to: int | None
) -> None:
    assert converts(view, prompt) == goes_to


def test_the_convertible_decoder_that_is_done_first_takes_it() -> None:
    busy = Split(1000, own={1: 40, 2: 10})
    assert converts(busy, 100, decoders=2) == 2  # the third is not convertible
    assert converts(busy, 100, decoders=3) == 3
    assert converts(busy, 100, decoders=0) is None
    assert converts(Split(1000, own={1: 300}), 100, ttft_ms=400) is None  # 500 ms


def test_parameters_that_cannot_be() -> None:
    for wrong in ({"decoders": -1}, {"tpot_ms": 0}, {"ttft_ms": -1}, {"chunk_tokens": 0}):
        with pytest.raises(ValueError, match="must be"):
            ConvertibleDecoders(estimates=ESTIMATES, **wrong)


@pytest.mark.parametrize("answer", [(9, "why"), (1, ""), "1", (2, "why")])
def test_a_wrong_answer_is_told_as_the_policys(answer: object) -> None:
    class Says:
        def convert(self, request: Request, view: Split) -> object:
            return answer

        def chunk_tokens(self, model: str) -> object:
            return 0

    with pytest.raises(PolicyError, match="Says, method convert"):
        converted(Says(), Request(0, 0, 200, 50, "m"), Split(400, full=(2,)))
    with pytest.raises(PolicyError, match="Says, method chunk_tokens"):
        chunk_tokens(Says(), "m")
