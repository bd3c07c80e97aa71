"""What schedulers know of an instance: its last load report (``serving.engine.load_reports``)."""

from typing import Literal, NamedTuple

ReportsAt = Literal["changes", "step_ends", "ticks"]
"""When an instance tells how it stands: see ``serving.engine.load_reports``."""


class LoadReport(NamedTuple):
    """Of one instance. ``preempted``: of those that wait, the ones that were at work before.

    ``first_waiting_tokens``: prompt and generated tokens of its queue's head; ``waiting_tokens``: of all.
    ``high_running``, ``high_waiting``: requests of a priority above 0. Where engines do not look at
    priorities those who wait are counted with the others.
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
