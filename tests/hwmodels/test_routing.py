"""Experts that tokens choose: closed forms against direct counts and against drawn choices."""

import random
from itertools import pairwise

import numpy as np
import pytest

from hwmodels.step_times.expert_times import Routing

QWEN = Routing(128, 8)


def test_uniform_activation_is_the_closed_form() -> None:
    for tokens in (1, 2, 7, 64):
        expected = 128 * (1 - (1 - 8 / 128) ** tokens)
        assert QWEN.activated(np.array([tokens]))[0] == pytest.approx(expected, rel=1e-12)


def test_one_token_activates_its_experts_and_many_tokens_all() -> None:
    for skew in (0.0, 0.5, 1.2):
        found = Routing(128, 8, skew).activated(np.array([1.0, 1e6]))
        assert found == pytest.approx([8.0, 128.0], rel=1e-6)


def test_every_token_takes_each_expert_of_a_dense_mixture() -> None:
    assert Routing(8, 8, 1.0).activated(np.array([1.0])) == pytest.approx([8.0])


def test_skew_activates_fewer_experts() -> None:
    tokens = np.array([2.0, 8.0, 32.0, 128.0])
    found = [Routing(128, 8, skew).activated(tokens) for skew in (0.0, 0.5, 1.0, 2.0)]
    assert all((less < more).all() for more, less in pairwise(found))


def test_shares_add_up_to_the_experts_of_a_token() -> None:
    for skew in (0.0, 0.3, 1.0, 3.0):
        shares = Routing(128, 8, skew).shares()
        assert shares.sum() == pytest.approx(8.0)
        assert (shares <= 1.0).all() and (np.diff(shares) <= 0.0).all()


def test_one_rank_has_the_whole_load() -> None:
    tokens = np.array([1.0, 50.0])
    assert (QWEN.slowest_load(tokens, 1) == 1.0).all()
    assert (QWEN.slowest_activated(tokens, 1) == QWEN.activated(tokens)).all()


def drawn(routing: Routing, tokens: int, ranks: int, rounds: int) -> tuple[float, float]:
    """(load of the busiest rank over the mean, most activated experts of a rank), means of drawn choices."""
    source = random.Random(16)
    loads, activated = [], []
    experts = list(range(routing.count))
    for _ in range(rounds):
        chosen = [expert for _ in range(tokens) for expert in source.sample(experts, routing.per_token)]
        held = routing.count // ranks
        per_rank = [0] * ranks
        for expert in chosen:
            per_rank[expert // held] += 1
        loads.append(max(per_rank) * ranks / len(chosen))
        activated.append(max(len({one for one in chosen if one // held == rank}) for rank in range(ranks)))
    return sum(loads) / rounds, sum(activated) / rounds


@pytest.mark.parametrize(("tokens", "ranks"), [(2, 2), (16, 2), (16, 4), (64, 8)])
def test_the_slowest_rank_is_that_of_drawn_choices(tokens: int, ranks: int) -> None:
    load, activated = drawn(QWEN, tokens, ranks, 400)
    at = np.array([float(tokens)])
    assert QWEN.slowest_load(at, ranks)[0] == pytest.approx(load, rel=0.03)
    assert QWEN.slowest_activated(at, ranks)[0] == pytest.approx(activated, rel=0.05)


def test_skewed_experts_make_the_slowest_rank_slower() -> None:
    tokens = np.array([256.0])
    found = [Routing(128, 8, skew).slowest_load(tokens, 4)[0] for skew in (0.0, 0.5, 1.0)]
    assert 1.0 < found[0] < found[1] < found[2] < 4.0


def test_no_rank_does_more_than_all_can_give_it() -> None:
    """Two experts a token, eight ranks of one expert: each token brings a rank at most one of its two."""
    found = Routing(8, 2, 3.0).slowest_load(np.array([1.0, 10.0, 1000.0]), 8)
    assert (found <= 4.0 + 1e-12).all()
