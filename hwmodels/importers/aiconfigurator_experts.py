"""Experts of an AIConfigurator folder: vLLM's fused kernel at balanced loads, and what engines exchange."""

from dataclasses import dataclass
from itertools import product
from typing import Final

import numpy as np

from hwmodels.catalogue import load_gpu
from hwmodels.errors import HardwareError
from hwmodels.importers.aiconfigurator_reduce import collective_messages
from hwmodels.importers.aiconfigurator_tables import BF16, Folder, Products
from hwmodels.importers.expert_lattice import balanced_lattice, from_memory
from hwmodels.importers.tables import Table, mean_by_count
from hwmodels.models.experts import Experts
from hwmodels.models.llm_shape import LlmShape
from hwmodels.profiles.profile import Curve, Exchange, ExpertTable, Floats, Lattice

_COUNTS: Final = (
    "num_tokens", "hidden_size", "inter_size", "topk", "num_experts", "moe_tp_size", "moe_ep_size",
)  # fmt: skip
_WORDS: Final = ("moe_dtype", "distribution", "kernel_source")
_KERNEL: Final = "vllm_fused_moe"  # vLLM's kernel for bf16 weights
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
        found = self.table.where(rows)
        return mean_by_count(found.counts["num_tokens"], found.times["latency"] * 1e-3)


def read_expert_rows(folder: Folder, llm: LlmShape) -> ExpertRows:
    """Balanced rows of the model's experts; HardwareError names what was measured if these were not."""
    assert llm.experts is not None, "a mixture of experts"
    table = folder.read("moe", "moe_perf", _COUNTS, _WORDS)
    rows = table.having(moe_dtype=BF16, kernel_source=_KERNEL, distribution=BALANCED)
    names = ("hidden_size", "inter_size", "topk", "num_experts")
    wanted = (llm.hidden, llm.experts.width, llm.experts.per_token, llm.experts.count)
    there = np.stack([rows.counts[name] for name in names], axis=1)
    same = (there == np.array(wanted)).all(axis=1)
    if not same.any():
        known = "; ".join(" ".join(str(part) for part in one) for one in np.unique(there, axis=0).tolist())
        raise HardwareError(
            f"no expert times for {llm.name} on {folder.request.gpu}: {table.path} has no rows with hidden "
            f"size, expert width, experts per token and experts {' '.join(str(part) for part in wanted)}, "
            f"only {known}"
        )
    return ExpertRows(rows.where(same), llm, llm.experts)


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
    derived = (
        "experts: vLLM's fused kernel, measured at balanced loads: fewer activated ones take the time of "
        "reading so many and the work of the tokens; the gate is a product, the choice one shortest product"
    )
    return tuple(tables), (derived, *notes), (folder.named(rows.table),)


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
    found: Floats = np.interp(tokens, curve.counts, curve.seconds) + products.shortest_s()
    return found


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
