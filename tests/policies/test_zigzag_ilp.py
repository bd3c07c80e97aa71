"""ZigZag's ILP: the printed forms and what is wrong with them, exact optima as oracles, limits, refusals."""

import subprocess
import sys
from collections.abc import Sequence
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from experiments.blitzscale.registry import BLITZSCALE
from experiments.common.recipe import chosen
from policies.live.zigzag import Ilp
from policies.live.zigzag_ilp import Formulation, Solved, claimed_finish_ns, front_greedy, solve, stopped_with
from policies.live.zigzag_replay import ilp_free, replay
from serving.protocols.live import LiveView
from serving.vocabulary.errors import UserError

pytest.importorskip("ortools")

TO_THE_END = 60.0  # a deterministic limit that no case here reaches
HEAVY = (913, 1471, 620, 1903, 1120, 777, 1999, 1345, 541, 1688, 1011, 1827, 702, 1556, 939, 1260, 1733, 888)


def paper(batches: int) -> LiveView:
    return LiveView(7, 6, (1,) * batches)


def heavy() -> LiveView:
    """18 batches of an 8B-sized model, unlike each other: a solve that takes a while."""
    return LiveView(32, 5_417, HEAVY)


def keeps_executable(view: LiveView, split: Sequence[int]) -> bool:
    """C2 and the executable C3, read from their sentences; times are multiples of 1."""
    weights = view.batch_layer_ns
    on_source = [weight * (view.layers - layers) for weight, layers in zip(weights, split)]
    for batch in range(1, len(split)):
        start = weights[0] + sum(on_source[:batch])
        used = sum(weight * layers for weight, layers in zip(weights[: batch + 1], split))
        loaded_ns = (split[batch] - view.loaded) * view.layer_load_ns
        begun = max((weight - 1 for weight in weights[batch + 1 :]), default=0)
        if used > start - weights[0] or (
            split[batch] > view.loaded and loaded_ns + begun + weights[batch] > start
        ):
            return False
    return split[0] == 1


def least_claim(view: LiveView) -> int:
    """The sum of claims, least over every split within ``executable``."""
    choices = product(range(view.layers + 1), repeat=view.batches - 1)
    return min(
        sum(claimed_finish_ns(view, (1, *rest))) for rest in choices if keeps_executable(view, (1, *rest))
    )


def least_claim_of_equal(layers: int, load: int, batches: int) -> int:
    """The same for layers of one tick, by the layers on the target so far."""
    totals = {1: layers}  # layers on the target -> least sum of claims
    for batch in range(1, batches):
        following: dict[int, int] = {}
        for on_target, total in totals.items():
            source = batch * layers - on_target
            for more in range(min(layers, source - on_target, source // load + 1) + 1):
                claimed = 1 + (batch + 1) * layers - on_target - more
                known = following.get(on_target + more)
                if known is None or total + claimed < known:
                    following[on_target + more] = total + claimed
        totals = following
    return min(totals.values())


def means(found: Solved) -> tuple[Fraction, Fraction]:
    assert found.schedule is not None
    return found.claimed_mean_ns, found.schedule.mean_ns


# ---- the paper's program and its example


@pytest.mark.parametrize("batches", [6, 7])
def test_the_printed_program_has_no_solution(batches: int) -> None:
    found = solve(paper(batches), "paper", TO_THE_END)
    assert (found.status, found.schedule, found.trusted) == ("infeasible", None, False)


def test_the_shifted_program_promises_what_its_replay_refutes() -> None:
    found = solve(paper(7), "paper_shifted", TO_THE_END)
    claimed, replayed = means(found)
    assert found.status == "optimal"
    assert replayed > claimed
    assert not found.trusted


def test_with_t_1_free_and_left_out_the_claim_is_no_schedule() -> None:
    split = (3, 1, 2, 3, 4, 4, 5)
    printed = sum(claimed_ns - split[0] for claimed_ns in claimed_finish_ns(paper(7), split))
    assert (printed, sum(replay(paper(7), split).finish_ns)) == (122, 213)  # means 17.43 and 30.43


def test_the_shifted_program_is_only_worse_for_six() -> None:
    found = solve(paper(6), "paper_shifted", TO_THE_END)
    assert means(found) == (Fraction(39, 2), Fraction(39, 2))
    assert found.trusted
    assert ilp_free(paper(6)).mean_ns == 18


@pytest.mark.parametrize(("batches", "total"), [(6, 108), (7, 137)])
def test_the_executable_program_is_ilp_free_in_the_example(batches: int, total: int) -> None:
    found = solve(paper(batches), "executable", TO_THE_END)
    mean = Fraction(total, batches)
    assert means(found) == (mean, mean)
    assert ilp_free(paper(batches)).mean_ns == mean
    assert (found.status, found.gap, found.trusted) == ("optimal", 0.0, True)


@pytest.mark.parametrize(
    ("layers", "load", "batches"), [(32, 3, 12), (32, 6, 16), (32, 10, 20), (80, 3, 20), (80, 7, 12)]
)
def test_executable_and_ilp_free_agree_for_equal_batches(layers: int, load: int, batches: int) -> None:
    view = LiveView(layers, load, (1,) * batches)
    found = solve(view, "executable", TO_THE_END)
    assert (found.status, found.trusted) == ("optimal", True)
    assert sum(found.claimed_ns) == least_claim_of_equal(layers, load, batches)
    assert abs(means(found)[1] / ilp_free(view).mean_ns - 1) < Fraction(4, 1000)


# ---- oracles


@settings(max_examples=25)
@given(
    st.integers(2, 6),
    st.integers(1, 12),
    st.lists(st.integers(1, 9), min_size=1, max_size=4).map(tuple),
    st.integers(1, 2),
)
def test_no_split_that_is_executable_claims_less(
    layers: int, load: int, weights: tuple[int, ...], loaded: int
) -> None:
    view = LiveView(layers, load, (*weights, 1), loaded=loaded)  # the 1: times have no common divisor
    found = solve(view, "executable", TO_THE_END)
    assert found.schedule is not None
    assert keeps_executable(view, found.schedule.target_layers)
    assert sum(found.claimed_ns) == least_claim(view)


@given(
    st.integers(2, 40),
    st.integers(1, 300),
    st.lists(st.integers(1, 500), min_size=1, max_size=20).map(tuple),
    st.integers(1, 2),
)
def test_front_greedy_is_executable_and_gives_each_batch_all_it_can(
    layers: int, load: int, weights: tuple[int, ...], loaded: int
) -> None:
    view = LiveView(layers, load, (*weights, 1), loaded=loaded)
    split = front_greedy(view)
    assert keeps_executable(view, split)
    for batch in range(1, view.batches):
        more = (*split[:batch], split[batch] + 1)
        assert split[batch] == layers or not keeps_executable(view, more)


def test_front_greedy_is_the_optimum_in_the_example() -> None:
    assert front_greedy(paper(7)) == (1, 2, 2, 3, 4, 4, 5)


def test_a_heavy_batch_stays_with_the_source() -> None:
    """A layer of batch 2 takes longer than all of batch 1: no layer of it fits, and that is no conflict."""
    found = solve(LiveView(4, 2, (1, 50, 1)), "executable", TO_THE_END)
    assert found.schedule is not None
    assert found.schedule.target_layers[1] == 0
    assert found.trusted


def test_times_in_larger_units_give_the_same_split() -> None:
    found = solve(LiveView(7, 6_000_000, (1_000_000,) * 7), "executable", TO_THE_END)
    assert found.claimed_ns == tuple(1_000_000 * time for time in (7, 12, 17, 21, 24, 27, 29))


def test_unlike_batches_need_more_than_weighted_sums() -> None:
    """Layer 2 is there at 3, in time for batch 2 by the sums; but a layer of batch 3 runs from 2 to 4."""
    view, split = LiveView(4, 3, (1, 1, 2)), (1, 2, 1)
    assert view.layer_load_ns * (split[1] - 1) <= 1 * 3  # time to load <= the source's part of batch 1
    assert 1 * 1 + 1 * 2 <= 1 * 3 and 1 * 1 + 1 * 2 + 2 * 1 <= 1 * 3 + 1 * 2  # C2
    assert claimed_finish_ns(view, split) == (4, 6, 12)
    assert replay(view, split).finish_ns == (4, 7, 13)
    found = solve(view, "executable", TO_THE_END)
    assert found.trusted and found.schedule is not None
    assert found.schedule.target_layers != split


# ---- limits


def test_a_stopped_solve_gives_its_best_replay_and_an_honest_gap() -> None:
    stopped, done = solve(heavy(), deterministic_limit=1e-4), solve(heavy(), deterministic_limit=TO_THE_END)
    assert (stopped.status, done.status) == ("stopped", "optimal")
    assert stopped.trusted
    greedy = replay(heavy(), front_greedy(heavy()))
    assert means(stopped)[1] <= greedy.mean_ns
    assert means(done)[0] <= means(stopped)[0] <= means(done)[0] * Fraction(1 + stopped.gap + 1e-9)
    assert stopped.gap > 0 == done.gap
    assert stopped.deterministic_time < done.deterministic_time


def test_of_the_splits_met_the_best_replay_counts_and_the_gap_is_to_the_bound() -> None:
    """All on the source the claims sum to 196, with T_1 in each 203: the optimum, 137, saves 66."""
    best, worse, refuted = (1, 2, 2, 3, 4, 4, 5), (1, 1, 1, 1, 1, 1, 1), (1, 5, 2, 4, 4, 3, 4)
    found = stopped_with(paper(7), [worse, best, refuted], 66.0, 0.5)
    assert found.schedule is not None
    assert (found.schedule.target_layers, found.gap) == (best, 0.0)
    without = stopped_with(paper(7), [worse, refuted], 66.0, 0.5)
    assert without.schedule is not None and without.trusted
    assert without.schedule.target_layers == worse
    assert without.gap == pytest.approx(sum(without.claimed_ns) / 137 - 1)
    assert not stopped_with(paper(7), [refuted], 66.0, 0.5).trusted
    assert stopped_with(paper(7), [], 66.0, 0.5).schedule is None


def test_a_solve_stops_at_the_same_plan_every_time() -> None:
    first, again = (solve(heavy(), deterministic_limit=2e-3) for _ in range(2))
    assert first == again
    assert first.status == "stopped"


# ---- the scheduler


def test_the_scheduler_hands_on_a_split_that_replays_as_claimed() -> None:
    plan = Ilp().plan(paper(7))
    assert (plan.rule, plan.target_layers) == ("split", (1, 2, 2, 3, 4, 4, 5))
    assert plan.finish_ns == (7, 12, 17, 21, 24, 27, 29)
    assert plan.reason == "ILP optimal"


def test_the_scheduler_says_that_a_solve_was_stopped() -> None:
    plan = Ilp(deterministic_limit=1e-4).plan(heavy())
    assert plan.rule == "split"
    assert plan.reason.startswith("ILP stopped at a gap of 0.0")


@pytest.mark.parametrize(
    ("formulation", "refused", "reason"),
    [
        ("paper", 0, "ILP infeasible without a plan"),
        ("paper_shifted", 1, "ILP refused: claims a mean of 17 ns"),
    ],
)
def test_without_a_trusted_split_it_pulls(formulation: Formulation, refused: int, reason: str) -> None:
    scheduler = Ilp(formulation)
    plan = scheduler.plan(paper(7))
    assert (plan.rule, plan.finish_ns) == ("pull", ilp_free(paper(7)).finish_ns)
    assert plan.reason.startswith(reason)
    assert scheduler.refused == refused


def test_a_batch_that_comes_later_contradicts_the_claim() -> None:
    late = LiveView(7, 6, (1,) * 3, arrival_ns=(0, 0, 100))
    assert Ilp().plan(late).reason.startswith("ILP refused")


def test_no_program_for_no_batch() -> None:
    assert Ilp().plan(LiveView(7, 6, ())).rule == "pull"


def test_what_cannot_be_chosen_is_refused() -> None:
    with pytest.raises(
        ValueError, match="formulation 'exact' is unknown: write one of executable, paper, paper_shifted"
    ):
        Ilp("exact")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="formulation 'exact' is unknown"):
        solve(paper(2), "exact")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="limit above 0"):
        Ilp(deterministic_limit=0)


def test_without_or_tools_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    """Before anything is run: when the policy is made, and when a figure that needs it is asked for."""
    monkeypatch.setattr("policies.live.zigzag_ilp.find_spec", lambda _: None)
    words = "pip install 'servetwin\\[plan\\]', or choose system/live=ilp_free"
    with pytest.raises(UserError, match=words):
        Ilp()
    with pytest.raises(UserError, match=words):
        chosen("blitzscale", BLITZSCALE, ["fig15"])["fig15"].cases(1)


def test_a_solve_leaves_ctrl_c_to_the_run() -> None:
    """OR-tools would take SIGINT over with its first solve, and the process would end without a word."""
    program = (
        "import os, signal\n"
        "from policies.live.zigzag_ilp import solve\n"
        "from serving.protocols.live import LiveView\n"
        "solve(LiveView(7, 6, (1,) * 6))\n"
        "try:\n"
        "    os.kill(os.getpid(), signal.SIGINT)\n"
        "    print('nothing came')\n"
        "except KeyboardInterrupt:\n"
        "    print('stopped')\n"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout.strip()) == (0, "stopped"), done.stderr
