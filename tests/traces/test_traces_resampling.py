"""Requests drawn again in blocks: what a block keeps, what the seed means, and what copies share."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from serving.vocabulary.errors import UserError
from tests.worlds.refusals import refuses
from traces.columns import Names, PrefixBlocks
from traces.errors import TraceError
from traces.resampling import block_rows, resampled
from traces.turns import Turns
from traces.workload import Workload

COUNT = 600


def bursty(count: int = COUNT) -> Workload:
    """Gaps and lengths that hang together: a slow wave, and every row with a length of its own."""
    wave = 1.0 + 0.9 * np.sin(np.arange(count) / 25)
    gaps = np.maximum(1, (wave * 1e6).astype(np.int64) + np.arange(count) % 7)
    return Workload(
        arrival_ns=np.cumsum(gaps),
        prompt_tokens=np.arange(1, count + 1),
        output_tokens=1 + np.arange(count) % 50,
        name="bursty",
        source="made up",
    )


def rows_of(workload: Workload) -> Any:
    """Which row of ``bursty`` each one is."""
    return workload.prompt_tokens - 1


def test_a_block_is_consecutive_rows_with_their_gaps_and_lengths() -> None:
    source, drawn = bursty(), resampled(bursty(), 3, 20)
    rows, gaps = rows_of(drawn), np.diff(drawn.arrival_ns)
    assert len(drawn) == COUNT
    follows = np.diff(rows) == 1
    assert follows.sum() >= COUNT - COUNT // 20
    assert (drawn.output_tokens == source.output_tokens[rows]).all()
    original = np.diff(source.arrival_ns, prepend=0)
    own = rows[1:] > 0  # the first row has the mean gap
    assert (gaps[own] == original[rows[1:]][own]).all()
    assert drawn.arrival_ns[0] == source.arrival_ns[0]
    assert "moving-block bootstrap, seed 3" in drawn.labels[-1]


def test_the_same_seed_draws_the_same_and_another_another() -> None:
    one, again, other = (resampled(bursty(), seed) for seed in (1, 1, 2))
    assert (one.arrival_ns == again.arrival_ns).all()
    assert (rows_of(one) == rows_of(again)).all()
    assert (rows_of(one) != rows_of(other)).any()


def test_blocks_are_as_long_as_the_cube_root_unless_said() -> None:
    assert [block_rows(count) for count in (1, 8, 1000, 19_366)] == [1, 2, 10, 27]
    assert "blocks of 8 " in resampled(bursty(), 0).labels[-1]
    assert "blocks of 40 " in resampled(bursty(), 0, 40).labels[-1]


def test_means_over_seeds_are_those_of_the_trace() -> None:
    """Within three standard errors, and one percent for the ends of the trace, which fewer blocks hold."""
    source, seeds = bursty(), 200
    lengths, gaps = np.empty(seeds), np.empty(seeds)
    for seed in range(seeds):
        drawn = resampled(source, seed, 8)
        lengths[seed], gaps[seed] = drawn.output_tokens.mean(), np.diff(drawn.arrival_ns).mean()
    for found, expected in (
        (lengths, source.output_tokens.mean()),
        (gaps, np.diff(source.arrival_ns).mean()),
    ):
        assert found.std() > 0
        assert abs(found.mean() - expected) < 3 * found.std() / np.sqrt(seeds) + 0.01 * expected


def test_longer_blocks_tell_more_of_what_hangs_together() -> None:
    """The mean gap of a slow wave varies more from seed to seed when whole pieces of it are drawn."""

    def spread(size: int) -> float:
        means = [np.diff(resampled(bursty(), seed, size).arrival_ns).mean() for seed in range(60)]
        return float(np.std(means))

    assert spread(40) > 2 * spread(1)


def test_a_request_drawn_again_shares_with_its_kind_alone() -> None:
    blocks = PrefixBlocks.of([[7, 10 + row // 2] for row in range(COUNT)], 16)
    session = Names.of([f"talk {row // 2}" for row in range(COUNT)])
    drawn = resampled(replace(bursty(), prefix=blocks, session=session), 5, 6)
    assert isinstance(drawn.prefix, PrefixBlocks)
    assert drawn.session is not None
    seen: dict[int, int] = {}
    begins: dict[int, set[int]] = {}
    for at, row in enumerate(rows_of(drawn).tolist()):
        copy = seen[row] = seen.get(row, -1) + 1
        begins.setdefault(copy, set()).add(drawn.prefix[at][0])
        assert drawn.session[at] == (f"talk {row // 2}" if copy == 0 else f"talk {row // 2}#{copy}")
    assert max(seen.values()) >= 2
    assert all(len(ids) == 1 for ids in begins.values())  # what all prompts begin with
    assert len(set.union(*begins.values())) == len(begins)


def test_turns_drawn_again_are_another_conversation() -> None:
    turns = Turns(np.arange(COUNT) // 3, common_tokens=4)
    drawn = resampled(replace(bursty(), prefix=turns), 5, 6)
    assert isinstance(drawn.prefix, Turns)
    rows = rows_of(drawn)
    repeated = np.flatnonzero(rows == np.bincount(rows).argmax())
    assert len(set(drawn.prefix.stream[repeated].tolist())) == len(repeated) >= 2
    assert drawn.prefix.common_tokens == 4


@pytest.mark.parametrize("size", [0, COUNT // 2 + 1])
def test_blocks_that_cannot_be_are_refused(size: int) -> None:
    refuses(TraceError, r"trace\.block_requests", resampled, bursty(), 0, size)


def test_one_request_cannot_be_drawn_again() -> None:
    refuses(TraceError, "has only one request", resampled, bursty().limited(1), 0)


@pytest.mark.parametrize(
    "words, sentence",
    [
        (("trace=azure_conv_like", "trace.resample=block"), "every seed draws anew"),
        (("trace=azure_conv", "trace.resample=jackknife"), "write one of block"),
        (("trace=azure_conv", "trace.block_requests=20"), "write trace.resample=block too"),
        (("trace=azure_conv", "trace.resample=block", "trace.block_requests=0"), "at least 1"),
    ],
)
def test_a_configuration_that_makes_no_sense_is_refused(words: tuple[str, ...], sentence: str) -> None:
    refuses(UserError, sentence, load_config, [*words, "out=unused"], "simulate", alone=True)


def test_the_saved_configuration_has_the_keys_only_where_they_are_used(tmp_path: Path) -> None:
    words = ["trace=azure_conv", "out=unused"]
    plain, drawn = (load_config([*words, *more], "simulate") for more in ([], ["trace.resample=block"]))
    assert "resample" not in resolved_yaml(plain)
    assert "resample: block" in resolved_yaml(drawn)
    for config in (plain, drawn):
        file = tmp_path / "config.yaml"
        file.write_text(resolved_yaml(config))
        assert load_resolved(file) == config
