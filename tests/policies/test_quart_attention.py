"""The smoother's graph attention: coefficients by hand, theta, torch and plain numbers agree, it learns."""

from dataclasses import replace
from math import isclose, log1p

import pytest
from hypothesis import given
from hypothesis import strategies as st

from policies.quart.attention import (
    FEATURES,
    HIDDEN,
    WIDTH,
    GraphAttention,
    Node,
    Weights,
    attention,
    neighbours,
    nodes_of,
    predicted,
    trained,
)
from policies.quart.attention_weights import WEIGHTS
from policies.quart.cv import propagated
from policies.quart.settings import SmootherSettings
from policies.quart.smoother import Smoother
from tests.worlds.pipeline_views import pipeline, stage

ZERO = Weights(
    transform=((0.0,) * FEATURES,) * WIDTH,
    own=(0.0,) * WIDTH,
    other=(0.0,) * WIDTH,
    theta=0.0,
    hidden=((0.0,) * WIDTH,) * HIDDEN,
    hidden_bias=(0.0,) * HIDDEN,
    output=(0.0,) * HIDDEN,
    output_bias=0.0,
)
STAGES = [stage(index, 1 + index % 2, arrival_per_s=8.0) for index in range(5)]


def test_neighbours_of_a_chain_and_itself() -> None:
    assert [neighbours(index, 3) for index in range(3)] == [(0, 1), (0, 1, 2), (1, 2)]


def test_without_weights_it_is_whitts_formula() -> None:
    view = pipeline([replace(one, arrival_cv=2.0) for one in STAGES])
    assert GraphAttention(ZERO).predict(view) == pytest.approx(propagated(2.0, STAGES))


def test_theta_turns_to_the_burstier_neighbour() -> None:
    """And as printed, CV_i in every term, it would turn nowhere: all coefficients would be alike."""
    nodes = nodes_of(4.0, STAGES)
    even, _ = attention(ZERO, 2, nodes)
    turned, _ = attention(replace(ZERO, theta=3.0), 2, nodes)
    assert even == pytest.approx((1 / 3,) * 3)
    logs = [log1p(nodes[one].whitt_cv) for one in (1, 2, 3)]
    assert turned.index(max(turned)) == logs.index(max(logs))
    assert max(turned) > 0.4


@given(st.floats(-5, 5), st.floats(0.05, 8), st.integers(1, 8))
def test_coefficients_are_shares(theta: float, cv: float, count: int) -> None:
    nodes = nodes_of(cv, STAGES[: max(count, 1)])
    for index in range(len(nodes)):
        shares, mixed = attention(replace(ZERO, theta=theta), index, nodes)
        assert isclose(sum(shares), 1) and len(mixed) == WIDTH


def made_up(cv: float, count: int) -> tuple[tuple[Node, ...], list[float]]:
    """A pipeline whose CVs are 0.8 of Whitt's at busy stages of a bursty one."""
    nodes = nodes_of(cv, [stage(one, arrival_per_s=3.0 + one % 3 * 3) for one in range(count)])
    return nodes, [one.whitt_cv * (0.8 if one.features[2] > 0.5 else 1.0) for one in nodes]


@pytest.mark.real
def test_it_learns_what_whitt_misses() -> None:
    """From made-up pipelines; three stages or eight, it has seen none of those that it is asked for."""
    known = [made_up(0.2 * one, 3 + one % 6) for one in range(1, 31)]
    pipelines, measured = [nodes for nodes, _ in known], [cvs for _, cvs in known]
    assert trained(pipelines, measured, steps=2) == trained(pipelines, measured, steps=2)
    weights = trained(pipelines, measured, steps=80, rate=0.05)
    for cv in (0.5, 3.1):
        nodes, cvs = made_up(cv, 7)
        found = predicted(weights, nodes)
        wrong = [abs(one / real - 1) for one, real in zip(found, cvs, strict=True)]
        whitt = [abs(node.whitt_cv / real - 1) for node, real in zip(nodes, cvs, strict=True)]
        assert sum(wrong) < 0.7 * sum(whitt)


def test_the_weights_that_are_here_know_what_whitt_misses() -> None:
    """A busy stage smooths very bursty arrivals more than Whitt says; a simulated queue had 1.40 (CV 4)."""
    view = pipeline([stage(one, arrival_cv=4.0, arrival_per_s=9.0) for one in range(2)])
    learnt, whitt = GraphAttention(WEIGHTS).predict(view)[1], propagated(4.0, view.stages)[1]
    assert whitt == pytest.approx(1.75, abs=0.01)
    assert abs(learnt - 1.40) < abs(whitt - 1.40)


def test_a_smoother_takes_it() -> None:
    view = pipeline([stage(0, 2, arrival_cv=0.1), stage(1, 7), stage(2, 2)])
    now = SmootherSettings(hold_s=0.0)
    learnt = Smoother(GraphAttention(ZERO), now).smooth(view)
    assert learnt == Smoother(settings=now).smooth(view)
