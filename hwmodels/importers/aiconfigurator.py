"""AIConfigurator alone: a model composed of measured products, attention, all-reduces and experts."""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator_tables import (
    BF16,
    ENGINE,
    LICENCE,
    PRECISION,
    SOURCE,
    Folder,
    Products,
    collective_messages,
    read_all_reduce,
    read_attention,
    read_products,
)
from hwmodels.importers.lattices import balanced_lattice, from_memory
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.tables import Table, mean_by_count, summed
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Floats, Lattice, OpTables, Profile, Stamp

_COUNTS: Final = (
    "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_WORDS: Final = ("moe_dtype", "distribution", "kernel_source")
# vLLM's kernels for bf16 weights, as the tables name them: up to 0.22, and by backend since.
_KERNELS: Final = ("vllm_fused_moe", "vllm_unquantizedfusedmoe_")
BALANCED: Final = "balanced"
_MOST_RANKS: Final = 8
# Bytes that the exchange carries of a token besides its hidden state: weights and numbers of its experts, 4
# bytes each (vLLM 0.19.0, MoEPrepareAndFinalizeNaiveDPEPModular: topk_weights float32, topk_ids int32).
_CHOICE_BYTES: Final = 8
# Tokens of all engines: enough for the tables of experts, and for four engines with their largest count each.
_LAST_TOKENS: Final = 65_536


@dataclass(frozen=True, slots=True)
class ExpertRows:
    """The rows of one model's experts, read once."""

    table: Table
    llm: LlmShape
    experts: Experts

    def curve(self, expert_tp: int, expert_ep: int) -> Curve | None:
        """Seconds of one layer over tokens of all ranks at balanced loads; None if not measured."""
        counts = self.table.counts
        rows = (counts["moe_tp_size"] == expert_tp) & (counts["moe_ep_size"] == expert_ep)
        if not rows.any():
            return None
        chosen = self.table.where(rows)
        return mean_by_count(chosen.counts["num_tokens"], chosen.times["latency"] * 1e-3)


def read_expert_rows(folder: Folder, llm: LlmShape) -> ExpertRows:
    """Balanced rows of the model's experts; HardwareError names what was measured if these were not."""
    assert llm.experts is not None, "a mixture of experts"
    table = folder.read("moe", "moe_perf", _COUNTS, _WORDS)
    rows = _of_vllm(table.having(moe_dtype=BF16, distribution=BALANCED))
    names = ("hidden_size", "inter_size", "topk", "num_experts")
    wanted = (llm.hidden, llm.experts.width, llm.experts.per_token, llm.experts.count)
    there = np.stack([rows.counts[name] for name in names], axis=1)
    same = (there == np.array(wanted)).all(axis=1)
    if not same.any():
        known = "; ".join(" ".join(str(part) for part in part) for part in np.unique(there, axis=0).tolist())
        raise HardwareError(
            f"no expert times for {llm.name} on {folder.request.gpu}: {table.path} has no rows with hidden "
            f"size, expert width, experts per token and experts {' '.join(str(part) for part in wanted)}, "
            f"only {known}"
        )
    return ExpertRows(_of_most_rows(rows.where(same)), llm, llm.experts)


def _of_vllm(table: Table) -> Table:
    """The rows of vLLM's own kernels."""
    there = sorted(set(table.words["kernel_source"].tolist()))
    known = [name for name in there if name.startswith(_KERNELS)]
    if not known:
        raise HardwareError(
            f"{table.path} has no rows of {' or '.join(_KERNELS)}...; it has kernel_source={', '.join(there)}"
        )
    return table.where(np.isin(table.words["kernel_source"], known))


def _of_most_rows(table: Table) -> Table:
    """One kernel's: where several were measured, the one with the most rows."""
    names, counts = np.unique(table.words["kernel_source"], return_counts=True)
    return table.having(kernel_source=str(names[np.argmax(counts)]))


def read_experts(
    folder: Folder, llm: LlmShape, products: Products, without: tuple[tuple[int, int], ...] = ()
) -> tuple[tuple[ExpertTable, ...], tuple[str, ...], tuple[tuple[str, str], ...]]:
    """Tables, notes and files for every way to share the experts between ``tp`` GPUs and engines.

    ``without``: ways (parts of an expert, parts of their set) that other tables have.
    """
    rows, tp = read_expert_rows(folder, llm), folder.request.tp
    gpus = [tp * dp for dp in (1, 2, 4, 8) if tp * dp <= _MOST_RANKS and (dp == 1 or tp == 1)]
    ways = sorted({*product(gpus, (1,)), *product((1,), gpus)} - set(without))
    tables, notes = [], []
    for expert_tp, expert_ep in ways:
        curve = rows.curve(expert_tp, expert_ep)
        if curve is not None:
            lattice, cached = _lattice(rows, curve, expert_tp, expert_ep, folder.request.gpu)
            dp = expert_tp * expert_ep // tp
            tables.append(ExpertTable(expert_tp, expert_ep, _per_step(lattice, llm, products, dp)))
            notes += [f"{note} ({expert_tp} x {expert_ep} GPUs)" for note in cached]
    kernel = str(rows.table.words["kernel_source"][0])
    derived = (
        f"experts: {kernel}, measured at balanced loads: fewer activated ones take the time of reading so "
        "many and the work of the tokens; the gate is a product, the choice one shortest product"
    )
    other = folder.other_versions([rows.table])
    return tuple(tables), (derived, *notes, *other), (folder.named(rows.table),)


def _lattice(
    rows: ExpertRows, curve: Curve, expert_tp: int, expert_ep: int, gpu: str
) -> tuple[Lattice, tuple[str, ...]]:
    """The lattice of one layer that reads from memory."""
    experts, llm = rows.experts, rows.llm
    tokens, seconds = np.array(curve.counts, dtype=np.float64), np.array(curve.seconds)
    lattice = balanced_lattice(tokens, seconds, experts.per_token, experts.count, expert_ep)
    one_bytes = experts.parameters_of_one(llm.hidden) * llm.bytes_per_parameter / expert_tp
    return from_memory(lattice, one_bytes, load_gpu(gpu))


def _per_step(lattice: Lattice, llm: LlmShape, products: Products, dp: int) -> Lattice:
    """All layers, with the gate, which each engine computes for its own tokens."""
    tokens = np.array(lattice.axes[0], dtype=np.float64)
    values = (lattice.values + gate_s(products, llm, tokens / dp)[:, None]) * llm.moe_layers
    return Lattice(lattice.axes, values)


def gate_s(products: Products, llm: LlmShape, tokens: Floats) -> Floats:
    """Seconds of one layer's gate and of choosing the experts: a product, and a kernel of few bytes."""
    assert llm.experts is not None, "a mixture of experts"
    curve, _ = products.curve(max(llm.experts.count, products.narrowest()), llm.hidden)
    seconds: Floats = np.interp(tokens, curve.counts, curve.seconds) + products.shortest_s()
    return seconds


def read_exchanges(folder: Folder, llm: LlmShape) -> tuple[tuple[Exchange, ...], tuple[tuple[str, str], ...]]:
    """All-gather and reduce-scatter of a step between 2, 4 and 8 engines, if NCCL was measured for them."""
    assert llm.experts is not None, "a mixture of experts"
    exchanges, files = [], set()
    hidden_bytes = llm.hidden * llm.bytes_per_parameter
    for ranks in (2, 4, 8):
        gather = collective_messages(folder, "all_gather", ranks)
        scatter = collective_messages(folder, "reduce_scatter", ranks)
        if gather is None or scatter is None:
            continue
        tokens = np.unique(np.geomspace(1, _LAST_TOKENS, 65).round())
        seconds = np.interp(
            tokens * (hidden_bytes + _CHOICE_BYTES * llm.experts.per_token), gather.sizes, gather.seconds
        ) + np.interp(tokens * hidden_bytes, scatter.sizes, scatter.seconds)
        curve = Curve(tuple(int(count) for count in tokens), tuple((seconds * llm.moe_layers).tolist()))
        exchanges.append(Exchange(ranks, curve, f"NCCL {gather.version} measured alone, in no engine"))
        files.add(folder.named(gather.table))
    return tuple(exchanges), tuple(sorted(files))


# The share of the datasheet's memory bandwidth that streaming kernels reach: as on the roofline rung, where
# it gave 3.6 to 22 % error on A100 without any fit.
_BANDWIDTH_SHARE: Final = 0.8


@dataclass(frozen=True, slots=True)
class _Mixture:
    """The tables that a mixture of experts has in addition to a dense model's."""

    tables: tuple[ExpertTable, ...] = ()
    exchanges: tuple[Exchange, ...] = ()
    notes: tuple[str, ...] = ()
    files: tuple[tuple[str, str], ...] = ()


def _mixture(folder: Folder, llm: LlmShape, products: Products) -> _Mixture:
    """Empty for a dense model; HardwareError if the mixture's experts were not measured."""
    if llm.experts is None:
        return _Mixture()
    tables, notes, files = read_experts(folder, llm, products)
    exchanges, more_files = read_exchanges(folder, llm) if folder.request.tp == 1 else ((), ())
    return _Mixture(tables, exchanges, notes, (*files, *more_files))


def import_aiconfigurator(request: ImportRequest) -> Profile:
    """The profile of any catalogue model from the folder of one GPU, ``request.path``."""
    llm = load_llm(request.llm)
    llm.require_tp(request.tp)
    llm.require_known_attention()
    folder = Folder(request.path, request)
    products, device = read_products(folder)
    attention = read_attention(folder, llm)
    all_reduce, reduce_notes, reduce_files = read_all_reduce(folder, llm)
    dense, dense_notes = _dense(products, llm, request)
    head, head_notes = head_curve(products, llm, request.tp)
    mixture = _mixture(folder, llm, products)
    stamp = Stamp(
        gpu=request.gpu,
        llm=llm.name,
        tp=request.tp,
        engine=ENGINE,
        engine_version=folder.version(),
        precision=PRECISION,
        source=SOURCE,
        licence=LICENCE,
        files=(folder.named(products.table), *attention.files, *reduce_files, *mixture.files),
        notes=(*device, *dense_notes, *head_notes, *attention.notes, *reduce_notes, *mixture.notes),
    )
    tables = OpTables(
        dense=dense,
        head=head,
        all_reduce=all_reduce,
        decode=attention.decode,
        prefill=attention.prefill,
        mixed=(),
        skew=None,
        experts=mixture.tables,
        exchange=mixture.exchanges,
    )
    return Profile(stamp, tables)


def head_curve(products: Products, llm: LlmShape, tp: int) -> tuple[Curve, tuple[str, ...]]:
    """The language-model head over sequences, each rank with its share of the vocabulary; and notes."""
    columns = -(-llm.vocab // tp)
    blocks = -(-columns // products.widest())
    curve, notes = products.curve(-(-columns // blocks), llm.hidden)
    if blocks > 1:
        notes += (f"the head has {columns} columns, more than any measured product: {blocks} products",)
    return summed([(float(blocks), curve)]), (
        *notes,
        "the sampler was not measured and is left out of the head",
    )


def _dense(products: Products, llm: LlmShape, request: ImportRequest) -> tuple[Curve, tuple[str, ...]]:
    """All products of all layers, and the kernels that stream through memory between them."""
    tp, width = request.tp, llm.head_dim
    shapes = [
        (llm.layers, (llm.heads + 2 * llm.kv_heads) * width // tp, llm.hidden),
        (llm.layers, llm.hidden, llm.heads * width // tp),
    ]
    for layers_with, middle in dense_mlps(llm):
        shapes.append((layers_with, middle * (2 if llm.gated_mlp else 1) // tp, llm.hidden))
        shapes.append((layers_with, llm.hidden, middle // tp))
    curves = [products.curve(n, k) for _, n, k in shapes]
    layers = summed([(float(times), curve) for (times, _, _), (curve, _) in zip(shapes, curves)])
    tokens = np.array(layers.counts, dtype=np.float64)
    bandwidth = _BANDWIDTH_SHARE * load_gpu(request.gpu).memory_bandwidth_bytes_per_s
    shortest_s = products.shortest_s()
    streamed = sum(
        times * np.maximum(tokens * bytes_per_token / bandwidth, shortest_s)
        for times, bytes_per_token in _streams(llm, tp)
    )
    seconds = np.array(layers.seconds) + streamed
    notes = (
        "norms, rotary embedding, activation, KV write and token embedding were not measured: bytes moved / "
        f"({_BANDWIDTH_SHARE:g} x the datasheet's memory bandwidth), at least the shortest product "
        f"({shortest_s * 1e6:.2f} us)",
        *(note for _, product in curves for note in product),
    )
    return Curve(layers.counts, tuple(seconds.tolist())), notes


def dense_mlps(llm: LlmShape) -> list[tuple[int, int]]:
    """(layers, width) of the MLPs that every token goes through.

    All MLPs of a dense model; the dense layers and shared experts of a mixture.
    """
    if llm.experts is None:
        return [(llm.layers, llm.intermediate)]
    mlps = [(llm.layers - llm.moe_layers, llm.intermediate), (llm.moe_layers, llm.experts.shared_width)]
    return [(layers, middle) for layers, middle in mlps if layers and middle]


def _streams(llm: LlmShape, tp: int) -> tuple[tuple[float, int], ...]:
    """(times per step, bytes per token) of each kernel that only streams activations through memory."""
    width = llm.bytes_per_parameter
    hidden, factor = llm.hidden * width, 3 if llm.gated_mlp else 2
    queries, keys = llm.heads * llm.head_dim * width // tp, llm.kv_heads * llm.head_dim * width // tp
    layers = float(llm.layers)
    return (
        (2 * layers, 4 * hidden),  # norm with residual: reads both, writes both
        (layers * (2 if llm.qk_norm else 1), 2 * (queries + keys)),  # rotary embedding, and a norm like it
        (layers, 4 * keys),  # keys and values into the cache: read and written
        *((float(some), factor * (middle * width // tp)) for some, middle in dense_mlps(llm)),  # activation
        (1.0, 2 * hidden),  # token embedding
        (1.0, 4 * hidden),  # last norm
    )
