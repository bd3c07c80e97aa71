"""AIConfigurator alone: a model composed of measured products, attention and all-reduces of one GPU."""

from dataclasses import dataclass
from typing import Final

import numpy as np

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.importers.aiconfigurator_attention import read_attention
from hwmodels.importers.aiconfigurator_experts import read_exchanges, read_experts
from hwmodels.importers.aiconfigurator_reduce import read_all_reduce
from hwmodels.importers.aiconfigurator_tables import (
    ENGINE,
    LICENCE,
    PRECISION,
    SOURCE,
    Folder,
    Products,
    read_products,
)
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.tables import summed
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, OpTables, Profile, Stamp

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
        dense,
        head,
        all_reduce,
        attention.decode,
        attention.prefill,
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
    found = [products.curve(n, k) for _, n, k in shapes]
    layers = summed([(float(times), curve) for (times, _, _), (curve, _) in zip(shapes, found)])
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
        *(note for _, product in found for note in product),
    )
    return Curve(layers.counts, tuple(seconds.tolist())), notes


def dense_mlps(llm: LlmShape) -> list[tuple[int, int]]:
    """(layers, width) of the MLPs that every token goes through.

    All MLPs of a dense model; the dense layers and shared experts of a mixture.
    """
    if llm.experts is None:
        return [(llm.layers, llm.intermediate)]
    mlps = [(llm.experts.dense_layers, llm.intermediate), (llm.moe_layers, llm.experts.shared_width)]
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
