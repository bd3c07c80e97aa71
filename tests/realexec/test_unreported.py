"""Steps after which nothing is to be decided reach the controller with the next event."""

from typing import Any

from realexec.wire.messages import StepsDone
from realexec.world.reported import Reported
from realexec.world.unreported import UnreportedSteps

START_NS = 1000


def report(*ends_ns: int, tokens: dict[int, tuple[int, ...]], **others: Any) -> StepsDone:
    keys = {"finished": (), "running": True, **others}
    ends = tuple([START_NS + end for end in ends_ns])
    return StepsDone(epoch=3, started_ns=ends[0] - 5, ends_ns=ends, tokens=tokens, cpu_ns=7, **keys)


def test_kept_steps_come_with_the_event_that_ends_the_run() -> None:
    steps = UnreportedSteps(Reported(None), START_NS)
    assert steps.keeps(0, report(10, tokens={1: (5,), 2: (6,)}))
    assert steps.keeps(0, report(20, tokens={1: (7,), 2: (8,)}))
    assert [steps.steps(0, before_ns) for before_ns in (10, 11, 20, 21)] == [0, 1, 1, 2]
    assert steps.steps(1, 21) == 0
    last = report(30, tokens={1: (9,), 2: (4,), 3: (1,)}, finished=(1,), joins=(0,))
    assert not steps.keeps(0, last)
    whole = steps.event(0, last)
    assert whole.tokens == {1: (5, 7, 9), 2: (6, 8, 4), 3: (1,)}
    assert [end - START_NS for end in whole.ends_ns] == [10, 20, 30]
    assert (whole.started_ns, whole.joins, whole.finished, whole.cpu_ns) == (START_NS + 5, (2,), (1,), 21)


def test_during_an_event_its_own_steps_count_and_afterwards_those_that_follow() -> None:
    steps = UnreportedSteps(Reported(None), START_NS)
    steps.keeps(0, report(10, tokens={1: (5,)}))
    steps.event(0, report(20, tokens={1: (6,)}, finished=(1,)))
    assert [steps.steps(0, before_ns) for before_ns in (15, 20, 21)] == [1, 1, 0]
    steps.keeps(0, report(30, tokens={2: (5,)}))
    assert steps.steps(0, 31) == 1


def test_the_end_of_a_run_joins_and_other_requests_are_events() -> None:
    steps = UnreportedSteps(Reported(None), START_NS)
    assert not steps.keeps(0, report(10, tokens={1: (5,)}, running=False))
    assert not steps.keeps(0, report(10, tokens={1: (5,)}, joins=(0,)))
    assert steps.keeps(0, report(10, tokens={1: (5,)}))
    assert not steps.keeps(0, report(20, tokens={2: (5,)})), "one has left the batch"


def test_a_lost_replica_has_no_steps() -> None:
    steps = UnreportedSteps(Reported(None), START_NS)
    steps.keeps(0, report(10, tokens={1: (5,)}))
    steps.lose(0)
    assert steps.steps(0, 11) == 0
