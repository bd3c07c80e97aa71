"""Seconds of experts: from a table to the tokens of a step, shared between GPUs and engines."""

from dataclasses import replace
from itertools import pairwise

import numpy as np
import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers.lattices import balanced_lattice, from_memory
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Lattice, OpTables, Profile, Stamp
from hwmodels.step_times.engine_overhead import EngineOverhead
from hwmodels.step_times.expert_error import group_ends_s
from hwmodels.step_times.expert_lines import fit_expert_lines
from hwmodels.step_times.expert_rows import ExpertRows, GroupTimes
from hwmodels.step_times.expert_times import ExpertTimes, Routing, at_points, experts_of, routed_times
from hwmodels.step_times.mixture_step import MixtureStepModel
from hwmodels.step_times.rows import FIXED_PER_S
from hwmodels.step_times.select import shared_experts, step_model

QWEN = load_llm("qwen3_30b_a3b")
ROUTING = Routing(128, 8)
NAN = float("nan")
# Reading an expert takes 6 us, a token 1 us, and starting 20 us.
TOKENS, EXPERTS = (1, 2, 4, 8, 16, 64, 1024), (8, 16, 32, 64, 128)
LATTICE = Lattice(
    (TOKENS, EXPERTS),
    np.array([[(20 + 6 * a + n) * 1e-6 if a <= 8 * n else NAN for a in EXPERTS] for n in TOKENS]),
)
WHOLE = ExpertTable(1, 1, LATTICE)
HALF = ExpertTable(1, 2, Lattice((TOKENS, tuple(a // 2 for a in EXPERTS)), LATTICE.values / 2))
EXCHANGE = Exchange(2, Curve((1, 1024), (30e-6, 130e-6)), "made up")
LINE = Lattice(((1, 8, 64), (16, 1024)), np.full((3, 2), 1e-3))


def profile(tp: int = 1, *tables: ExpertTable) -> Profile:
    stamp = Stamp(
        gpu="rtx_pro_6000",
        llm=QWEN.name,
        tp=tp,
        engine="vllm",
        engine_version="0.19.0",
        precision="bf16",
        source="made up",
        licence="MIT",
        files=(),
    )
    dense = Curve((1, 64, 1024), (1e-3, 1e-3, 2e-3))
    prefill = Lattice(((1, 64, 1024), (0, 1024)), np.full((3, 2), 1e-4))
    whole = OpTables(
        dense=dense,
        head=Curve((1, 64), (1e-4, 1e-4)),
        all_reduce=None,
        decode=(LINE,),
        prefill=(prefill,),
        mixed=(),
        skew=None,
    )
    return Profile(stamp, replace(whole, experts=tables, exchange=(EXCHANGE,)))


def test_a_step_reads_the_experts_that_its_tokens_are_expected_to_choose() -> None:
    times = routed_times(WHOLE, ROUTING)
    assert times.seconds(0) == 0.0
    for tokens in (4, 16, 64, 500):
        activated = ROUTING.activated(np.array([tokens]))[0]
        assert times.seconds(tokens) == pytest.approx((20 + 6 * activated + tokens) * 1e-6, rel=0.02)


def test_more_tokens_never_take_less() -> None:
    for table in (WHOLE, HALF):
        for skew in (0.0, 1.0):
            seconds = routed_times(table, Routing(128, 8, skew)).by_tokens()
            assert (np.diff(seconds) >= 0.0).all()


def test_a_table_answers_its_own_points() -> None:
    for row, tokens in enumerate(TOKENS):
        for column, experts in enumerate(EXPERTS):
            if experts <= 8 * tokens:
                found = at_points(LATTICE, np.array([float(tokens)]), np.array([float(experts)]))
                assert found[0] == pytest.approx(LATTICE.values[row, column], rel=1e-12)


def test_skew_makes_a_small_step_faster() -> None:
    uniform, skewed = routed_times(WHOLE, ROUTING), routed_times(WHOLE, Routing(128, 8, 1.0))
    assert skewed.seconds(16) < 0.9 * uniform.seconds(16)


def test_the_slowest_rank_is_slower_than_an_even_half() -> None:
    """A rank of two with exactly half of the experts and tokens, against the expected slower one."""
    even = at_points(HALF.lattice, np.array([16.0]), ROUTING.activated(np.array([16.0])) / 2)[0]
    assert routed_times(HALF, ROUTING).seconds(16) > 1.01 * even


def test_lines_are_fitted_through_what_lines_made() -> None:
    """20 us to start, 6 us an expert, 1 us a token, and no faster than 40 us and 3 us a token."""
    tokens = np.array([1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096])
    most = np.minimum(8 * tokens, 128)
    seconds = np.maximum(20.0 + 6.0 * most + tokens, 40.0 + 3.0 * tokens) * 1e-6
    values = np.full((len(tokens), len(EXPERTS)), NAN)
    values[np.arange(len(tokens)), [EXPERTS.index(count) for count in most]] = seconds
    found = fit_expert_lines(ExpertTable(1, 1, Lattice((tuple(tokens.tolist()), EXPERTS), values)))
    assert found.seconds(tokens, most) == pytest.approx(seconds, rel=0.01)
    assert found.per_expert_s == pytest.approx(6e-6, rel=0.05)


@pytest.mark.parametrize(("gpu", "tp"), [("h100", 1), ("h200", 2), ("rtx_pro_6000", 4)])
def test_the_catalogue_has_lines_of_a_mixture(gpu: str, tp: int) -> None:
    """Without a profile; a token more never takes less, and tp ranks are the ones of the entry."""
    model = step_model("auto", load_gpu(gpu), QWEN, tp=tp)
    seconds = [model.dense_s(0, 0, n) for n in range(1, 1024)]
    assert all(more >= less - 1e-12 for less, more in pairwise(seconds))
    assert "experts: tokens choose 8 of 128" in model.source
    # A token reads 8 of 128 experts, so that one sequence is far from a sixteenth of 64's time.
    assert seconds[63] > 2.0 * seconds[0]
    with pytest.raises(HardwareError, match="no expert times"):
        step_model("op_table", load_gpu(gpu), QWEN, tp=tp)


def test_engines_of_the_catalogue_share_experts_too() -> None:
    gpu, shared = load_gpu("rtx_pro_6000"), Parallelism(1, 2, True)
    own = step_model("auto", gpu, QWEN, tp=1, profile=None, imitated=None, parallelism=shared)
    alone = step_model("auto", gpu, QWEN, tp=1)
    assert own.labels == (
        "all-gather and reduce-scatter of 2 rtx_pro_6000: NCCL 2.29.2 measured alone, in no engine",
    )
    times = shared_experts(gpu, QWEN, shared, None).times(QWEN, shared)
    assert own.dense_s(0, 0, 32) < alone.dense_s(0, 0, 32) < own.dense_s(0, 0, 32) + 2 * times.seconds(64)


def test_engines_that_share_experts_exchange_what_their_tokens_need() -> None:
    apart, together = routed_times(HALF, ROUTING), routed_times(HALF, ROUTING, EXCHANGE, "rtx_pro_6000")
    assert together.seconds(1) - apart.seconds(1) == pytest.approx(30e-6)
    assert together.seconds(1024) - apart.seconds(1024) == pytest.approx(130e-6)
    assert together.labels == ("all-gather and reduce-scatter of 2 rtx_pro_6000: made up",)
    assert "exchange: made up" in together.source and apart.labels == ()


def test_a_step_beyond_the_table_is_refused() -> None:
    with pytest.raises(HardwareError, match="1025 tokens of all engines is beyond the 1024"):
        routed_times(WHOLE, ROUTING).seconds(1025)


def test_without_expert_parallelism_one_engine_is_the_tensor_parallel_one() -> None:
    one = profile(1, WHOLE)
    alone = step_model("auto", load_gpu("rtx_pro_6000"), QWEN, tp=1, profile=one)
    parallel = step_model(
        "auto",
        load_gpu("rtx_pro_6000"),
        QWEN,
        tp=1,
        profile=one,
        imitated=None,
        parallelism=Parallelism(1, 1, True),
    )
    assert [alone.dense_s(0, 0, n) for n in range(1, 64)] == [parallel.dense_s(0, 0, n) for n in range(1, 64)]
    own = step_model(
        "auto",
        load_gpu("rtx_pro_6000"),
        QWEN,
        tp=1,
        profile=profile(1, WHOLE, HALF),
        imitated=None,
        parallelism=Parallelism(1, 2, True),
    )
    experts = experts_of(one).times(QWEN, Parallelism(1))
    for n in (1, 16, 64):
        assert alone.dense_s(0, 0, n) == pytest.approx(own.dense_s(0, 0, n) + experts.seconds(n), rel=1e-12)


@pytest.mark.parametrize(
    ("parallelism", "words"),
    [
        (Parallelism(2), ("no expert times for qwen3_30b_a3b", "each expert on 2 GPUs", "aiconfigurator=")),
        (
            Parallelism(1, 2, True),
            ("whole experts on each of 2 GPUs", "the profile has each expert on 1 GPU"),
        ),
    ],
)
def test_a_missing_table_is_named(parallelism: Parallelism, words: tuple[str, ...]) -> None:
    with pytest.raises(HardwareError) as error:
        experts_of(profile(1, WHOLE)).times(QWEN, parallelism)
    assert all(word in str(error.value) for word in words)


def test_missing_exchange_times_are_named() -> None:
    tables = ExpertTable(1, 4, HALF.lattice)
    with pytest.raises(HardwareError, match="no all-gather and reduce-scatter times between 4 rtx_pro_6000"):
        experts_of(profile(1, tables)).times(QWEN, Parallelism(1, 4, True))


@pytest.mark.parametrize(
    ("llm", "parallelism", "words"),
    [
        ("qwen3_32b", Parallelism(2, 1, True), "qwen3_32b has no experts to share"),
        ("qwen3_32b", Parallelism(1, 2), "or more replicas"),
        ("qwen3_30b_a3b", Parallelism(1, 3, True), "3 GPUs do not divide the 128 experts"),
        ("minimax_m2_5", Parallelism(8), "192 values wide, and vLLM cuts fp8_block between blocks of 128"),
    ],
)
def test_what_cannot_be_shared_is_refused(llm: str, parallelism: Parallelism, words: str) -> None:
    with pytest.raises(HardwareError, match=words):
        parallelism.check(load_llm(llm))


@pytest.mark.parametrize("kind", ["op_table", "linear", "calibrated_roofline"])
def test_a_rung_without_expert_times_is_refused(kind: str) -> None:
    with pytest.raises(HardwareError, match="no expert times for mixtral_8x7b on a100_80g"):
        step_model(kind, load_gpu("a100_80g"), load_llm("mixtral_8x7b"), tp=2, profile=None)


def test_a_mixture_without_tables_is_a_roofline() -> None:
    gpu, llm = load_gpu("mi300x"), load_llm("mixtral_8x7b")  # the library has no tables of this GPU
    model = step_model("auto", gpu, llm, tp=2)
    assert isinstance(model, MixtureStepModel)
    assert any("experts and attention are a roofline" in label for label in model.labels)
    assert model.dense_s(0, 0, 16) == step_model("roofline", gpu, llm, tp=2).dense_s(0, 0, 16)


def test_parts_of_experts() -> None:
    assert [(p.expert_tp, p.expert_ep) for p in (Parallelism(4), Parallelism(4, 1, True))] == [(4, 1), (1, 4)]
    assert [(p.expert_tp, p.expert_ep) for p in (Parallelism(1, 2), Parallelism(1, 2, True))] == [
        (2, 1),
        (1, 2),
    ]


def test_balanced_loads_become_a_lattice() -> None:
    """20 us to start, 6 us an expert; from all experts on, 1 us for each further token."""
    tokens = np.array([1.0, 2.0, 4.0, 8.0, 16.0, 64.0, 256.0])
    seconds = 20.0 + 6.0 * np.minimum(8 * tokens, 128) + np.maximum(tokens - 16, 0.0)
    lattice = balanced_lattice(tokens, seconds, 8, 128, 1)
    assert lattice.axes == ((1, 2, 4, 8, 16, 64, 256), (8, 16, 32, 64, 128))
    assert np.isnan(lattice.values[0, 1]) and lattice.values[0, 0] == 68.0
    assert lattice.values[5].tolist() == [68.0 + 48, 116.0 + 48, 212.0 + 48, 404.0 + 48, 788.0 + 48]
    assert balanced_lattice(tokens, seconds, 8, 128, 4).axes[1] == (2, 4, 8, 16, 32)


def test_experts_in_a_cache_are_read_from_memory() -> None:
    """8 and 16 experts of 9.4 MB fit twice 134 MB of cache; the line of 32 and 64 goes on below them."""
    values = LATTICE.values.copy()
    values[:, 0] -= 25e-6
    found, notes = from_memory(Lattice(LATTICE.axes, values), 9.4e6, load_gpu("rtx_pro_6000"))
    assert found.values[4:] == pytest.approx(LATTICE.values[4:], rel=1e-9)
    assert found.values[0, 0] >= values[0, 0] and "8, 16 activated ones" in notes[0]
    assert np.isnan(found.values[0, 1]), "what one token cannot choose stays out"
    same, none = from_memory(LATTICE, 1e9, load_gpu("rtx_pro_6000"))
    assert same is LATTICE and none == ()


def group_rows(times: ExpertTimes, *captured: int) -> ExpertRows:
    skewed = routed_times(HALF, Routing(128, 8, 0.7), EXCHANGE)
    ends = group_ends_s(times, skewed, "experts 2.0 / 10.0 %")
    return ExpertRows(
        GroupTimes(times.experts_s, times.moved_s), EngineOverhead(graph_batches=captured), ends
    )


def test_group_costs_are_integers_of_padded_tokens() -> None:
    times = routed_times(HALF, ROUTING, EXCHANGE)
    rows, plain = group_rows(times, 1, 2, 4, 8, 16), group_rows(times)
    assert rows.group_cost([5, 1]) == rows.group_cost([8, 8]) == plain.group_cost([8, 8])
    assert rows.group_cost([8, 8]) == pytest.approx(times.seconds(16) * FIXED_PER_S, rel=1e-9)
    assert plain.group_cost([5, 1]) < rows.group_cost([5, 1]), "nothing is padded without graphs"
    assert rows.group_cost([17, 1]) == plain.group_cost([17, 1]), "nor beyond the captured sizes"
    with pytest.raises(HardwareError, match="1025 tokens of all engines"):
        rows.group_cost([1024, 1])


def test_unequal_engines_exchange_as_if_all_had_as_many_tokens() -> None:
    rows = group_rows(routed_times(HALF, ROUTING, EXCHANGE))
    assert rows.group_cost([60, 4]) - rows.group_cost([32, 32]) == rows.cost(64, 120) - rows.cost(64, 64) > 0


def test_the_ends_of_a_group_are_popularity_and_the_exchange() -> None:
    times, skewed = (routed_times(HALF, Routing(128, 8, skew), EXCHANGE) for skew in (0.0, 0.7))
    rows = group_rows(times)
    moved = float(np.interp(64, EXCHANGE.curve.counts, EXCHANGE.curve.seconds))
    highest = 1.1 * (times.seconds(64) - moved) + 2 * moved
    assert rows.at_end("high").cost(64, 64) == pytest.approx(highest * FIXED_PER_S, rel=1e-9)
    lowest = (skewed.seconds(64) - moved) / 1.1 + moved / 2
    assert rows.at_end("low").cost(64, 64) == pytest.approx(lowest * FIXED_PER_S, rel=1e-9)
