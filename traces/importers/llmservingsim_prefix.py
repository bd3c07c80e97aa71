"""LLMServingSim workloads as JSON lines: Mooncake's keys, but arrivals in ns and ids of small full blocks.

Made from the workloads of casys-kaist/LLMServingSim (MIT) by giving every full block of 16 tokens a number in
order of first appearance; a block's id stands for all before it, too.
"""

from pathlib import Path
from typing import Final

from traces.importers.mooncake import HASHES, OUTPUT, PROMPT, BlockKeys, read_blocks
from traces.times import Clock
from traces.workload import Workload

BLOCK_TOKENS: Final = 16
"""Tokens of a block: that of vLLM's KV cache."""
TIME: Final = "arrival_time_ns"
_EXAMPLE: Final = f'{{"{TIME}": 0, "{PROMPT}": 35, "{OUTPUT}": 50, "{HASHES}": [0, 1]}}'


def read_llmservingsim_prefix(
    path: str | Path,
    *,
    name: str | None = None,
    limit: int | None = None,
    block_tokens: int = BLOCK_TOKENS,
    partial_prefix: bool = False,
    time_unit: str | None = None,
) -> Workload:
    """The requests of one file; arrivals count from the run's start, as written. See ``read_mooncake``."""
    keys = BlockKeys(TIME, Clock("ns", stated=True), _EXAMPLE)
    return read_blocks(path, keys, name, limit, block_tokens, partial_prefix, time_unit)
