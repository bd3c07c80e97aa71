"""Integer rows of a model that knows what sequences of one step do to each other."""

import os
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Lattice
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from hwmodels.step_times.step_time import Interplay, Piece, StepLimits
from tests.worlds.refusals import refuses
from tests.worlds.toy_profile import SEQUENCES, lattice, piece_s, toy_profile, wave

MODEL = OpTableStepModel(toy_profile())
ROWS = StepRows(MODEL)
WILD = OpTableStepModel(toy_profile(decode=(lattice(wave, SEQUENCES, range(16, 200, 7)),)))

sequences = st.integers(1, 16)
spreads = st.integers(0, 5000)
Chunk = tuple[int, int, int]


class Tense:
    """Alpha 0.5 in decode steps and 1 beside chunks; a mixed step adds 1 us per context token, less 2 ms."""

    skewed = True

    def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
        return 0.0 if decode_sequences == 1 else 1.0 if prefill_tokens else 0.5

    def mixed_decode_attention_s(
        self, decode_sequences: int, context_tokens: float, new_tokens: int, cached_tokens: int
    ) -> float:
        return 1e-6 * context_tokens - 2e-3 + 1e-7 * cached_tokens


class Toy:
    """1 ms, and 1 us per token; a chunk is launched in 0.5 ms."""

    limits = StepLimits(8, 1000, 100)
    source = error_band = "toy"

    def __init__(self, interplay: Interplay | None, dense_s: float = 1e-3) -> None:
        self.interplay = interplay
        self.least_s = dense_s

    def dense_s(self, prefill_tokens: int, prefill_sequences: int, decode_sequences: int) -> float:
        return self.least_s + 1e-6 * (prefill_tokens + decode_sequences)

    def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
        return (Piece(500, 0.0, 1e-6), Piece(1000, -1.5e-3, 4e-6))

    def prefill_attention_s(self, new_tokens: int, cached_tokens: int) -> float:
        return 5e-4 + 1e-6 * (new_tokens - 1)


def ms(cost: int) -> float:
    return cost / FIXED_PER_S * 1e3


# Decode steps.


@given(sequences, st.integers(1, 1024), st.booleans())
def test_decode_rows_are_the_pieces_of_the_model(n: int, context: int, wild: bool) -> None:
    model = WILD if wild else MODEL
    total = n * min(context, 198 if wild else 1024)
    seconds = model.dense_s(0, 0, n) + piece_s(model.decode_attention(n), total)
    cost = StepRows(model).decode_cost(n, total)
    assert type(cost) is int
    assert cost == pytest.approx(seconds * FIXED_PER_S, rel=1e-9)


def test_a_piece_that_gets_steeper_may_start_below_0() -> None:
    rows = StepRows(Toy(None, dense_s=0.0))
    assert rows.decode(1)[1][1] < 0
    assert ms(rows.decode_cost(1, 500)) == pytest.approx(0.501)
    assert ms(rows.decode_cost(1, 501)) == pytest.approx(0.505)
    assert ms(rows.mixed(1, 501, [(0, 0, 1)])) == pytest.approx(0.002 + 0.5 + 0.504)


def test_a_piece_that_is_negative_itself_is_a_programming_error() -> None:
    class Negative(Toy):
        def decode_attention(self, decode_sequences: int) -> tuple[Piece, ...]:
            return (Piece(500, 0.0, 1e-6), Piece(1000, -5e-3, 4e-6))

    refuses(ValueError, "negative time", StepRows(Negative(None)).decode, 1)


@given(sequences, st.integers(1, 1023), spreads)
def test_a_run_of_shifted_decode_steps_is_straight(n: int, context: int, spread: int) -> None:
    """Steps of one piece differ by slope * n, whatever the spread: it does not change while n decode."""
    shift = ROWS.shift(n, spread)
    total = n * context + shift
    limit, intercept, slope = next(row for row in ROWS.decode(n) if total <= row[0] or row[0] == n * 1024)
    if total + n <= limit:
        assert ROWS.decode_cost(n, total + n) - ROWS.decode_cost(n, total) == slope * n
        assert ROWS.decode_cost(n, total) == intercept + slope * total


# The shift of unequal contexts.


@given(sequences, spreads, st.integers(0, 300))
def test_equal_contexts_are_not_shifted_and_a_shift_is_at_most_the_spread(
    n: int, spread: int, tokens: int
) -> None:
    assert ROWS.shift(n, 0, tokens) == 0
    assert ROWS.shift(1, spread, tokens) == 0
    shift = ROWS.shift(n, spread, tokens)
    assert type(shift) is int and 0 <= shift <= spread
    assert shift == pytest.approx(MODEL.interplay.skew(n, tokens) * spread, abs=1.0 + spread / 2**16)  # type: ignore[union-attr]
    assert ROWS.shift(n, spread + 1, tokens) in (shift, shift + 1)


def test_alpha_of_decode_steps_is_asked_once_per_count() -> None:
    class Counting(Tense):
        asked = 0

        def skew(self, decode_sequences: int, prefill_tokens: int) -> float:
            self.asked += 1
            return super().skew(decode_sequences, prefill_tokens)

    counting = Counting()
    rows = StepRows(Toy(counting))
    before = counting.asked
    assert [rows.shift(2, spread) for spread in (0, 1, 3, 5)] == [0, 0, 1, 2]
    assert counting.asked == before + 1
    assert rows.shift(2, 7, 9) == 7


def test_rows_know_whether_unequal_contexts_matter() -> None:
    assert ROWS.skewed and StepRows(Toy(Tense())).skewed
    for alphas, skewed in (([[0.0, 0.0], [0.0, 0.0]], False), ([[0.0, 0.0], [0.0, 0.5]], True)):
        # Alpha is above 0 only beside 100 tokens, between powers of two.
        table = Lattice(((0, 100), (2, 8)), np.array(alphas))
        assert StepRows(OpTableStepModel(toy_profile(skew=table))).skewed is skewed
    assert not StepRows(OpTableStepModel(toy_profile(skew=None))).skewed
    plain = StepRows(Toy(None))
    assert not plain.skewed and plain.shift(5, 1000) == 0


# Mixed steps.


def test_mixed_steps_by_hand() -> None:
    rows = StepRows(Toy(Tense()))
    # 1.013 ms dense, 0.509 ms for the chunk; 900 + 50 tokens of context and 30 cached, less 2 ms.
    cost = rows.mixed(3, 900, [(0, 30, 10)], 50)
    assert ms(cost) == pytest.approx(1.013 + 0.509 + 0.950 + 0.003 - 2.0)
    # Two chunks are launched once, for what none would take, 0.499 ms; the longest has 40 tokens before it.
    cost = rows.mixed(3, 900, [(0, 30, 10), (1, 40, 11)])
    assert ms(cost) == pytest.approx(1.024 + (0.509 + 0.510 - 0.499) + 0.900 + 0.004 - 2.0)
    # Chunks alone: nothing decodes beside them.
    assert ms(rows.mixed(0, 77, [(0, 30, 10), (1, 40, 11)])) == pytest.approx(1.021 + 0.520)


def test_parts_add_up_where_interplay_is_unknown() -> None:
    rows = StepRows(Toy(None))
    expected = 1.024 + 0.509 + 0.510 - 0.499 + (0.9 * 4 - 1.5)
    assert ms(rows.mixed(3, 900, [(0, 30, 10), (1, 40, 11)], 50)) == pytest.approx(expected)


@given(
    sequences,
    st.integers(1, 1024),
    st.lists(st.tuples(st.just(0), st.integers(0, 1024), st.integers(1, 40)), min_size=1, max_size=3),
)
def test_mixed_rows_are_integers_within_1e9_of_the_model(n: int, context: int, chunks: list[Chunk]) -> None:
    tokens = sum(new for _, _, new in chunks)
    longest = max(chunks, key=lambda chunk: chunk[2])
    assert MODEL.interplay is not None
    seconds = MODEL.dense_s(tokens, len(chunks), n)
    seconds += sum(MODEL.prefill_attention_s(new, start) for _, start, new in chunks)
    seconds -= (len(chunks) - 1) * (2 * MODEL.prefill_attention_s(1, 0) - MODEL.prefill_attention_s(2, 0))
    seconds += MODEL.interplay.mixed_decode_attention_s(n, n * context, tokens, longest[1])
    cost = ROWS.mixed(n, n * context, chunks)
    assert type(cost) is int
    assert cost == pytest.approx(seconds * FIXED_PER_S, rel=1e-9)


@given(
    st.integers(2, 16), st.integers(1, 500), st.integers(0, 400), st.integers(1, 128), st.integers(0, 1024)
)
def test_a_spread_counts_as_context(n: int, context: int, spread: int, new: int, cached: int) -> None:
    chunks = [(0, cached, new)]
    shifted = ROWS.mixed(n, n * context + ROWS.shift(n, spread, new), chunks)
    assert ROWS.mixed(n, n * context, chunks, spread) == shifted >= ROWS.mixed(n, n * context, chunks)
    alone = ROWS.decode_cost(n, n * context + ROWS.shift(n, spread))
    assert ROWS.mixed(n, n * context, (), spread) == alone


def test_a_step_is_never_free() -> None:
    assert StepRows(Toy(Tense(), dense_s=0.0)).mixed(2, 1, [(0, 0, 1)]) == 1


def test_an_engine_keeps_what_its_operations_know() -> None:
    overhead = EngineOverhead(step_s=1e-3, per_sequence_s=1e-5)
    engine = StepRows(EngineStepModel(MODEL, overhead))
    assert engine.skewed and engine.shift(8, 100) == ROWS.shift(8, 100)
    more = engine.mixed(8, 800, [(0, 64, 30)], 90) - ROWS.mixed(8, 800, [(0, 64, 30)], 90)
    assert ms(more) == pytest.approx(1.09)


@pytest.mark.parametrize(
    ("n", "context", "chunks", "says"),
    [
        (17, 170, [(1, 0, 5)], "17 decoding sequences are outside"),
        (17, 170, [], "17 decoding sequences are outside"),
        (4, 4097, [(1, 0, 5)], "4 sequences with 4097 tokens"),
        (4, 4097, [], "4 decoding sequences with 4097 tokens of context are beyond the step model's 4096"),
        (4, 400, [(1, 0, 129)], "a chunk of 129 prompt tokens"),
        (4, 400, [(1, 1025, 5)], "a chunk of 5 prompt tokens behind 1025"),
        (4, 400, [(1, 1100, 60)], "covers prompt tokens 1100 to 1160"),
        (4, 400, [(1, 0, 100), (2, 0, 100)], "beside 200 prompt tokens"),
        (0, 0, [(1, 0, 128), (2, 0, 128), (3, 0, 1)], "257 prefill tokens is beyond the step model's 256"),
        (4, 400, [(1, 0, 128), (2, 0, 127)], "a step of 259 tokens in 6 sequences"),
        (0, 0, [], "a step needs a prefill chunk"),
    ],
)
def test_steps_outside_the_tables_are_refused(n: int, context: int, chunks: list[Chunk], says: str) -> None:
    refuses(HardwareError, says, ROWS.mixed, n, context, chunks)


def test_a_shift_beyond_the_tables_is_refused() -> None:
    assert ROWS.shift(8, 100, 50) == 0 < ROWS.shift(8, 100, 10) < 100
    refuses(HardwareError, r"8 sequences with 82\d\d tokens", ROWS.mixed, 8, 8 * 1024 - 50, [(0, 0, 10)], 100)


# Several prompts in one step, measured.

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
HEADS = ("num_heads", "num_key_value_heads", "head_dim")


@pytest.mark.skipif(
    not (PROFILES / "aiconfigurator").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
@pytest.mark.parametrize(
    ("llm", "tp", "folder", "steps", "mean_percent"),
    [
        ("llama2_7b", 1, "meta-llama/Llama-2-7b-hf", 15, 0.4),
        ("llama3_8b", 1, "meta-llama/Meta-Llama-3-8B", 30, 0.5),
        ("qwen_72b", 4, "Qwen/Qwen-72B", 15, 0.2),
    ],
)
def test_prompts_batched_in_one_step_cost_what_was_measured(
    llm: str, tp: int, folder: str, steps: int, mean_percent: float
) -> None:
    """2 to 16 equal prompts of 128 to 4,096 tokens: dense, head, and the attention of all as measured."""
    a100 = PROFILES / "aiconfigurator" / "a100_sxm"
    mlp = PROFILES / "vidur" / "compute" / "a100" / folder / "mlp.csv"
    model = OpTableStepModel(
        import_profile(
            "vidur",
            ImportRequest(path=mlp, gpu="a100_80g", llm=llm, tp=tp, engine_version=None, aiconfigurator=a100),
        )
    )
    rows, shape = StepRows(model), load_llm(llm)
    table = pd.read_parquet(next(a100.glob("attention/vllm/*/context_attention_perf.parquet")))
    heads = dict(zip(HEADS, (shape.heads // tp, shape.kv_heads // tp, shape.head_dim)))
    for column, value in {**heads, "attn_dtype": "bfloat16", "kv_cache_dtype": "bfloat16"}.items():
        table = table[table[column] == value]
    errors = []
    for prompts, new, latency_ms in table[["batch_size", "isl", "latency"]].itertuples(index=False):
        fits = prompts * new <= model.limits.max_prefill_tokens
        if prompts in (2, 4, 8, 16) and 128 <= new <= 4096 and fits:
            measured_s = model.dense_s(prompts * new, prompts, 0) + latency_ms * 1e-3 * shape.layers
            cost = rows.mixed(0, 0, [(request, 0, new) for request in range(prompts)])
            errors.append(abs(cost / FIXED_PER_S / measured_s - 1.0) * 100.0)
    assert len(errors) == steps
    assert np.mean(errors) == pytest.approx(mean_percent, abs=0.05) and max(errors) < 1.5
