"""The tables of an AIConfigurator folder of one GPU: matrix products, attention and all-reduces, in vLLM.

Latencies in milliseconds of one operation. All-reduces are NCCL's alone where vLLM's were not measured.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Final

import numpy as np

from hwmodels.catalogue import gpu_names, load_gpu
from hwmodels.errors import HardwareError
from hwmodels.gpus.gpu import Gpu
from hwmodels.importers.lattices import lattices_of
from hwmodels.importers.request import ImportRequest, device_fits, device_notes
from hwmodels.importers.tables import Table, mean_by_count, read_table
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Floats, Lattice
from hwmodels.step_times.all_reduce import ALL_REDUCES_PER_LAYER
from hwmodels.step_times.all_reduce_catalogue import NCCL, measured_label
from hwmodels.step_times.noise import bad_points, require_few

SOURCE: Final = "ai-dynamo/aiconfigurator"
LICENCE: Final = "Apache-2.0"
ENGINE: Final = "vllm"
PRECISION: Final = "bf16"
BF16: Final = "bfloat16"  # what the tables call PRECISION
_FARTHEST_RATIO: Final = 2.0  # a product is scaled from one with n and k within this factor, or refused


@dataclass(frozen=True, slots=True)
class Folder:
    """One GPU's folder with kind/engine/version/file; ``request`` names GPU, tp and maybe the version."""

    path: Path
    request: ImportRequest

    def version(self) -> str:
        """The vLLM version measured: the user's, or the only one present."""
        folders = (path.name for path in (self.path / "gemm" / ENGINE).glob("*") if path.is_dir())
        there = sorted(folders, key=_parts_of)
        wanted = self.request.engine_version
        if not there:
            raise HardwareError(
                f"{self.path} has no folder gemm/{ENGINE}/VERSION; name the folder of one GPU, "
                "such as a100_sxm"
            )
        if wanted is None and len(there) > 1:
            raise HardwareError(f"{self.path} has several versions; write engine_version={there[-1]}")
        if wanted is not None and wanted not in there:
            raise HardwareError(f"{self.path} has no {ENGINE} {wanted}; write engine_version={there[-1]}")
        return wanted or there[0]

    def read(
        self, kind: str, name: str, counts: Sequence[str], words: Sequence[str], optional: Sequence[str] = ()
    ) -> Table:
        """The table ``name`` of a kind, on the requested GPU."""
        path = self.path / kind / ENGINE / self.version_of(kind, name) / f"{name}.parquet"
        return read_table(path, counts, times=("latency",), words=(*words, "device"), optional=optional)

    def version_of(self, kind: str, name: str) -> str:
        """The version of a table: that of the products; else the newest before it, else the first after it.

        Not every operation was measured again for each version.
        """
        wanted = self.version()
        paths = (self.path / kind / ENGINE).glob(f"*/{name}.parquet")
        there = sorted((path.parent.name for path in paths), key=_parts_of)
        before = [version for version in there if _parts_of(version) <= _parts_of(wanted)]
        return (before[-1:] or there[:1] or [wanted])[0]

    def other_versions(self, tables: Iterable[Table]) -> tuple[str, ...]:
        """A note for each table that was measured with another version than the products."""
        versions = {table.path.stem: table.path.parent.name for table in tables}
        return tuple(
            f"{name} is of {ENGINE} {version}: there is none of {self.version()}"
            for name, version in versions.items()
            if version != self.version()
        )

    def named(self, table: Table) -> tuple[str, str]:
        """(name below the GPU's folder, sha256) for the stamp."""
        path = table.path.relative_to(self.path).as_posix()
        return f"{self.path.resolve().name}/{path}", table.sha256


def _parts_of(version: str) -> list[int]:
    return [int(part) for part in version.split(".") if part.isdigit()]


@dataclass(frozen=True, slots=True)
class Products:
    """The table of matrix products, read once."""

    table: Table

    def curve(self, n: int, k: int) -> tuple[Curve, tuple[str, ...]]:
        """Seconds over tokens of a product with n columns out and k in; a note if it was not measured.

        An unmeasured product takes the time of the nearest one (in logarithms), scaled by n * k.
        HardwareError if that is more than a factor of 2 away in n or in k.
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
        """The largest number of columns of any measured product."""
        return int(self.table.counts["n"].max())

    def narrowest(self) -> int:
        """The smallest number of columns of any measured product."""
        columns = self.table.counts["n"]
        return int(columns[columns > 0].min())

    def shortest_s(self) -> float:
        """The time of the shortest product: little more than a kernel launch."""
        return float(self.table.times["latency"].min()) * 1e-3


def read_products(folder: Folder) -> tuple[Products, tuple[str, ...]]:
    """The table of matrix products of the requested GPU, and notes on the device."""
    table = folder.read("gemm", "gemm_perf", ("m", "n", "k"), ("gemm_dtype",)).having(gemm_dtype=BF16)
    table = table.where(table.counts["m"] > 0)
    notes = device_notes(folder.request.gpu, str(table.words["device"][0]), table.path)
    return Products(table), notes


_ELEMENT_BYTES: Final = 2  # message_size counts elements of 16 bits
# vLLM uses another all-reduce for messages from this size on: max_size of its CustomAllreduce. The tables
# have 4 and 8 MiB; on the A100 they jump in between, 2.8 to 3.6 times the time for twice the bytes.
SWITCH_BYTES: Final = 8 << 20
_TABLE: Final = "custom_allreduce_perf"
_NCCL_TABLE: Final = "nccl_perf"


@dataclass(frozen=True, slots=True, kw_only=True)
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
    version = folder.version_of("comm", _TABLE)
    path = folder.path / "comm" / ENGINE / version / f"{_TABLE}.parquet"
    if path.exists() or not _nccl_versions(folder):
        words = ("backend", "allreduce_dtype", "device")
        table = read_table(path, ("num_gpus", "message_size"), times=("latency",), words=words)
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
    return version, read_table(path, ("num_gpus", "message_size"), times=("latency",), words=words)


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
    other = folder.other_versions([messages.table]) if messages.engine == ENGINE else ()
    notes = (note, *left_out, *([label] if label else []), *other)
    return curve, notes, (folder.named(messages.table),)


def _nccl_versions(folder: Folder) -> list[str]:
    there = (path.name for path in (folder.path / "comm" / NCCL).glob("*") if path.is_dir())
    return sorted(there, key=_parts_of)


def _messages(gpu: str, engine: str, version: str, table: Table, rows: Table) -> Messages:
    device_notes(gpu, str(table.words["device"][0]), table.path)
    curve = mean_by_count(rows.counts["message_size"] * _ELEMENT_BYTES, rows.times["latency"] * 1e-3)
    sizes, seconds = np.array(curve.counts, dtype=np.float64), np.array(curve.seconds)
    bad = bad_points(sizes, seconds)
    require_few(len(bad), len(sizes), str(table.path))
    left_out = tuple(int(size) for size in sizes[bad])
    return Messages(
        engine=engine,
        version=version,
        table=table,
        sizes=np.delete(sizes, bad),
        seconds=np.delete(seconds, bad),
        left_out=left_out,
    )


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
    other = folder.other_versions([context, generation])
    return Attention(decode, prefill, (*notes, *prefill_notes, alone, *other), files)


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
