"""How instances start: cold, warm, hot, pooled; what a host keeps of one start for the next."""

from dataclasses import replace

import pytest

from hwmodels.loading.start_terms import StartTerms, load_start_terms
from hwmodels.loading.starting import Starting
from serving.vocabulary.actions import AllocateGpus, Load, ReleaseGpus, StopLoad
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from tests.worlds.data_planes import GBPS, MODEL_BYTES, NONE, SHAPE, ideal, load, told, whole

LAYERS = SHAPE.layers
BYTES_S = MODEL_BYTES / (128 * GBPS)
# Whole numbers, each of another power, so that a sum tells its terms.
TERMS: StartTerms = replace(
    load_start_terms("vllm"),
    process_s=1000.0,
    context_s=200.0,
    communicator_s=40.0,
    p2p_check_s_per_pair=10.0,
    compile_s_per_layer=100 / LAYERS,
    compile_cached_s_per_layer=30 / LAYERS,
    profiling_s=5.0,
    graphs_s=3.0,
    graph_s_per_layer=0.0,
    first_request_s=0.5,
    wake_s=7.0,
    sleep_bytes_per_s=MODEL_BYTES / 60,
)
BEFORE_S, AFTER_S, COMPILE_S, CACHED_S = 1200.0, 8.5, 100.0, 30.0
SLOW_S = MODEL_BYTES / 5.87e9  # safetensors from host memory


def plane(
    kind: str, cache: str = "host", ready: bool = False, gpus: tuple[tuple[int, ...], ...] = ()
) -> DataPlane:
    gpus_of = gpus or ((0,), (1,), (8,), (9,))
    start = Starting(kind=kind, compile_cache=cache, terms=TERMS, max_num_seqs=256, ready=ready)
    models = [SHAPE.name] * len(gpus_of)
    setup = DataPlaneSetup(
        topology=ideal("blitz_b"),
        shapes={SHAPE.name: SHAPE},
        model_of=models,
        gpus_of=gpus_of,
        loader="safetensors",
        start_up=NONE,
        starting=start,
    )
    return DataPlane(setup)


def begun(replica: int, source: tuple[str, int], id: int = 0) -> Load:
    return load(source, ("replica", replica), id=id, cold=True)  # type: ignore[arg-type]


def took(data: DataPlane, *loads: tuple[float, Load]) -> list[float]:
    """Seconds from each wish to the first possible step."""
    facts = told(data, *loads)
    return [whole(facts, one.load)[0] - at_s for at_s, one in loads]


@pytest.mark.parametrize(
    ("kind", "ready", "expected_s"),
    [
        ("cold", False, BEFORE_S + SLOW_S + COMPILE_S + AFTER_S),
        ("cold", True, BEFORE_S + SLOW_S + CACHED_S + AFTER_S),
        ("warm", False, 200 + SLOW_S + CACHED_S + AFTER_S),
        ("hot", False, 7 + BYTES_S),
        ("pooled", False, SLOW_S),
    ],
)
def test_a_start_is_the_sum_of_its_terms_and_the_way_of_its_bytes(
    kind: str, ready: bool, expected_s: float
) -> None:
    data = plane(kind, ready=ready)
    assert took(data, (0.0, begun(0, ("host", 0)))) == [pytest.approx(expected_s, abs=1e-6)]
    (record,) = data.starts.records
    assert record.complete and record.kind == kind and record.seconds == pytest.approx(expected_s, abs=1e-6)
    weights_s = record.seconds - sum(seconds for _, seconds in record.terms)
    assert weights_s == pytest.approx(BYTES_S if kind == "hot" else SLOW_S, abs=1e-6)


@pytest.mark.parametrize(
    ("cache", "second_s", "other_host_s"),
    [
        ("host", CACHED_S, COMPILE_S),
        ("shared", CACHED_S, CACHED_S),
        ("none", COMPILE_S, COMPILE_S),
        ("present", CACHED_S, CACHED_S),
    ],
)
def test_a_later_start_finds_what_an_earlier_one_compiled_where_it_is_kept(
    cache: str, second_s: float, other_host_s: float
) -> None:
    data = plane("cold", cache)
    first, second, other = took(
        data,
        (0.0, begun(0, ("host", 0), 0)),
        (5000.0, begun(1, ("host", 0), 1)),
        (9000.0, begun(2, ("host", 1), 2)),
    )
    alone_s = first - (CACHED_S if cache == "present" else COMPILE_S)
    assert second - alone_s == pytest.approx(second_s, abs=1e-6)
    assert other - alone_s == pytest.approx(other_host_s, abs=1e-6)


def test_starts_at_the_same_time_both_compile() -> None:
    both = took(plane("cold"), (0.0, begun(0, ("host", 0), 0)), (99.0, begun(1, ("host", 0), 1)))
    assert both[0] - both[1] == pytest.approx(0.0, abs=1e-6)
    late = took(plane("cold"), (0.0, begun(0, ("host", 0), 0)), (101.0, begun(1, ("host", 0), 1)))
    assert late[0] - late[1] == pytest.approx(COMPILE_S - CACHED_S, abs=1e-6)  # it was done just before


@pytest.mark.parametrize(("stop_s", "kept"), [(99.0, False), (101.0, True)])
def test_a_start_that_is_stopped_leaves_what_it_had_compiled(stop_s: float, kept: bool) -> None:
    data = plane("cold")
    compiles_s = BEFORE_S + SLOW_S
    told(data, (0.0, begun(0, ("host", 0), 0)), (compiles_s + stop_s, StopLoad(0, "enough")))
    (second,) = took(data, (5000.0, begun(1, ("host", 0), 1)))
    expected_s = BEFORE_S + SLOW_S + AFTER_S + (CACHED_S if kept else COMPILE_S)
    assert second == pytest.approx(expected_s, abs=1e-6)
    assert [record.complete for record in data.starts.records] == [False, True]


def test_ranks_set_up_their_group_and_check_each_pair_once_per_host() -> None:
    data = plane("cold", gpus=((0, 1), (8, 9)))
    first, again = took(data, (0.0, begun(0, ("host", 0), 0)), (9000.0, begun(1, ("host", 1), 1)))
    assert first == pytest.approx(again, abs=1e-6)
    assert ("distributed", 40.0 + 4 * 10.0) in data.starts.records[0].terms
    ready = plane("cold", ready=True, gpus=((0, 1), (8, 9)))
    took(ready, (0.0, begun(0, ("host", 0), 0)))
    assert ("distributed", 40.0) in ready.starts.records[0].terms


def test_who_sleeps_wakes_from_its_own_host_and_nowhere_else() -> None:
    data = plane("hot")
    ssd = took(data, (0.0, begun(0, ("ssd", 0))))[0]
    assert data.starts.records[0].kind == "cold" and ssd > BEFORE_S + COMPILE_S
    other = plane("hot")
    took(other, (0.0, begun(0, ("host", 1))))
    assert other.starts.records[0].kind == "cold"


def test_falling_asleep_holds_the_gpus() -> None:
    data = plane("hot")
    data.carry_out(0, ReleaseGpus(0, "empty"))
    data.carry_out(0, AllocateGpus(0, SHAPE.name, (0,), "both", False, "more", layers=(0, LAYERS)))
    (soon,) = took(data, (20.0, begun(0, ("host", 0))))
    assert soon == pytest.approx(40 + 7 + BYTES_S, abs=1e-6)  # 60 s to copy it all, of which 20 are over


def test_who_never_came_up_does_not_fall_asleep() -> None:
    data = plane("hot")
    told(data, (0.0, begun(0, ("ssd", 0))), (1.0, StopLoad(0, "enough")))
    data.carry_out(round(2e9), ReleaseGpus(0, "empty"))
    data.carry_out(round(2e9), AllocateGpus(0, SHAPE.name, (0,), "both", False, "more", layers=(0, LAYERS)))
    assert took(data, (3.0, begun(0, ("host", 0), 1))) == [pytest.approx(7 + BYTES_S, abs=1e-6)]


def test_the_same_starts_take_the_same_terms_again() -> None:
    wishes = [
        (0.0, begun(0, ("host", 0), 0)),
        (3.0, begun(1, ("ssd", 0), 1)),
        (4.0, begun(3, ("host", 1), 2)),
    ]
    one, two = plane("cold"), plane("cold")
    assert told(one, *wishes) == told(two, *wishes)
    assert one.starts.records == two.starts.records
