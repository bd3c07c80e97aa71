"""What is asked to know which instances have memory enough for a while."""

from serving.engine.instance_load import InstanceLoad
from serving.engine.memory_watch import MemoryWatch
from serving.protocols.load_report import LoadReport
from serving.vocabulary.step_counts import StepCounts
from tests.worlds.engine_script import Script, chunked

STEP_NS = 1_000_000


class Steps:
    """No step is shorter than this."""

    def steps(self, replica: int, before_ns: int) -> int:
        """None since the last report."""
        return 0

    def least_step_ns(self, replica: int, requests: int) -> int:
        """Whatever decodes."""
        return STEP_NS


def test_a_policy_is_asked_again_only_where_more_than_free_blocks_differs() -> None:
    asked = list[LoadReport]()

    def ample_blocks(report: LoadReport) -> int:
        asked.append(report)
        return 10 * report.running + report.waiting

    known, steps = InstanceLoad(Script(chunked()).engine), StepCounts()
    steps.source = Steps()
    watch = MemoryWatch(ample_blocks, steps, {0: known})
    two = LoadReport(100, 1, 16, 60, 2, 0, 0, 0, 0)
    untils = list[int]()
    for report in (two, two._replace(free_blocks=40), two._replace(running=3), two._replace(high_running=1)):
        watch.comes(known, report, 0)
        untils.append(known.coming_ample_ns)
    # As many steps as the blocks above those asked for last, shared among those that run; less two.
    assert untils == [(20 * 16 - 2) * STEP_NS, (10 * 16 - 2) * STEP_NS, (10 * 16 - 2) * STEP_NS, untils[0]]
    assert asked == [two, two._replace(running=3), two._replace(high_running=1)]
    asked.clear()
    waits = two._replace(waiting=1, first_waiting_tokens=5, waiting_tokens=5)
    for report in (waits, waits._replace(waiting_tokens=9)):
        watch.comes(known, report, 0)
    assert len(asked) == 2  # what waits differs in more than its number
