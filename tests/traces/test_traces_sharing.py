"""What prompts share with earlier ones: owners and positions, from block ids and from conversations."""

import os
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.columns import PrefixBlocks
from traces.errors import TraceError
from traces.importers.llmservingsim import read_llmservingsim_prefix
from traces.importers.mooncake import read_mooncake, write_mooncake
from traces.importers.parquet import read_parquet, write_parquet
from traces.importers.plain_csv import write_plain_csv
from traces.repeating import repeated
from traces.scaling import scale_rate, scale_tokens
from traces.sharing import named_rows, shared_prefixes, shared_tokens
from traces.synthetic.multi_turn import multi_turn
from traces.turns import Turns
from traces.workload import Workload

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))


def workload(prompts: list[int], prefix: Any, outputs: list[int] | None = None) -> Workload:
    rows = len(prompts)
    return Workload(
        arrival_ns=np.arange(rows) * 1_000_000_000,
        prompt_tokens=np.array(prompts),
        output_tokens=np.array(outputs or [10] * rows),
        name="w",
        source="test",
        prefix=prefix,
    )


def parts(trace: Workload) -> list[tuple[tuple[int, int], ...]]:
    return list(shared_prefixes(trace))


def test_each_position_is_of_the_first_request_that_has_it() -> None:
    ids = PrefixBlocks.of([[0, 1, 2], [0, 1, 3], [0, 1, 3, 4], [7], [0, 1, 3, 4, 5]], 16)
    trace = workload([48, 48, 64, 16, 80], ids)
    assert parts(trace) == [(), ((0, 32),), ((0, 32), (1, 48)), (), ((0, 32), (1, 48), (2, 64))]
    assert shared_tokens(trace).tolist() == [0, 32, 48, 0, 64]


def test_a_partly_filled_block_is_shared_as_far_as_both_fill_it() -> None:
    ids = PrefixBlocks.of([[0, 1], [0, 1], [0, 1], [0, 1, 2]], 512)
    assert parts(workload([700, 700, 600, 1100], ids))[1:] == [((0, 700),), ((0, 600),), ((0, 700),)]
    # What follows the first row's 700 tokens is the later one's own, though the id is the same.


def test_ids_beyond_the_prompt_are_cut() -> None:
    ids = PrefixBlocks.of([[0, 1, 2, 3], [0, 1, 2, 3], [0, 1, 2, 3]], 16)
    assert parts(workload([20, 64, 64], ids)) == [(), ((0, 20),), ((0, 20),)]


def test_an_id_that_tells_a_block_alone_counts_with_all_before_it() -> None:
    ids = PrefixBlocks.of([[5, 6, 7], [8, 6, 7], [5, 6, 9], [8, 6, 7], []], 16)
    assert parts(workload([48] * 5, ids)) == [(), (), ((0, 32),), ((1, 48),), ()]


@pytest.mark.parametrize("seed", range(20))
def test_like_comparing_every_pair_of_prompts(seed: int) -> None:
    """The owner of a position is the first row whose first so many tokens are equal."""
    draw = random.Random(seed)
    block = draw.choice([1, 3, 16])
    texts = [[draw.randrange(2) for _ in range(draw.randrange(1, 6))] for _ in range(12)]
    trace = workload([block * len(text) for text in texts], PrefixBlocks.of(texts, block))
    for row, found in enumerate(parts(trace)):
        owners = []
        for end in range(1, len(texts[row]) + 1):
            first = next(at for at in range(row + 1) if texts[at][:end] == texts[row][:end])
            owners += [first] * block if first < row else []
        ends = {owner: position + 1 for position, owner in enumerate(owners)}
        assert found == tuple(ends.items())


def test_turns_continue_prompts_and_answers() -> None:
    trace = workload([100, 150, 70, 200], Turns(np.array([3, 3, 9, 3])), [10, 10, 5, 5])
    assert parts(trace) == [(), ((0, 110),), (), ((0, 110), (1, 160))]


def test_a_turn_that_was_left_out_is_shared_no_further_than_what_is_there() -> None:
    trace = workload([100, 150, 200], Turns(np.array([3, 3, 3])), [10, 10, 5])
    assert parts(trace.taking(np.array([0, 2]), "without the second")) == [(), ((0, 110),)]
    assert parts(trace.taking(np.array([1, 2]), "without the first")) == [(), ((0, 160),)]


def test_all_conversations_begin_with_the_common_tokens() -> None:
    trace = workload([55, 55, 90, 40], Turns(np.array([0, 1, 1, 2]), common_tokens=50), [5, 5, 5, 5])
    assert parts(trace) == [(), ((0, 50),), ((0, 50), (1, 60)), ((0, 40),)]


def test_scaled_tokens_keep_equal_positions() -> None:
    ids = PrefixBlocks.of([[0, 1], [0, 2], [0, 1, 3]], 512)
    scaled = scale_tokens(workload([1024, 1024, 1100], ids), 0.1)
    assert scaled.prompt_tokens.tolist() == [102, 102, 110]
    assert parts(scaled) == [(), ((0, 51),), ((0, 102),)]
    turns = scale_tokens(workload([100, 151], Turns(np.array([0, 0]), 31), [20, 5]), 0.5)
    assert parts(turns) == [(), ((0, 60),)]
    assert isinstance(turns.prefix, Turns) and turns.prefix.common_tokens == 15


def test_copies_share_among_themselves_alone() -> None:
    doubled = scale_rate(workload([100, 150] * 20, Turns(np.arange(40) // 2)), 2, seed=1)
    assert isinstance(doubled.prefix, Turns)
    stream = doubled.prefix.stream
    assert sorted(np.bincount(stream)[np.unique(stream)].tolist()) == [2] * 40
    for row, found in enumerate(parts(doubled)):
        assert all(stream[owner] == stream[row] for owner, _ in found)


def test_a_trace_without_identities_shares_nothing() -> None:
    assert parts(workload([5, 6], None)) == [(), ()]


def test_turns_refuse_what_they_cannot_mean() -> None:
    for stream, common in (([[0]], 0), ([-1], 0), ([0], -1)):
        with pytest.raises(TraceError, match="turns need one stream per row"):
            Turns(np.array(stream), common)


LINES = (
    '{"timestamp": 0, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1]}\n'
    '{"timestamp": 1, "input_length": 1030, "output_length": 5, "hash_ids": [0, 1, 2]}\n'
)


def test_the_last_partly_filled_block_may_have_an_id_or_none(tmp_path: Path) -> None:
    (tmp_path / "m.jsonl").write_text(LINES)
    assert parts(read_mooncake(tmp_path / "m.jsonl")) == [(), ((0, 1024),)]


def test_llmservingsim_prefix_files_are_known_by_their_keys(tmp_path: Path) -> None:
    from traces.formats import format_of

    path = tmp_path / "x_prefix.jsonl"
    row = '{"arrival_time_ns":%d,"input_length":35,"output_length":532,"hash_ids":[%d,%d]}\n'
    path.write_text(row % (46926808, 0, 1) + row % (46926809, 0, 2))
    trace = format_of(path).read(path)
    assert trace.arrival_ns.tolist() == [46926808, 46926809] and parts(trace) == [(), ((0, 16),)]
    assert read_llmservingsim_prefix(path).prompt_tokens.tolist() == [35, 35]


def test_each_turn_of_a_drawn_conversation_begins_with_all_that_was_said() -> None:
    trace = multi_turn(seed=3, requests=400, rate_per_s=2.0, think_s=5.0)
    assert isinstance(trace.prefix, Turns) and trace.session is not None
    said: dict[int, tuple[int, int]] = {}
    for row, found in enumerate(parts(trace)):
        stream, prompt = int(trace.prefix.stream[row]), int(trace.prompt_tokens[row])
        before_tokens, due_ns = said.get(stream, (500, 0))
        assert (found[-1][1] if found else 0) == (before_tokens if row else 0)
        assert prompt >= before_tokens + 120 and trace.arrival_ns[row] >= due_ns
        answer = int(trace.output_tokens[row])
        said[stream] = prompt + answer, int(trace.arrival_ns[row]) + answer * 20_000_000


def test_drawn_conversations_have_the_declared_distributions() -> None:
    trace = multi_turn(seed=0, requests=20_000, rate_per_s=10.0)
    assert isinstance(trace.prefix, Turns)
    _, first, turns = np.unique(trace.prefix.stream, return_index=True, return_counts=True)
    whole = turns[:1000]  # those that began early have all their turns
    assert set(whole.tolist()) == {6, 7, 8, 9}
    assert whole.mean() == pytest.approx(54 / 7, rel=0.02)
    begin = trace.prompt_tokens[first] - 500
    assert begin.mean() == pytest.approx(1000 + 140, rel=0.05)
    assert np.median(begin) == pytest.approx(850 + 140, rel=0.05)
    assert trace.output_tokens.min() == 80 and trace.output_tokens.max() == 120
    late = trace.arrival_ns[trace.arrival_ns > 400e9]
    assert len(late) / (late[-1] - late[0]) * 1e9 == pytest.approx(10, rel=0.1)
    shorter = multi_turn(seed=0, requests=500, rate_per_s=10.0)
    assert shorter.arrival_ns.tolist() == trace.arrival_ns[:500].tolist()
    assert shorter.prompt_tokens.tolist() == trace.prompt_tokens[:500].tolist()


def test_drawn_conversations_are_written_to_parquet_and_read_again(tmp_path: Path) -> None:
    trace = multi_turn(seed=3, requests=60, rate_per_s=2.0, think_s=5.0)
    assert write_parquet(trace, tmp_path / "chats.parquet") == ()
    again = read_parquet(tmp_path / "chats.parquet")
    assert isinstance(again.prefix, Turns) and again.prefix.common_tokens == 500
    assert parts(again) == parts(trace)
    lost = "which prompt continues which is not written"
    assert write_plain_csv(trace, tmp_path / "chats.csv") == (lost,)
    assert lost in write_mooncake(trace, tmp_path / "chats.jsonl")


def test_a_repeated_trace_shares_within_each_repetition_or_with_the_first() -> None:
    ids = PrefixBlocks.of([[0, 1], [0, 2]], 16)
    trace = workload([32, 32], ids)
    own, same = repeated(trace, 3, "own"), repeated(trace, 3, "same")
    assert own.arrival_ns.tolist() == same.arrival_ns.tolist() == [at * 10**9 for at in range(6)]
    assert parts(own) == [(), ((0, 16),), (), ((2, 16),), (), ((4, 16),)]
    whole = ((0, 32),), ((0, 16), (1, 32))
    assert parts(same) == [(), ((0, 16),), *whole, *whole]
    assert repeated(trace, 1, "own") is trace
    assert own.labels == ("repeated 3 times, each with contents of its own",)
    turns = workload([32, 50], Turns(np.array([0, 0])))
    assert parts(repeated(turns, 2, "own"))[2:] == [(), ((2, 42),)]
    assert parts(repeated(turns, 2, "same"))[2:] == [((0, 32),), ((0, 42), (1, 50))]
    for times, contents in ((0, "own"), (2, "other"), (10**18, "own")):
        with pytest.raises(TraceError, match=r"trace\.repeat"):
            repeated(trace, times, contents)


@pytest.mark.skipif(not (PROFILES / "llmservingsim").is_dir(), reason="SERVETWIN_PROFILES names no profiles")
@pytest.mark.parametrize(
    ("name", "share"), [("llama-3.1-8b", 0.0759), ("qwen3-30b-a3b", 0.0790), ("qwen3-32b", 0.0790)]
)
def test_the_shared_start_of_published_workloads(name: str, share: float) -> None:
    path = PROFILES / f"llmservingsim/workloads_sharegpt-{name}-300-sps10_prefix.jsonl"
    trace = read_llmservingsim_prefix(path)
    shared = shared_tokens(trace)
    assert (shared > 0).sum() == 32
    assert shared.sum() / trace.prompt_tokens.sum() == pytest.approx(share, abs=5e-5)


def identities(data: st.DataObject, rows: int) -> PrefixBlocks | Turns:
    if data.draw(st.booleans()):
        ids = st.lists(st.integers(0, 5), max_size=4, unique=True)
        return PrefixBlocks.of(data.draw(st.lists(ids, min_size=rows, max_size=rows)), 8)
    stream = data.draw(st.lists(st.integers(0, 4), min_size=rows, max_size=rows))
    return Turns(np.array(stream), data.draw(st.sampled_from((0, 0, 7))))


@given(st.data())
def test_shared_tokens_and_named_rows_say_what_the_parts_say(data: st.DataObject) -> None:
    lengths = st.lists(st.integers(1, 40), min_size=1, max_size=12)
    prompts = data.draw(lengths)
    answers = data.draw(st.lists(st.integers(1, 40), min_size=len(prompts), max_size=len(prompts)))
    trace = workload(prompts, identities(data, len(prompts)), answers)
    found = parts(trace)
    assert shared_tokens(trace).tolist() == [one[-1][1] if one else 0 for one in found]
    named = named_rows(trace)
    assert len(named) == len(prompts)
    assert all(named[owner] for one in found for owner, _ in one)


def test_a_row_that_nobody_continues_is_not_named() -> None:
    assert named_rows(workload([10, 30, 10], Turns(np.array([0, 0, 1])))) == bytes([1, 0, 0])
    ids = PrefixBlocks.of([[0, 1], [0, 2], [3]], 16)
    assert named_rows(workload([32, 32, 16], ids)) == bytes([1, 0, 0])
    assert named_rows(workload([32], None)) == bytes(1)
