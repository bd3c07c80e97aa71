"""What the load reports know of one instance between two of its reports."""

from serving.engine.engine import Engine
from serving.protocols.load_report import LoadReport, with_free_blocks
from serving.protocols.migration import NEVER_NS


class InstanceLoad:
    """State as of the last report, and of the last tick (``free_blocks``).

    ``head``: the first waiting request, -1: none. ``high``: its requests of a priority above 0, ``high_now``:
    by the latest count. ``ample_ns``, ``coming_ample_ns``, ``due_ns``, ``moved_ns``: see
    ``serving.engine.memory_watch``, which caches answers in ``ample_blocks``, ``ample_with_queue`` (of a
    report that goes on with ``ample_of``) and ``least_step_ns``.
    """

    __slots__ = (
        "ample_blocks", "ample_ns", "ample_of", "ample_with_queue", "coming", "coming_ample_ns", "due_ns",
        "engine", "free_blocks", "head", "high", "high_now", "least_step_ns", "moved_ns", "preemptions",
        "report", "running", "since", "steps", "tick_ns", "waiting",
    )  # fmt: skip

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.free_blocks = self.running = self.waiting = self.preemptions = 0
        self.tick_ns = self.high = self.high_now = 0
        self.head = -1
        self.report: LoadReport | None = None  # until one is requested
        # Reported at the end of a step: the state at its beginning; engine steps counted then, and now.
        self.coming: LoadReport | None = None
        self.since = self.steps = 0
        self.ample_ns = self.moved_ns = -1
        self.coming_ample_ns = self.due_ns = NEVER_NS
        self.ample_blocks: dict[tuple[int, int], int] = {}  # by running requests: all, of high priority
        self.ample_of: tuple[int, ...] = ()
        self.ample_with_queue = 0
        self.least_step_ns: dict[int, int] = {}


def head_of(engine: Engine) -> int:
    """The first waiting request; -1: none."""
    queue = engine.waiting or engine.unseen_arrivals
    return queue[0].id if queue else -1


def has_begun(known: InstanceLoad) -> bool:
    """Whether a pass with other requests than those of the last report has begun since."""
    return len(known.engine.running) - len(known.engine.ended) != known.running


def report_of(known: InstanceLoad) -> LoadReport:
    """Make a report; batch and queue are as when they last changed."""
    engine = known.engine
    ledger, preempted, first, tokens, high_waiting = engine.ledger, 0, 0, 0, 0
    if known.waiting:
        queue = [*engine.waiting, *engine.unseen_arrivals]
        preempted = sum([progress.was_preempted for progress in queue])
        own = engine.replica.sequence_tokens
        first = queue[0].known_tokens + own
        tokens = sum([progress.known_tokens for progress in queue]) + own * len(queue)
        if known.high:
            high_waiting = sum([progress.priority > 0 for progress in queue])
    fields = (
        ledger.total_blocks, ledger.watermark_blocks, ledger.block_tokens, known.free_blocks, known.running,
        known.waiting, preempted, first, tokens, known.high - high_waiting, high_waiting,
    )  # fmt: skip
    known.report = report = tuple.__new__(LoadReport, fields)  # its constructor takes twice as long
    return report


def told_report(known: InstanceLoad) -> LoadReport:
    """The current report with the free blocks of the last tick; made when it is read."""
    report, free = known.report, known.free_blocks
    if report is None:
        return report_of(known)
    if report.free_blocks != free:
        known.report = report = with_free_blocks(report, free)
    return report


def free_blocks_after(engine: Engine, steps: int) -> int:
    """Free blocks once this many steps of the current pass have run since the last report.

    Blocks that finished requests keep for one step more count as free, since how long depends on reports.
    """
    ledger = engine.ledger
    free = ledger.free_blocks
    if engine.ended:
        ended = tuple(engine.ended)
        free += sum([ledger.blocks_freed(ended[: count + 1]) for count in range(len(ended))])
    if not steps:
        return free
    more, residents = 0, steps
    if engine._chunks:  # prompts that are complete with its first step decode in the others
        residents -= not engine._decode_first
        for _, start, tokens in engine._chunks:
            stored = start + tokens
            more += ledger.blocks_for(stored + steps - 1) - ledger.blocks_for(stored)
    return free - ledger.blocks_of_steps(residents) - more
