"""All-reduces of an AIConfigurator folder: measured in vLLM, or NCCL alone if vLLM was not measured."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator_tables import BF16, ENGINE, Folder
from hwmodels.importers.request import device_notes
from hwmodels.importers.tables import Table, mean_by_count, read_table
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Floats
from hwmodels.step_times.all_reduce import ALL_REDUCES_PER_LAYER
from hwmodels.step_times.all_reduce_catalogue import NCCL, measured_label
from hwmodels.step_times.noise import bad_points, require_few

_ELEMENT_BYTES: Final = 2  # message_size counts elements of 16 bits
# vLLM uses another all-reduce for messages from this size on: max_size of its CustomAllreduce. The tables
# have 4 and 8 MiB; on the A100 they jump in between, 2.8 to 3.6 times the time for twice the bytes.
SWITCH_BYTES: Final = 8 << 20
_TABLE: Final = "custom_allreduce_perf"
_NCCL_TABLE: Final = "nccl_perf"


@dataclass(frozen=True, slots=True)
class Messages:
    """Seconds of one all-reduce over message bytes; ``left_out`` are sizes with bad times."""

    engine: str
    version: str
    table: Table
    sizes: Floats
    seconds: Floats
    left_out: tuple[int, ...]


def read_messages(folder: Folder, tp: int) -> Messages:
    """Between ``tp`` ranks as vLLM runs it in CUDA graphs, else NCCL in the newest version measured."""
    version = folder.version()
    path = folder.path / "comm" / ENGINE / version / f"{_TABLE}.parquet"
    if path.exists() or not _nccl_versions(folder):
        words = ("backend", "allreduce_dtype", "device")
        table = read_table(path, ("num_gpus", "message_size"), ("latency",), words)
        rows = table.having(backend="vllm_graph", allreduce_dtype=BF16)
        if tp in rows.counts["num_gpus"] or not _nccl_versions(folder):
            return _messages(folder.request.gpu, ENGINE, version, table, rows.having(num_gpus=tp))
    return nccl_messages(folder, tp)


def nccl_messages(folder: Folder, tp: int) -> Messages:
    """NCCL's all-reduce alone, of the newest version measured."""
    version, table = _nccl_table(folder)
    rows = table.having(op_name="all_reduce", nccl_dtype="half", num_gpus=tp)
    return _messages(folder.request.gpu, NCCL, version, table, rows)


def collective_messages(folder: Folder, operation: str, ranks: int) -> Messages | None:
    """Another collective of NCCL alone, over the total bytes sent or received; None if not measured.

    The sizes are those of nccl-tests: of the whole that an all-gather makes or a reduce-scatter starts from.
    """
    if not _nccl_versions(folder):
        return None
    version, table = _nccl_table(folder)
    columns, counts = table.words, table.counts
    rows = (
        (columns["op_name"] == operation) & (columns["nccl_dtype"] == "half") & (counts["num_gpus"] == ranks)
    )
    if not rows.any():
        return None
    return _messages(folder.request.gpu, NCCL, version, table, table.where(rows))


def _nccl_table(folder: Folder) -> tuple[str, Table]:
    """The newest version, and its table."""
    version = _nccl_versions(folder)[-1]
    path = folder.path / "comm" / NCCL / version / f"{_NCCL_TABLE}.parquet"
    words = ("op_name", "nccl_dtype", "device")
    return version, read_table(path, ("num_gpus", "message_size"), ("latency",), words)


def read_all_reduce(
    folder: Folder, llm: LlmShape
) -> tuple[Curve | None, tuple[str, ...], tuple[tuple[str, str], ...]]:
    """All all-reduces of a step over tokens, notes and files; empty for one rank."""
    tp = folder.request.tp
    if tp == 1:
        return None, (), ()
    messages = read_messages(folder, tp)
    times = ALL_REDUCES_PER_LAYER * llm.layers
    curve = _over_tokens(messages, llm.hidden * llm.bytes_per_parameter, times)
    if curve is None:
        raise HardwareError(
            f"{messages.table.path} has no message as large as one token of {llm.name}, {llm.hidden}"
        )
    label = measured_label(folder.request.gpu, tp, messages.engine, messages.version, None)
    note = "all-reduce: two per layer as captured in CUDA graphs; none for the embedding, no gather of logits"
    if messages.engine == ENGINE:
        note += "; between 4 and 8 MiB in the slope of 2 to 4 MiB, as another all-reduce takes over at 8"
    left_out = tuple(
        f"all-reduce: the time at {size} bytes is left out, it is longer than that of larger messages"
        for size in messages.left_out
    )
    notes = (note, *left_out, *([label] if label else []))
    return curve, notes, (folder.named(messages.table),)


def _nccl_versions(folder: Folder) -> list[str]:
    there = (path.name for path in (folder.path / "comm" / NCCL).glob("*") if path.is_dir())
    return sorted(there, key=lambda name: [int(part) for part in name.split(".") if part.isdigit()])


def _messages(gpu: str, engine: str, version: str, table: Table, rows: Table) -> Messages:
    device_notes(gpu, str(table.words["device"][0]), table.path)
    curve = mean_by_count(rows.counts["message_size"] * _ELEMENT_BYTES, rows.times["latency"] * 1e-3)
    sizes, seconds = np.array(curve.counts, dtype=np.float64), np.array(curve.seconds)
    bad = bad_points(sizes, seconds)
    require_few(len(bad), len(sizes), str(table.path))
    left_out = tuple(int(size) for size in sizes[bad])
    return Messages(engine, version, table, np.delete(sizes, bad), np.delete(seconds, bad), left_out)


def _over_tokens(messages: Messages, token_bytes: int, times: int) -> Curve | None:
    """A size that is no whole number of tokens becomes both neighbouring counts, to keep nearly all knots."""
    sizes, seconds = messages.sizes, messages.seconds
    if messages.engine == ENGINE:
        sizes, seconds = _with_switch(sizes, seconds)
    tokens = np.unique(np.concatenate([np.floor(sizes / token_bytes), np.ceil(sizes / token_bytes)]))
    moved = tokens * token_bytes
    tokens = tokens[(tokens >= 1) & (moved >= sizes[0]) & (moved <= sizes[-1])]
    if not len(tokens):
        return None
    step_s = np.interp(tokens * token_bytes, sizes, seconds * times)
    return Curve(tuple(int(count) for count in tokens), tuple(step_s.tolist()))


def _with_switch(sizes: Floats, seconds: Floats) -> tuple[Floats, Floats]:
    """Add a point just below the switch to another all-reduce, up to which the line continues."""
    switch = int(np.searchsorted(sizes, SWITCH_BYTES))
    if switch < 2 or switch == len(sizes):
        return sizes, seconds
    (before, last), (before_s, last_s) = sizes[switch - 2 : switch], seconds[switch - 2 : switch]
    end = float(SWITCH_BYTES - _ELEMENT_BYTES)
    end_s = last_s + (last_s - before_s) / (last - before) * (end - last)
    return np.insert(sizes, switch, end), np.insert(seconds, switch, end_s)
