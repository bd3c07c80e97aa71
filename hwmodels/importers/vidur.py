"""Vidur's table of linear operations of one model; attention, all-reduce and head from AIConfigurator."""

from typing import Final

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator import head_curve
from hwmodels.importers.aiconfigurator_tables import (
    ENGINE,
    Folder,
    read_all_reduce,
    read_attention,
    read_products,
)
from hwmodels.importers.aiconfigurator_tables import LICENCE as OTHER_LICENCE
from hwmodels.importers.aiconfigurator_tables import SOURCE as OTHER_SOURCE
from hwmodels.importers.request import ImportRequest
from hwmodels.importers.tables import Table, mean_by_count, read_table, summed
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, OpTables, Profile, Stamp

SOURCE: Final = f"microsoft/vidur (linear operations), {OTHER_SOURCE} (attention, all-reduce, head)"
LICENCE: Final = f"MIT (microsoft/vidur), {OTHER_LICENCE} ({OTHER_SOURCE})"
# Operations per layer; there are two residual additions.
_PER_LAYER: Final = {
    "input_layernorm": 1,
    "attn_pre_proj": 1,
    "attn_rope": 1,
    "attn_post_proj": 1,
    "post_attention_layernorm": 1,
    "mlp_up_proj": 1,
    "mlp_act": 1,
    "mlp_down_proj": 1,
    "add": 2,
}
_SHAPE: Final = ("n_head", "n_kv_head", "n_embd", "n_expanded_embd")
_NOTES: Final = (
    "linear operations were profiled by Vidur in fp16 and outside an engine: engine and version are those of "
    "the attention, which was measured in bf16",
    "the last norm is taken as one more input_layernorm, and two residual additions count per layer",
    "Vidur's own all-reduce table is not used: it is implausible at or below 1 MB",
)


def import_vidur(request: ImportRequest) -> Profile:
    """The profile of the model whose mlp.csv is ``request.path``, with ``request.aiconfigurator``."""
    if request.aiconfigurator is None:
        raise HardwareError(
            f"{request.path} has no attention, all-reduce or head; write aiconfigurator=FOLDER with the "
            "AIConfigurator tables of the same GPU"
        )
    llm = load_llm(request.llm)
    llm.require_tp(request.tp)
    table = _read(request, llm)
    folder = Folder(request.aiconfigurator, request)
    products, device = read_products(folder)
    attention = read_attention(folder, llm)
    all_reduce, reduce_notes, reduce_files = read_all_reduce(folder, llm)
    head, head_notes = head_curve(products, llm, request.tp)
    stamp = Stamp(
        gpu=request.gpu,
        llm=llm.name,
        tp=request.tp,
        engine=ENGINE,
        engine_version=folder.version(),
        precision="fp16",
        source=SOURCE,
        licence=LICENCE,
        files=(
            (f"{request.path.resolve().parent.name}/{request.path.name}", table.sha256),
            folder.named(products.table),
            *attention.files,
            *reduce_files,
        ),
        notes=(*_NOTES, *device, *head_notes, *attention.notes, *reduce_notes),
    )
    dense = _dense(table, llm)
    return Profile(
        stamp,
        OpTables(
            dense=dense,
            head=head,
            all_reduce=all_reduce,
            decode=attention.decode,
            prefill=attention.prefill,
            mixed=(),
            skew=None,
        ),
    )


def _read(request: ImportRequest, llm: LlmShape) -> Table:
    """The rows of this tensor-parallel size; HardwareError if they are of another model."""
    times = [_column(name) for name in ("emb", *_PER_LAYER)]
    table = read_table(request.path, ("num_tokens", "num_tensor_parallel_workers", *_SHAPE), times=times)
    rows = table.having(num_tensor_parallel_workers=request.tp)
    wanted = (llm.heads, llm.kv_heads, llm.hidden, llm.intermediate)
    for name, value in zip(_SHAPE, wanted):
        there = sorted(set(rows.counts[name].tolist()))
        if there != [value]:
            raise HardwareError(
                f"{request.path} has {name}={there[0]} and {llm.name} has {value}; write the model it was "
                "measured for"
            )
    return rows.where(rows.counts["num_tokens"] > 0)


def _dense(rows: Table, llm: LlmShape) -> Curve:
    """Medians in milliseconds; the table's vocabulary may be padded, which affects only the head."""
    weights = {name: float(llm.layers * times) for name, times in _PER_LAYER.items()}
    weights["input_layernorm"] += 1.0
    weights["emb"] = 1.0
    tokens = rows.counts["num_tokens"]
    return summed(
        [
            (weight, mean_by_count(tokens, rows.times[_column(name)] * 1e-3))
            for name, weight in weights.items()
        ]
    )


def _column(name: str) -> str:
    return f"time_stats.{name}.median"
