"""The last load report of an instance, which schedulers read (``serving.engine.load_reports``)."""

from typing import Literal, NamedTuple

ReportsAt = Literal["changes", "step_ends", "ticks"]
"""When an instance sends load reports: see ``serving.engine.load_reports``."""


class LoadReport(NamedTuple):
    """The load report of one instance. ``preempted``: waiting requests that ran before.

    ``first_waiting_tokens``: number of prompt and generated tokens of the head of its queue, with those that
    would fill the blocks of its windows and states (``Replica.sequence_blocks``); ``waiting_tokens``: the
    same for all waiting requests together. ``high_running``, ``high_waiting``:
    numbers of requests with a priority above 0. If engines ignore priorities, the waiting ones are counted
    with the others.
    """

    total_blocks: int
    watermark_blocks: int
    block_tokens: int
    free_blocks: int
    running: int
    waiting: int
    preempted: int
    first_waiting_tokens: int
    waiting_tokens: int
    high_running: int = 0
    high_waiting: int = 0
