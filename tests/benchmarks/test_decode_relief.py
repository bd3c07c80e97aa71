"""The bound on what shared decode steps could give: which steps take less time, and how much less."""

from collections.abc import Iterator, Mapping
from fractions import Fraction
from types import SimpleNamespace
from typing import Any, cast

import pytest

from benchmarks.decode_relief import (
    Added,
    Relief,
    RelievedSteps,
    as_complete,
    by_layers,
    lines_of,
    main,
    relieved,
    run,
)
from experiments.common.rates import NOWHERE
from servetwin.config.compose.compose import load_config
from servetwin.run import simulate
from serving.live.pairs import LivePair
from serving.services.colocated.service import Colocated
from serving.vocabulary.errors import UserError

LAYERS = 8
CHUNKS = ((1, 0, 100),)
WORDS = (
    "system=blitzscale",
    "system.instances.split=false",
    "cluster=blitz_b",
    "trace=azure_code_like",
    "trace.rate_scale=4",
    "trace.limit=400",
)


def pair_with(loaded: int) -> LivePair:
    pair = LivePair(7, LAYERS)
    pair.layers_loaded(loaded)
    return pair


def share(added: Added, serving: int, *pairs: LivePair) -> Fraction:
    live = SimpleNamespace(pairs=dict(enumerate(pairs)))
    service = SimpleNamespace(live=live, partners=lambda: list(range(serving)))
    return Relief(cast(Colocated, service), added).share()


@pytest.mark.parametrize(
    ("loaded", "added"), [(0, 0), (1, Fraction(1, 7)), (3, Fraction(3, 5)), (4, 1), (5, 1), (7, 1)]
)
def test_layers_add_what_the_throughput_of_a_pair_gains(loaded: int, added: Fraction) -> None:
    assert by_layers(pair_with(loaded)) == added
    assert share(by_layers, 1, pair_with(loaded)) == 1 / (1 + added)


def test_serving_instances_share_with_all_that_load_live() -> None:
    assert share(as_complete, 3, pair_with(0), pair_with(2)) == Fraction(3, 5)
    assert share(as_complete, 3, pair_with(LAYERS)) == 1  # it serves, and ends what it has begun
    assert share(as_complete, 3) == share(as_complete, 0, pair_with(0)) == 1
    stopped = pair_with(2)
    stopped.stop()
    assert share(as_complete, 3, stopped) == 1


def test_only_what_decodes_add_to_a_step_is_relieved() -> None:
    rows = simulate.prepare(load_config((*WORDS, NOWHERE), "simulate")).hardware.rows
    half = RelievedSteps(rows, lambda: Fraction(1, 2))
    (limit, cost, slope), *_ = rows.decode(8)
    assert half.decode(8)[0] == (limit, cost // 2, slope // 2)
    alone, both = rows.mixed(0, 0, CHUNKS), rows.mixed(8, 4000, CHUNKS)
    assert both > alone and half.mixed(8, 4000, CHUNKS) == alone + (both - alone) // 2
    assert half.mixed(0, 0, CHUNKS) == alone
    assert RelievedSteps(rows, lambda: Fraction(1)).decode(8) is rows.decode(8)


@pytest.fixture(scope="module")
def shipped() -> Iterator[Mapping[str, Any]]:
    yield run(WORDS)


def test_a_run_whose_loading_instances_add_nothing_is_the_shipped_run(shipped: Mapping[str, Any]) -> None:
    whole = simulate.Simulation
    with relieved(lambda _: Fraction()) as runs:
        same = run(WORDS)
    assert len(runs) == 1 and simulate.Simulation is whole
    assert shipped["live"]["passes"] > 0
    for key in ("ttft_ms", "itl_ms", "tpot_ms", "gpu_seconds", "live"):
        assert same[key] == shipped[key], key


def test_relieved_steps_take_less_time_in_a_run(shipped: Mapping[str, Any]) -> None:
    with relieved(as_complete):
        lighter = run(WORDS)
    assert lighter["itl_ms"]["p50"] < shipped["itl_ms"]["p50"]
    table = list(lines_of([shipped], {"complete": [lighter]}))
    assert table[3].startswith("TBT mean") and table[0].split() == [
        "ms",
        "shipped",
        "complete",
        "over",
        "shipped",
    ]


def test_an_unknown_word_is_refused() -> None:
    with pytest.raises(UserError, match="write seeds=5"):
        main(["seed=3"])
