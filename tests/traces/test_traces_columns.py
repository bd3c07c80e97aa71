"""Names and prefix blocks: what they hold, what they refuse, and that copies stay apart."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from traces.columns import ABSENT, Names, PrefixBlocks, numbers
from traces.errors import TraceError
from traces.scaling import scale_rate, scale_tokens
from traces.workload import Workload

WORDS = st.lists(st.one_of(st.none(), st.sampled_from(["a", "b", "é", "x y"])), max_size=20)
LISTS = st.lists(st.lists(st.integers(0, 9), max_size=4), min_size=1, max_size=12)


@given(WORDS, st.data())
def test_names_hold_what_they_are_given_and_take_rows(values: list[str | None], data: st.DataObject) -> None:
    names = Names.of(values)
    assert names.tolist() == values and len(names) == len(values)
    assert [names[row] for row in range(len(names))] == values
    rows = data.draw(st.lists(st.integers(0, max(len(values) - 1, 0)), max_size=8)) if values else []
    assert names.taking(np.array(rows, dtype=np.int64)).tolist() == [values[row] for row in rows]
    assert sum(names.counts().values()) == len(values) - values.count(None)


@given(LISTS, st.data())
def test_prefix_blocks_hold_what_they_are_given_and_take_rows(
    lists: list[list[int]], data: st.DataObject
) -> None:
    blocks = PrefixBlocks.of(lists, 512)
    assert [list(blocks[row]) for row in range(len(blocks))] == lists
    rows = data.draw(st.lists(st.integers(0, len(lists) - 1), max_size=8))
    taken = blocks.taking(np.array(rows, dtype=np.int64))
    assert [list(taken[row]) for row in range(len(taken))] == [lists[row] for row in rows]
    kept = blocks.taking(np.array([len(ids) > 1 for ids in lists]))
    assert [list(kept[row]) for row in range(len(kept))] == [ids for ids in lists if len(ids) > 1]


def test_counts_are_by_frequency_then_word() -> None:
    assert list(Names.of(["b", "a", "b", "a", "c", None]).counts().items()) == [("a", 2), ("b", 2), ("c", 1)]


@pytest.mark.parametrize(
    ("codes", "words"),
    [
        ([0, 2], ("a", "b")),
        ([-2], ("a",)),
        ([0], ()),
        ([0], ("a", "a")),
        ([0], ("",)),
        ([0], ("\ud800",)),
        ([0.5], ("a",)),
        ([[0]], ("a",)),
    ],
)
def test_names_that_do_not_fit_are_refused(codes: list[float], words: tuple[str, ...]) -> None:
    with pytest.raises(TraceError, match="name"):
        Names(np.array(codes), words)


@pytest.mark.parametrize(
    ("offsets", "ids", "tokens"),
    [([0, 2], [1], 512), ([1, 1], [1], 512), ([0, 2, 1, 3], [1, 2, 3], 512), ([], [], 512),
     ([0, 1], [-1], 512), ([0, 1], [1], 0)],
)  # fmt: skip
def test_prefix_blocks_that_do_not_fit_are_refused(offsets: list[int], ids: list[int], tokens: int) -> None:
    with pytest.raises(TraceError, match="prefix block"):
        PrefixBlocks(tokens, np.array(offsets, np.int64), np.array(ids, np.int64))


def conversations() -> Workload:
    return Workload(
        arrival_ns=np.array([0, 10, 20, 30]),
        prompt_tokens=np.array([600, 1200, 600, 40]),
        output_tokens=np.array([1, 2, 3, 4]),
        name="conversations",
        source="by hand",
        session=Names.of(["s", "s", None, "t"]),
        prefix=PrefixBlocks.of([[0, 1], [0, 1, 2], [0, 3], [4]], 512),
    )


def test_copies_of_a_session_are_a_session_of_their_own() -> None:
    more = scale_rate(conversations(), 3, seed=1)
    assert more.session is not None
    assert more.session.counts() == {"s": 2, "s#1": 2, "s#2": 2, "t": 1, "t#1": 1, "t#2": 1}
    assert (more.session.codes == ABSENT).sum() == 3


def test_copies_share_no_prefix_with_the_originals() -> None:
    more = scale_rate(conversations(), 3, seed=1)
    assert more.prefix is not None
    by_copy = [{id // 5 for id in more.prefix[row]} for row in range(len(more))]  # ids 0 to 4 in the source
    assert all(len(copy) == 1 for copy in by_copy)
    assert sorted(copy for copies in by_copy for copy in copies) == [0] * 4 + [1] * 4 + [2] * 4


def test_scaled_tokens_have_scaled_prefix_blocks() -> None:
    scaled, before = scale_tokens(conversations(), 0.3), conversations().prefix
    assert isinstance(scaled.prefix, PrefixBlocks) and isinstance(before, PrefixBlocks)
    assert scaled.prefix.block_tokens == before.block_tokens * 0.3
    with pytest.raises(TraceError, match=r"prefix blocks of 153\.6 tokens cannot be written to a file"):
        print(scaled.prefix.whole_block_tokens)


def test_numbers_are_the_columns_without_names() -> None:
    number = np.array([3, 4])
    columns = {"model": Names.of(["a", "b"]), "request": number}
    assert numbers(columns) == {"request": number}
