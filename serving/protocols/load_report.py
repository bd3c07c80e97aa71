"""The last load report of an instance, which schedulers read (``serving.engine.load_reports``)."""

from typing import Final, Literal, NamedTuple

ReportsAt = Literal["changes", "step_ends", "ticks"]
"""When an instance sends load reports: see ``serving.engine.load_reports``."""


class LoadReport(NamedTuple):
    """The last load report of one instance.

    ``total_blocks``, ``free_blocks``: KV blocks. ``watermark_blocks``: blocks kept free at admission.
    ``block_tokens``: tokens of a block. ``running``, ``waiting``: requests. ``preempted``: waiting requests
    that ran before. ``first_waiting_tokens``: known tokens of the head of its queue, with those that would
    fill its ``sequence_blocks``. ``waiting_tokens``: the same of all waiting requests. ``high_running``,
    ``high_waiting``: requests with a priority above 0; engines that ignore priorities count the waiting ones
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


_FREE: Final = LoadReport._fields.index("free_blocks")


def with_free_blocks(report: LoadReport, free_blocks: int) -> LoadReport:
    """As ``_replace``, which takes five times as long; unpacking into one tuple makes a list first."""
    fields = report[:_FREE] + (free_blocks,) + report[_FREE + 1 :]  # noqa: RUF005
    return tuple.__new__(LoadReport, fields)
