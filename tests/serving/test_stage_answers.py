"""What a stage scaler answers that it may not is told as its fault, with what is wrong."""

from dataclasses import dataclass, replace
from typing import Any

import pytest

from serving.protocols.stage_answers import CheckedStageScaler
from serving.protocols.stages import (
    EvictCopy,
    KeepCopy,
    MarkKeyStages,
    SetBatch,
    SetCores,
    StageReplicaView,
    StartReplicas,
    StopReplicas,
)
from serving.vocabulary.errors import PolicyError
from tests.worlds.pipeline_views import GIB, host, pipeline, stage

DRAINING = (StageReplicaView(100, 0, "serving"), StageReplicaView(101, 0, "draining"))
VIEW = pipeline(
    [stage(0, 2), stage(1, there=DRAINING), stage(2, minimum=0, maximum=2)],
    [host(0, 2, [("m", 0), ("other", 3)], free_cores=3), host(1, used_bytes=1020 * GIB)],
    max_replicas=6,
)


@dataclass
class Says:
    """A stage scaler that always answers, or raises, this."""

    answer: Any

    def scale(self, view: object) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def start(stage: Any = 0, count: Any = 1, **other: Any) -> StartReplicas:
    return replace(StartReplicas(stage, count, "because"), **other)


FAULTS = [
    (None, "the answer is a NoneType, not a tuple"),
    (("start",), "a decision cannot be a str"),
    ((start(reason=""),), "the reason is empty"),
    ((start(reason=3),), "the reason must be a str, not a int"),
    ((start(3),), "m has no stage 3"),
    ((start("0"),), "m has no stage '0'"),
    ((start(count=0),), "count must be an int of 1 or more, not 0"),
    ((start(count=True),), "count must be an int of 1 or more, not True"),
    ((start(source="peer"),), "the source 'peer' is unknown"),
    ((start(cpu_cores=-1),), "cpu_cores must be an int of 0 or more, not -1"),
    ((start(count=2, gpus=(2,)),), "gpus must be a tuple of 2 GPUs, or empty"),
    ((start(gpus=(9,)),), "GPU 9 does not exist"),
    ((start(gpus=(4,), source="host"),), "host 1 has no copy of stage 0"),
    ((start(2, count=2, gpus=(2, 3), cpu_cores=2),), "host 0 lacks 1 cores for the decision"),
    ((start(0, 2), start(1, 2)), "8 replicas in all are above 6"),
    ((start(2, 2),), "3 replicas of stage 2 are above 2"),
    ((StopReplicas(0, (0, 1), "b"),), "0 replicas of stage 0 are below 1"),
    ((StopReplicas(0, (), "b"),), "replicas must be a tuple of ids that is not empty"),
    ((StopReplicas(0, (7,), "b"),), "stage 0 has no replica 7"),
    ((StopReplicas(0, (1,), "b"), StopReplicas(0, (1,), "b")), "replica 1 is named twice"),
    ((StopReplicas(1, (101,), "b"),), "replica 101 is draining already"),
    ((SetCores(0, (0,), 0, "b"),), "cpu_cores must be an int of 1 or more, not 0"),
    ((SetCores(0, (0, 1), 3, "b"),), "host 0 lacks 1 cores for the decision"),
    ((SetBatch(0, (0,), 2, "b"),), "most must be an int from 1 to 1, the pipeline's batch, not 2"),
    ((SetBatch(0, (0,), 1, "b"), SetBatch(0, (0,), 1, "b")), "replica 0 is named twice"),
    ((SetBatch(0, (7,), 1, "b"),), "stage 0 has no replica 7"),
    ((KeepCopy(0, 7, "b"),), "host 7 does not exist"),
    ((KeepCopy(0, 0, "b"),), "host 0 has a copy of stage 0 already"),
    ((KeepCopy(0, 1, "b"),), f"host 1 lacks {GIB} bytes for the decision"),
    ((EvictCopy("m", 1, 0, "b"),), "host 0 has no copy of stage 1 of 'm'"),
    ((EvictCopy("m", 0, 0, "b"), EvictCopy("m", 0, 0, "b")), "the copy is named twice"),
    ((MarkKeyStages((0, 5), "b"),), "stages must be a tuple of stages of m"),
    ((MarkKeyStages((0, 0), "b"),), "a stage is named twice"),
]


@pytest.mark.parametrize(("answer", "why"), FAULTS)
def test_a_wrong_answer_is_told(answer: Any, why: str) -> None:
    with pytest.raises(PolicyError) as told:
        CheckedStageScaler(Says(answer)).scale(VIEW)
    assert f", but {why}" in str(told.value)
    assert "test_stage_answers:Says" in str(told.value)


def test_gpu_memory_is_never_over_committed_by_one_answer() -> None:
    view = pipeline([stage(0, bytes=30 * GIB)])
    CheckedStageScaler(Says((start(gpus=(4,)),))).scale(view)
    with pytest.raises(PolicyError, match=f"GPU 4 lacks {12 * GIB} bytes for the decision"):
        CheckedStageScaler(Says((start(count=2, gpus=(4, 4)),))).scale(view)


def test_what_it_raises_is_its_fault() -> None:
    with pytest.raises(PolicyError, match="raised ZeroDivisionError: by nothing"):
        CheckedStageScaler(Says(ZeroDivisionError("by nothing"))).scale(VIEW)


def test_a_right_answer_passes_as_it_is() -> None:
    answer = (
        MarkKeyStages((0,), "long queue"),
        StopReplicas(0, (1,), "idle"),
        start(gpus=(2,), source="host", cpu_cores=2),
        SetCores(0, (0,), 2, "slow"),
        EvictCopy("other", 3, 0, "oldest"),
        EvictCopy("m", 0, 0, "oldest"),
    )
    assert CheckedStageScaler(Says(answer)).scale(VIEW) is answer
    assert CheckedStageScaler(Says(())).scale(VIEW) == ()


def test_a_copy_fits_where_another_goes() -> None:
    view = pipeline([stage(0)], [host(0, copies=[("other", 3)], used_bytes=1024 * GIB)])
    with pytest.raises(PolicyError, match="host 0 lacks"):
        CheckedStageScaler(Says((KeepCopy(0, 0, "b"),))).scale(view)
    CheckedStageScaler(Says((EvictCopy("other", 3, 0, "b"), KeepCopy(0, 0, "b")))).scale(view)


def test_a_copy_that_is_read_leaves_no_room_when_it_goes() -> None:
    """By a load under way, or by a start of the same answer."""
    copies = host(0, copies=[("m", 1)]).copies
    evict, keep = EvictCopy("m", 1, 0, "b"), KeepCopy(0, 0, "b")
    start = StartReplicas(1, 1, "b", (3,))
    for own, answer in ((replace(copies[0], in_use=True), ()), (copies[0], (start,)), (copies[0], ())):
        full = replace(host(0, used_bytes=1024 * GIB), copies=(own,))
        scaler = CheckedStageScaler(Says((*answer, evict, keep)))
        view = pipeline([stage(0), stage(1)], [full])
        if own.in_use or answer:
            with pytest.raises(PolicyError, match="host 0 lacks"):
                scaler.scale(view)
        else:
            assert scaler.scale(view)


def test_supply_and_rates_of_a_stage() -> None:
    assert (VIEW.stages[1].supply, VIEW.stages[1].serving, VIEW.supply) == (1, 1, 4)
    assert stage(0, batch=4.0, service_s=0.2).replica_per_s == 20.0
    assert (VIEW.hosts_with(0), VIEW.hosts_with(1), VIEW.hosts[0].free_gpus) == ((0,), (), 2)
