"""What schedulers know of an instance: its last load report (``serving.engine.load_reports``)."""

from typing import NamedTuple


class LoadReport(NamedTuple):
    """Of one instance. ``preempted``: of those that wait, the ones that were at work before.

    ``first_waiting_tokens``: prompt and generated tokens of its queue's head; ``waiting_tokens``: of all.
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
