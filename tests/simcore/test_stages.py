"""Models in stages in virtual time: closed forms of pipelines, inputs, shared GPUs, CPU cores, batches."""

from itertools import pairwise

import pytest

from serving.record.replay import replay
from tests.worlds.stage_world import MS, StageCase, controller_of, run

STAGE_MS = (10, 30, 20)


def case(requests: int = 4, every_ns: int = 0, **more: object) -> StageCase:
    """Three stages on a GPU each, of 10, 30 and 20 ms."""
    arrivals = [every_ns * n for n in range(requests)]
    times = [[ms * MS] * requests for ms in STAGE_MS]
    own = {"gpus": ((0,), (1,), (2,)), **more}
    return StageCase(arrivals, times, **own)  # type: ignore[arg-type]


def ends_ms(found: object) -> list[float]:
    return [one[3] / MS for _, one in sorted(found.recorder.done.items())]  # type: ignore[attr-defined]


def test_one_request_takes_the_sum_and_a_train_of_them_the_slowest_stage_each() -> None:
    assert ends_ms(run(case(1))) == [60]
    assert ends_ms(run(case(4))) == [60, 90, 120, 150]


def test_two_replicas_of_the_slowest_stage_let_the_next_one_be_the_slowest() -> None:
    assert ends_ms(run(case(4, gpus=((0,), (1, 3), (2,))))) == [60, 80, 100, 120]


def test_a_request_passes_the_stages_in_order_once() -> None:
    found = run(case(5, every_ns=7 * MS, gpus=((0,), (1, 3), (2,))))
    rows = found.log()
    assert len(rows) == 15
    for request in range(5):
        own = [row for row in rows if row["request"] == request]
        assert [row["stage"] for row in own] == [0, 1, 2]
        assert own[0]["arrived_ns"] == request * 7 * MS
        for before, after in pairwise(own):
            assert before["ended_ns"] == after["arrived_ns"] <= after["began_ns"] < after["ended_ns"]


def test_ten_events_at_most_for_a_request_of_eight_stages() -> None:
    times = [[5 * MS] * 20 for _ in range(8)]
    gpus = [(gpu,) for gpu in range(8)]
    one = StageCase([MS * n for n in range(20)], times, gpus, activation_bytes=1_000_000)
    report = run(one).report
    assert report.events == 20 * 9 + 1  # the world opens once; nothing tells of activations


def test_activations_are_an_input_of_the_pass_and_take_their_way() -> None:
    # 256 Gbps between the GPUs of a host; to another one the 6.7 GB/s of a GPU's way to the NIC.
    size = 125_000_000
    beside, across = size / 32e9 * 1e3, size / 6.7e9 * 1e3
    one = case(1, activation_bytes=size)
    assert ends_ms(run(one)) == pytest.approx([60 + 2 * beside], rel=1e-6)
    other_host = case(1, activation_bytes=size, gpus=((0,), (4,), (5,)))
    assert ends_ms(run(other_host)) == pytest.approx([60 + across + beside], rel=1e-6)
    assert ends_ms(run(case(1, activation_bytes=size, gpus=((0,), (0,), (0,))))) == [60]


def test_a_gpu_runs_one_pass_at_a_time() -> None:
    # All three stages on one GPU: it is never idle, and a pass that is ready waits for it.
    found = run(case(3, gpus=((0,), (0,), (0,))))
    assert max(ends_ms(found)) == 3 * sum(STAGE_MS)
    passes = sorted((row["began_ns"], row["ended_ns"]) for row in found.log())
    assert max(end for _, end in passes) == 180 * MS


def test_an_idle_gpu_is_taken_first() -> None:
    found = run(case(1, gpus=((0,), (0, 1), (2,))), StageCase([0], [[100 * MS]], ((0,),), model="other",
                                                              first_request=1))  # fmt: skip
    row = next(row for row in found.log() if row["stage"] == 1)
    assert row["replica"] == 2, "the replica on the GPU that nobody uses"


def test_more_cores_shorten_what_the_cpu_does_and_two_passes_share_it_not() -> None:
    # 512 of 1,024 parts are the CPU's on 2 cores: on 4 they take half as long, the GPU's part stays.
    assert ends_ms(run(case(1, cpu_parts=512))) == [60]
    assert ends_ms(run(case(1, cpu_parts=512, cores=4))) == [45]
    # A GPU of two stages is free while the CPU prepares the other's pass.
    shared = case(2, cpu_parts=512, gpus=((0,), (0,), (0,)))
    assert max(ends_ms(run(shared))) < max(ends_ms(run(case(2, gpus=((0,), (0,), (0,))))))


def test_four_cores_cut_the_median_by_a_third_against_two() -> None:
    two, four = (run(case(1, cpu_parts=676, cores=cores)) for cores in (2, 4))
    assert ends_ms(four)[0] / ends_ms(two)[0] == pytest.approx(0.67, abs=0.001)


@pytest.mark.parametrize(("batch_parts", "ends"), [(1024, [60, 140, 140]), (0, [60, 90, 90])])
def test_a_batch_takes_its_longest_and_a_share_of_the_others(batch_parts: int, ends: list[float]) -> None:
    # The first goes alone. The others follow together: for the second stage they wait until it has left it at
    # 40 ms, and take it and the last one twice as long as one, or as long where the other costs nothing.
    assert ends_ms(run(case(3, batch=2, batch_parts=batch_parts))) == pytest.approx(ends)


def test_a_queue_per_replica_keeps_what_was_dispatched_to_it() -> None:
    # One replica of the second stage is slow for its first request; the other one goes on.
    times = [[MS] * 4, [100 * MS, MS, MS, MS], [MS] * 4]
    arrivals = [0, 10 * MS, 20 * MS, 30 * MS]
    common = StageCase(arrivals, times, ((0,), (1, 3), (2,)))
    own = StageCase(arrivals, times, ((0,), (1, 3), (2,)), queues="replica")
    assert ends_ms(run(common)) == [102, 13, 23, 33]
    assert ends_ms(run(own)) == [102, 13, 23, 33], "least outstanding sends nothing to the slow one"


def test_with_queues_per_replica_a_request_waits_for_the_one_it_was_sent_to() -> None:
    # Three at once: two go to replica 0 of the only stage, which is slow; the other is idle soon.
    times = [[100 * MS, MS, MS]]
    assert ends_ms(run(StageCase([0, 0, 0], times, ((0, 1),)))) == [100, 1, 2]
    assert ends_ms(run(StageCase([0, 0, 0], times, ((0, 1),), queues="replica"))) == [100, 1, 101]


def test_the_journal_replays() -> None:
    one = case(6, every_ns=11 * MS, activation_bytes=1_000_000, batch=2)
    found = run(one)
    report = replay(found.journal(), controller_of(one))
    assert report.events == len(found.lines) and report.first_difference is None
