"""Attention of an AIConfigurator folder: whole prompts, and decode steps, at one model's heads per rank."""

from dataclasses import dataclass, replace
from typing import Final

import numpy as np

from hwmodels.catalogue import gpu_names, load_gpu
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.importers.aiconfigurator_tables import BF16, Folder
from hwmodels.importers.lattices import lattices_of
from hwmodels.importers.request import device_fits
from hwmodels.importers.tables import Table
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Lattice

_HEADS: Final = ("num_heads", "num_key_value_heads", "head_dim")
_COUNTS: Final = ("batch_size", "isl", "step", *_HEADS)
_WORDS: Final = ("attn_dtype", "kv_cache_dtype")
# Newer tables also have rows of a sliding window of 128 tokens; 0 or no such column is full attention.
_WINDOW: Final = "window_size"


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention lattices of a model, the assumptions made, and the files read."""

    decode: tuple[Lattice, ...]
    prefill: tuple[Lattice, ...]
    notes: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


def read_attention(folder: Folder, llm: LlmShape) -> Attention:
    """Both attention tables at this model's heads per rank; HardwareError if times are impossible."""
    context = _read(folder, "context_attention_perf")
    generation = _read(folder, "generation_attention_perf")
    prefill_table, prefill_notes = _plausible(folder, llm, context)
    prefill = _prefill(prefill_table, llm, folder.request.tp)
    decode, notes = _decode(generation, llm, folder.request.tp)
    alone = (
        "prefill attention: of several prompts in one step, each costs what it costs alone, less the "
        "kernel's start for all but one"
    )
    holder = folder if prefill_table is context else Folder(prefill_table.path.parents[4], folder.request)
    files = (holder.named(prefill_table), folder.named(generation))
    return Attention(decode, prefill, (*notes, *prefill_notes, alone), files)


def _read(folder: Folder, name: str) -> Table:
    """The rows of full attention."""
    return folder.read("attention", name, _COUNTS, _WORDS, (_WINDOW,)).having(**{_WINDOW: 0})


def _share_of_peak(table: Table, llm: LlmShape, gpu: Gpu) -> float:
    """The largest share of the datasheet's rate that any prompt would have reached, with any heads."""
    table = table.having(attn_dtype=BF16, kv_cache_dtype=BF16, head_dim=llm.head_dim)
    batch, new, cached, heads, _, width = (table.counts[name].astype(np.float64) for name in _COUNTS)
    flops = 4 * batch * heads * width * new * (new / 2 + cached)  # scores and weighted sum
    return float((flops / (table.times["latency"] * 1e-3)).max()) / gpu.flops_per_s


def _plausible(folder: Folder, llm: LlmShape, context: Table) -> tuple[Table, tuple[str, ...]]:
    """The table of prompts, or that of the second named folder if this one is impossible."""
    request, gpu = folder.request, load_gpu(folder.request.gpu)
    if (share := _share_of_peak(context, llm, gpu)) <= 1.0:
        return context, ()
    impossible = f"prompts up to {share:.0f} times as fast as the datasheet's peak"
    if request.aiconfigurator is None:
        raise HardwareError(
            f"{context.path} has {impossible}, so it cannot be used; write aiconfigurator=FOLDER with "
            f"the tables of a GPU that computes as fast as {gpu.name}"
        )
    other = Folder(request.aiconfigurator, replace(request, engine_version=folder.version()))
    table = _read(other, "context_attention_perf")
    device = str(table.words["device"][0])
    alike = (name for name in gpu_names() if load_gpu(name).flops_per_s == gpu.flops_per_s)
    if not any(device_fits(name, device) for name in alike) or _share_of_peak(table, llm, gpu) > 1.0:
        raise HardwareError(
            f"{table.path} was measured on {device} and cannot stand for {gpu.name}: name the folder of a "
            "GPU that computes as fast"
        )
    alone = f"the table of {gpu.name} has {impossible}"
    return table, (f"prefill attention: that of {device}, which computes as fast; {alone}",)


def _prefill(table: Table, llm: LlmShape, tp: int) -> tuple[Lattice, ...]:
    """Prompts alone in their step; ``isl`` new tokens after ``step`` cached ones."""
    rows = _of_heads(table, llm.heads // tp, llm.kv_heads // tp, llm.head_dim).having(batch_size=1)
    rows = rows.where(rows.counts["isl"] > 0)
    return lattices_of([rows.counts["isl"], rows.counts["step"]], rows.times["latency"] * (1e-3 * llm.layers))


def _decode(table: Table, llm: LlmShape, tp: int) -> tuple[tuple[Lattice, ...], tuple[str, ...]]:
    """Context is ``isl + step``. For unmeasured heads: a part of them at a correspondingly larger batch."""
    heads, kv_heads = llm.heads // tp, llm.kv_heads // tp
    parts = _parts(table, heads, kv_heads, llm.head_dim)
    rows = _of_heads(table, heads // parts, kv_heads // parts, llm.head_dim)
    rows = rows.where(rows.counts["batch_size"] > 0)
    batches, contexts = rows.counts["batch_size"], rows.counts["isl"] + rows.counts["step"]
    whole = lattices_of([batches, contexts], rows.times["latency"] * (1e-3 * llm.layers))
    if parts == 1:
        return whole, ()
    return tuple(_at_larger_batch(lattice, parts) for lattice in whole), (
        f"decode attention of {heads} query and {kv_heads} KV heads was not measured: that of "
        f"{heads // parts} and {kv_heads // parts} heads at {parts} times the batch",
    )


def _at_larger_batch(lattice: Lattice, times: int) -> Lattice:
    """Row b becomes row ``times * b``, interpolated (in logarithms) between batches if needed."""
    measured, contexts = lattice.axes
    batches = tuple(batch for batch in measured if times * batch <= measured[-1])
    logs, wanted = np.log(measured), np.log(np.array(batches, dtype=np.float64) * times)
    columns = [
        np.interp(wanted, logs[there], np.log(column[there]), right=np.nan)
        for column in lattice.values.T
        for there in [~np.isnan(column)]
    ]
    return Lattice((batches, contexts), np.exp(np.stack(columns, axis=1)))


def _parts(table: Table, heads: int, kv_heads: int, head_dim: int) -> int:
    """The least divisor of both head counts with rows in the table, 1 if none (which is then refused)."""
    measured = set(zip(*(table.counts[name].tolist() for name in _HEADS)))
    for parts in range(1, kv_heads + 1):
        whole = heads % parts == 0 and kv_heads % parts == 0
        if whole and (heads // parts, kv_heads // parts, head_dim) in measured:
            return parts
    return 1


def _of_heads(table: Table, heads: int, kv_heads: int, head_dim: int) -> Table:
    rows = table.having(attn_dtype=BF16, kv_cache_dtype=BF16)
    return rows.having(num_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim)
