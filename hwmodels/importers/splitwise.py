"""Splitwise's table of whole prompts and tokens, measured end to end: iterations for the linear rung.

It holds no operations, so it cannot become a profile of operation tables.
"""

from pathlib import Path
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.importers.tables import Table, read_table
from hwmodels.step_times.fit import Iteration

SOURCE: Final = "Mutinifni/splitwise-sim"
LICENCE: Final = "MIT"
_COUNTS: Final = ("prompt_size", "batch_size", "token_size", "tensor_parallel")
_SYNTHETIC: Final = "h100-80gb-pcap"  # rows computed by a model of power caps, not measured
_IMPOSSIBLE: Final = (2, 64)  # tp and batch size of rows whose KV would not fit on two GPUs
_NOTES: Final = (
    "end to end: the engine's overhead is in these times",
    "decode: the mean token of a run, at a context of prompt_size + token_size / 2 of each sequence",
)


def read_splitwise(path: Path, hardware: str, tp: int) -> tuple[list[Iteration], tuple[str, ...]]:
    """Prefill and decode iterations of one kind of hardware (as named in the file), and notes on them.

    Seconds per step. Prefill: ``count`` tokens of all prompts, ``work`` the sum of their squares. Decode:
    ``count`` sequences, ``work`` their total context. HardwareError if no measured row is left.
    """
    if hardware == _SYNTHETIC:
        raise HardwareError(f"the rows of {_SYNTHETIC} in {path} are synthetic; write hardware=h100-80gb")
    table = read_table(path, _COUNTS, times=("prompt_time", "token_time"), words=("model", "hardware"))
    rows = table.having(hardware=hardware, tensor_parallel=tp)
    bad = np.asarray((tp == _IMPOSSIBLE[0]) & (rows.counts["batch_size"] == _IMPOSSIBLE[1]), dtype=np.bool_)
    good = rows.where(~bad)
    if not len(good):
        raise HardwareError(
            f"{path} has no plausible rows for hardware={hardware} tp={tp}; write another hardware or tp"
        )
    dropped = (
        f"left out: {int(bad.sum())} impossible rows (tp {_IMPOSSIBLE[0]} with {_IMPOSSIBLE[1]} sequences), "
        f"{int((table.words['hardware'] == _SYNTHETIC).sum())} synthetic ones ({_SYNTHETIC})",
    )
    file = (f"{path.name} sha256 {table.sha256}, {SOURCE}, {LICENCE}",)
    return [*_iterations(good, "prefill"), *_iterations(good, "decode")], (*_NOTES, *dropped, *file)


def _iterations(rows: Table, phase: str) -> list[Iteration]:
    batch, prompt, new = (rows.counts[name] for name in ("batch_size", "prompt_size", "token_size"))
    if phase == "prefill":
        count, work, milliseconds = batch * prompt, batch * prompt**2, rows.times["prompt_time"]
    else:
        count, work, milliseconds = batch, batch * (2 * prompt + new) // 2, rows.times["token_time"]
    return [
        Iteration(
            gpu=str(gpu),
            model=str(model),
            tp=int(tp),
            phase=phase,
            batch=int(size),
            count=int(counted),
            work=int(worked),
            seconds=float(ms) / 1e3,
        )
        for gpu, model, tp, size, counted, worked, ms in zip(
            rows.words["hardware"],
            rows.words["model"],
            rows.counts["tensor_parallel"],
            batch,
            count,
            work,
            milliseconds,
        )
    ]
