"""Start-up terms and the finite pools that take them away."""

import math

import pytest

from hwmodels.errors import HardwareError
from hwmodels.loading.startup import (
    ConnectionPool,
    ContextPool,
    StartUp,
    StartUpTimes,
    load_start_up,
    start,
    start_up_names,
)


def test_every_start_up_of_the_catalogue_loads_and_has_a_source() -> None:
    assert {"blitzscale", "none", "own_workers", "vllm"} == set(start_up_names())
    assert all(load_start_up(name).source for name in start_up_names())
    assert "rough" in load_start_up("own_workers").source and "rough" in load_start_up("vllm").source


def test_blitzscale_pays_half_a_second_and_a_tenth_without_pools() -> None:
    times = start(load_start_up("blitzscale"), ContextPool(0), ConnectionPool(), [0, 1])
    assert times == StartUpTimes(pytest.approx(0.6), 0.0)


def test_full_pools_cost_nothing() -> None:
    times = start(load_start_up("blitzscale"), ContextPool(2), ConnectionPool(ready=[[1, 0]]), [0, 1])
    assert times == StartUpTimes(0.0, 0.0)


def test_one_empty_place_holds_the_whole_instance_up() -> None:
    contexts = ContextPool(4, ready=3)
    startup = StartUp(
        process_s=1.0, cuda_context_s=0.5, connections_s=0.1, engine_init_s=2.0, source="of the test"
    )
    assert start(startup, contexts, ConnectionPool(), range(4)) == StartUpTimes(pytest.approx(1.6), 2.0)
    assert contexts.ready == 0


def test_contexts_come_back_up_to_the_size_of_the_pool() -> None:
    pool = ContextPool(1)
    assert [pool.take(0.5) for _ in range(3)] == [0.0, 0.5, 0.5]
    assert [pool.give_back() for _ in range(3)] == [True, False, False]
    assert pool.take(0.5) == 0.0


def test_connections_are_made_once_and_the_oldest_goes() -> None:
    pool = ConnectionPool(2)
    assert [pool.connect(group, 0.1) for group in ([0, 1], [1, 0], [2, 3], [0, 1], [4, 5])] == [
        0.1,
        0.0,
        0.1,
        0.0,
        0.1,
    ]
    assert pool.connect([2, 3], 0.1) == 0.1
    assert pool.connect([7], 0.1) == 0.0
    assert [ConnectionPool(0).connect([0, 1], 0.1) for _ in range(2)] == [0.1, 0.1]


def test_the_connections_of_a_gpu_that_is_gone_are_gone() -> None:
    pool = ConnectionPool(ready=[[0, 1], [2, 3]])
    pool.forget(1)
    assert (pool.connect([0, 1], 0.1), pool.connect([2, 3], 0.1)) == (0.1, 0.0)


@pytest.mark.parametrize("value", [-1.0, math.inf, math.nan])
def test_what_start_ups_refuse(value: float) -> None:
    with pytest.raises(HardwareError, match="cuda_context_s of a start-up"):
        StartUp(
            process_s=0.0, cuda_context_s=value, connections_s=0.0, engine_init_s=0.0, source="of the test"
        )


def test_what_pools_and_names_refuse() -> None:
    for size, ready in ((-1, None), (1, 2)):
        with pytest.raises(HardwareError, match="contexts cannot be ready"):
            ContextPool(size, ready)
    with pytest.raises(HardwareError, match="a pool cannot have -1 connections"):
        ConnectionPool(-1)
    with pytest.raises(HardwareError, match="write one of blitzscale, none, own_workers, vllm"):
        load_start_up("blitz")
