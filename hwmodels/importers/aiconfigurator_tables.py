"""The tables of an AIConfigurator folder of one GPU: matrix products and attention, all in vLLM.

Latencies in milliseconds of one operation.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import numpy as np

from hwmodels.errors import HardwareError
from hwmodels.importers.lattices import lattices_of
from hwmodels.importers.request import ImportRequest, device_notes
from hwmodels.importers.tables import Table, mean_by_count, read_table
from hwmodels.llm_shape import LlmShape
from hwmodels.profile import Curve, Lattice

SOURCE: Final = "ai-dynamo/aiconfigurator"
LICENCE: Final = "Apache-2.0"
ENGINE: Final = "vllm"
PRECISION: Final = "bf16"
BF16: Final = "bfloat16"  # what the tables call PRECISION
_HEADS: Final = ("num_heads", "num_key_value_heads", "head_dim")
_FARTHEST_RATIO: Final = 2.0  # a product is scaled from one with n and k within this factor, or refused


@dataclass(frozen=True, slots=True)
class Folder:
    """One GPU's folder, in it kind/engine/version/file; ``request`` names GPU, tp and perhaps the version."""

    path: Path
    request: ImportRequest

    def version(self) -> str:
        """The vLLM version measured: the user's, or the only one there is."""
        there = sorted(path.name for path in (self.path / "gemm" / ENGINE).glob("*") if path.is_dir())
        given = self.request.engine_version
        if not there:
            raise HardwareError(
                f"{self.path} has no folder gemm/{ENGINE}/VERSION; name the folder of one GPU, "
                "such as a100_sxm"
            )
        if given is None and len(there) > 1:
            raise HardwareError(f"{self.path} has several versions; write engine_version={there[-1]}")
        if given is not None and given not in there:
            raise HardwareError(f"{self.path} has no {ENGINE} {given}; write engine_version={there[-1]}")
        return given or there[0]

    def read(self, kind: str, name: str, counts: Sequence[str], words: Sequence[str]) -> Table:
        """The table ``name`` of a kind, on the requested GPU."""
        path = self.path / kind / ENGINE / self.version() / f"{name}.parquet"
        return read_table(path, counts, ("latency",), (*words, "device"))

    def named(self, table: Table) -> tuple[str, str]:
        """(name below the GPU's folder, sha256) for the stamp."""
        path = table.path.relative_to(self.path).as_posix()
        return f"{self.path.resolve().name}/{path}", table.sha256


@dataclass(frozen=True, slots=True)
class Attention:
    """The attention lattices of a model, what was assumed, and the files they came from."""

    decode: tuple[Lattice, ...]
    prefill: tuple[Lattice, ...]
    notes: tuple[str, ...]
    files: tuple[tuple[str, str], ...]


@dataclass(frozen=True, slots=True)
class Products:
    """The table of matrix products, read once."""

    table: Table

    def curve(self, n: int, k: int) -> tuple[Curve, tuple[str, ...]]:
        """Seconds over tokens of a product with n columns out and k in; a note when it was not measured.

        One that was not measured takes the time of the nearest one (in logarithms), scaled by n * k.
        HardwareError when that is more than a factor of 2 away in n or in k.
        """
        shapes = np.unique(np.stack([self.table.counts["n"], self.table.counts["k"]], axis=1), axis=0)
        shapes = shapes[(shapes > 0).all(axis=1)]
        steps = np.abs(np.log(shapes / np.array([n, k])))
        within = (steps <= np.log(_FARTHEST_RATIO) + 1e-9).all(axis=1)
        if not within.any():
            raise HardwareError(
                f"{self.table.path} has no product near n={n} k={k}: the nearest measured must be within a "
                f"factor of {_FARTHEST_RATIO:g} in both; write another tp or model"
            )
        nearest = np.flatnonzero(within)[np.argmin(steps[within].sum(axis=1))]
        near_n, near_k = (int(side) for side in shapes[nearest])
        rows = self.table.having(n=near_n, k=near_k)
        scale = n * k / (near_n * near_k)
        curve = mean_by_count(rows.counts["m"], rows.times["latency"] * (1e-3 * scale))
        same = (near_n, near_k) == (n, k)
        note = f"product n={n} k={k} was not measured: that of n={near_n} k={near_k} times {scale:.3g}"
        return curve, () if same else (note,)

    def widest(self) -> int:
        """The most columns any product was measured with."""
        return int(self.table.counts["n"].max())

    def shortest_s(self) -> float:
        """The shortest product of all: next to nothing but the start of a kernel."""
        return float(self.table.times["latency"].min()) * 1e-3


def read_products(folder: Folder) -> tuple[Products, tuple[str, ...]]:
    """The table of matrix products of the requested GPU, and notes on the device."""
    table = folder.read("gemm", "gemm_perf", ("m", "n", "k"), ("gemm_dtype",)).having(gemm_dtype=BF16)
    table = table.where(table.counts["m"] > 0)
    notes = device_notes(folder.request.gpu, str(table.words["device"][0]), table.path)
    return Products(table), notes


def read_attention(folder: Folder, llm: LlmShape) -> Attention:
    """Both attention tables at this model's heads per rank."""
    counts = ("batch_size", "isl", "step", *_HEADS)
    words = ("attn_dtype", "kv_cache_dtype")
    context = folder.read("attention", "context_attention_perf", counts, words)
    generation = folder.read("attention", "generation_attention_perf", counts, words)
    prefill = _prefill(context, llm, folder.request.tp)
    decode, notes = _decode(generation, llm, folder.request.tp)
    alone = (
        "prefill attention: of several prompts in one step, each costs what it costs alone, less the "
        "kernel's start for all but one"
    )
    return Attention(decode, prefill, (*notes, alone), (folder.named(context), folder.named(generation)))


def _prefill(table: Table, llm: LlmShape, tp: int) -> tuple[Lattice, ...]:
    """Prompts alone in their step; ``isl`` new tokens behind ``step`` cached ones."""
    rows = _of_heads(table, llm.heads // tp, llm.kv_heads // tp, llm.head_dim).having(batch_size=1)
    rows = rows.where(rows.counts["isl"] > 0)
    return lattices_of([rows.counts["isl"], rows.counts["step"]], rows.times["latency"] * (1e-3 * llm.layers))


def _decode(table: Table, llm: LlmShape, tp: int) -> tuple[tuple[Lattice, ...], tuple[str, ...]]:
    """Context is ``isl + step``. Heads that were not measured: a part of them at as many times the batch."""
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
    """Row b becomes row ``times * b``, interpolated (in logarithms) between batches where it must be."""
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
    """The least divisor of both head counts at which a table has rows, 1 if none (and that is refused)."""
    measured = set(zip(*(table.counts[name].tolist() for name in _HEADS)))
    for parts in range(1, kv_heads + 1):
        whole = heads % parts == 0 and kv_heads % parts == 0
        if whole and (heads // parts, kv_heads // parts, head_dim) in measured:
            return parts
    return 1


def _of_heads(table: Table, heads: int, kv_heads: int, head_dim: int) -> Table:
    rows = table.having(attn_dtype=BF16, kv_cache_dtype=BF16)
    return rows.having(num_heads=heads, num_key_value_heads=kv_heads, head_dim=head_dim)
