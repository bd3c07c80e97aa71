"""What the driver's thread makes of a worker's message; the workers only write down what they are told."""

from types import SimpleNamespace
from typing import Any

from realexec.wire.messages import Forget, StepsDone
from realexec.world.execution import Execution
from serving.vocabulary.actions import Assign, Fail, Run
from serving.vocabulary.events import Ran
from tests.worlds.told_workers import ToldWorld


def test_a_request_that_failed_while_its_last_token_was_computed_has_not_finished() -> None:
    """The controller has given it up, as where a live batch's target is lost: it knows it no more."""
    told = ToldWorld()
    controller: Any = SimpleNamespace(step_counts=None)  # is asked for nothing else
    execution = Execution(
        controller=controller,
        pool=told.pool,
        world=told.world,
        tracker=told.tracker,
        journal=None,
        report_timeout_s=10.0,
        opens=False,
    )  # type: ignore[arg-type]
    for number in (7, 8):
        told.arrive(number, output=1)
    chunks = (7, 0, 3), (8, 0, 3)
    told.does(*(Assign(number, 1, "") for number in (7, 8)), Run(1, 0, chunks, True, 1, True, ""))
    assert told.does(Fail(7, "the target of its batch was lost")) == [(1, Forget(7))]
    done = StepsDone(
        epoch=0, started_ns=10, ends_ns=(20,), tokens={7: (5,), 8: (6,)}, finished=(7, 8), running=False
    )
    assert execution._fact(1, done) == Ran(1, 0, 1, (8,), False)
    assert told.tracker.failed == 1 and sorted(told.tracker.generations) == [8]
