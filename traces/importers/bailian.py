"""Traces of Alibaba's Bailian as JSON lines: Mooncake's keys, but seconds, blocks of 16 tokens and chats.

Source of the format: github.com/alibaba-edu/qwen-bailian-usagetraces-anon: chat_id and parent_chat_id (-1:
none) of each request, timestamp in seconds since the trace's start, salted ids of blocks of 16 tokens.
"""

from pathlib import Path
from typing import Final

from traces.importers.json_lines import Spot, first_row
from traces.importers.mooncake import HASHES, OUTPUT, PROMPT, TIME, BlockKeys, read_blocks
from traces.times import Clock
from traces.workload import Workload

BLOCK_TOKENS: Final = 16
CHAT: Final = "chat_id"
PARENT: Final = "parent_chat_id"
_EXAMPLE: Final = f'{{"{CHAT}": 0, "{TIME}": 0.25, "{PROMPT}": 35, "{OUTPUT}": 50, "{HASHES}": [0, 1, 2]}}'


def read_bailian(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    block_tokens: int = BLOCK_TOKENS,
    partial_prefix: bool = False,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written. See ``read_mooncake``.

    The first chat of a chain of parents is the session; what their turns share is in the block ids.
    time_unit None: s.
    """
    if first_row(Path(path), _EXAMPLE).get(CHAT) is None:
        raise Spot(Path(path), 1).error("it is missing", f"write {_EXAMPLE}, or read it as mooncake", CHAT)
    keys = BlockKeys(TIME, Clock("s"), _EXAMPLE, chat=CHAT, parent=PARENT)
    return read_blocks(
        path,
        keys,
        name=name,
        limit=limit,
        block_tokens=block_tokens,
        partial_prefix=partial_prefix,
        time_unit=time_unit,
    )
