"""The same work for every simulator: requests, the limits of a replica, and our step times as tables."""

from __future__ import annotations

import math
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Final

import numpy as np

from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import Prepared, prepare

if TYPE_CHECKING:
    from numpy.typing import NDArray

REPLICAS: Final = 8
WORDS: Final = (
    "system=vllm", "model=llama3_8b", "trace=azure_conv", "trace.limit=10000", f"cluster=a100_x{REPLICAS}",
)  # fmt: skip
POINTS: Final = 200  # of a table, along each of its axes


@dataclass(frozen=True)
class PeerWork:
    """What ``WORDS`` mean, for simulators that cannot read them."""

    prepared: Prepared

    def __len__(self) -> int:
        return len(self.prepared.workload)

    @cached_property
    def requests(self) -> list[tuple[int, int, int]]:
        """(arrival in ns, prompt tokens, output tokens), the outputs capped as they are in our run."""
        workload, caps = self.prepared.workload, self.prepared.limits.caps
        columns = (workload.arrival_ns, workload.prompt_tokens, np.minimum(workload.output_tokens, caps))
        return list(zip(*(column.tolist() for column in columns), strict=True))

    @property
    def max_num_seqs(self) -> int:
        return self.prepared.config.engine.max_num_seqs

    @property
    def max_num_batched_tokens(self) -> int:
        return self.prepared.config.engine.max_num_batched_tokens

    @property
    def block_tokens(self) -> int:
        return self.prepared.replicas[0].block_tokens

    @property
    def kv_blocks(self) -> int:
        return self.prepared.replicas[0].kv_blocks

    @property
    def mean_context(self) -> float:
        """Tokens of a request in the middle of its output."""
        return sum(prompt + output / 2 for _, prompt, output in self.requests) / len(self)

    @property
    def largest_context(self) -> int:
        return max(prompt + output for _, prompt, output in self.requests)

    @cached_property
    def _rows(self) -> StepRows:
        rows = self.prepared.hardware.rows
        assert isinstance(rows, StepRows)
        return rows

    def prefill_ms(self, tokens: int) -> float:
        """A step with a prompt (or a chunk) of so many tokens and nothing else."""
        return self._rows.mixed(0, 0, ((0, 0, tokens),)) / FIXED_PER_S * 1e3

    def decode_ms(self, sequences: float, context: float) -> float:
        """A decode step of so many sequences, ``context`` tokens in all; at most what a replica may hold."""
        count = min(max(1, math.ceil(sequences)), self.max_num_seqs)
        held = min(max(count, round(context)), self.kv_blocks * self.block_tokens)
        return self._rows.decode_cost(count, held) / FIXED_PER_S * 1e3

    def prefill_tokens(self) -> NDArray[np.int64]:
        """The points of a table of prefill steps."""
        return np.unique(np.linspace(1, self.max_num_batched_tokens, POINTS).astype(np.int64))


def work() -> PeerWork:
    """That of ``WORDS``. TraceError where the trace is not there."""
    return PeerWork(prepare(load_config([*WORDS, "out=unused"], "simulate")))
