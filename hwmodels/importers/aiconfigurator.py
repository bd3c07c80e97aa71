"""AIConfigurator alone: a model composed of measured products, attention and all-reduces of one GPU."""

from typing import Final

import numpy as np

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.importers.aiconfigurator_attention import read_attention
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
from hwmodels.llm_shape import LlmShape
from hwmodels.profile import Curve, OpTables, Profile, Stamp

# The share of the datasheet's memory bandwidth that streaming kernels reach: the roofline rung's, which gave
# 3.6 to 22 % error on A100 without any fit.
_BANDWIDTH_SHARE: Final = 0.8


def import_aiconfigurator(request: ImportRequest) -> Profile:
    """The profile of any catalogue model from the folder of one GPU, ``request.path``."""
    llm = load_llm(request.llm)
    llm.require_tp(request.tp)
    folder = Folder(request.path, request)
    products, device = read_products(folder)
    attention = read_attention(folder, llm)
    all_reduce, reduce_notes, reduce_files = read_all_reduce(folder, llm)
    dense, dense_notes = _dense(products, llm, request)
    head, head_notes = head_curve(products, llm, request.tp)
    stamp = Stamp(
        gpu=request.gpu,
        llm=llm.name,
        tp=request.tp,
        engine=ENGINE,
        engine_version=folder.version(),
        precision=PRECISION,
        source=SOURCE,
        licence=LICENCE,
        files=(folder.named(products.table), *attention.files, *reduce_files),
        notes=(*device, *dense_notes, *head_notes, *attention.notes, *reduce_notes),
    )
    return Profile(
        stamp, OpTables(dense, head, all_reduce, attention.decode, attention.prefill, mixed=(), skew=None)
    )


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
    """All products of all layers, and what streams through memory between them."""
    tp, width = request.tp, llm.head_dim
    columns = {
        "qkv": ((llm.heads + 2 * llm.kv_heads) * width // tp, llm.hidden),
        "o": (llm.hidden, llm.heads * width // tp),
        "up": (llm.intermediate * (2 if llm.gated_mlp else 1) // tp, llm.hidden),
        "down": (llm.hidden, llm.intermediate // tp),
    }
    found = [products.curve(n, k) for n, k in columns.values()]
    layers = summed([(float(llm.layers), curve) for curve, _ in found])
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


def _streams(llm: LlmShape, tp: int) -> tuple[tuple[float, int], ...]:
    """(times per step, bytes per token) of each kernel that only streams activations through memory."""
    width = llm.bytes_per_parameter
    hidden, intermediate = llm.hidden * width, llm.intermediate * width // tp
    queries, keys = llm.heads * llm.head_dim * width // tp, llm.kv_heads * llm.head_dim * width // tp
    layers = float(llm.layers)
    return (
        (2 * layers, 4 * hidden),  # norm with residual: reads both, writes both
        (layers * (2 if llm.qk_norm else 1), 2 * (queries + keys)),  # rotary embedding, and a norm like it
        (layers, 4 * keys),  # keys and values into the cache: read and written
        (layers, (3 if llm.gated_mlp else 2) * intermediate),  # activation
        (1.0, 2 * hidden),  # token embedding
        (1.0, 4 * hidden),  # last norm
    )
