"""What vLLM keeps free of KV on each GPU beside the weights: the terms of its own profiling, by version.

``Worker.determine_available_memory`` (vllm/v1/worker/gpu_worker.py) gives KV what is left of
``gpu_memory_utilization`` of the GPU after the weights, the peak of tensors in one run of
``max_num_batched_tokens`` tokens that then samples ``max_num_seqs`` sequences, and what the process holds
outside PyTorch; from 0.20 on also an estimate of the CUDA graphs. Sizes of tensors follow from vLLM's source;
what the driver, NCCL and CUDA graphs take was read in logs (benchmarks/kv_tokens.csv has the sources).
"""

import re
from dataclasses import dataclass
from typing import Final

from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape

MIB: Final = 1 << 20
GIB: Final = 1 << 30
# Sampling keeps a row of 32-bit logits per multiprocessor (vllm/v1/sample/ops/topk_topp_triton.py); large
# GPUs have 108 to 188 of them.
_SAMPLER_ROWS: Final = 128
# Input buffers and the workspace of cuBLAS: 40 to 60 MiB, what eight logged peaks have beyond other terms.
_BUFFERS_BYTES: Final = 50 * MIB
# GPUs without NVLink exchange over PCIe through small buffers: 0.14 to 0.19 GiB beyond one GPU's, on four
# L40S with 0.10.2 and two RTX 4090 with 0.7.
_PCIE_PEER_BYTES: Final = 160 * MIB
_VERSION: Final = re.compile(r"v?([0-9]+)\.([0-9]+)")


@dataclass(frozen=True, slots=True, kw_only=True)
class _Epoch:
    """The memory of versions from ``since`` on.

    logit_bytes: per sequence and vocabulary entry, at the peak of sampling, beside the logits as computed.
    rows: whether the sampler keeps rows of logits. held_bits: per sequence and vocabulary entry, of counts
    that stay. context_bytes: outside PyTorch. peer_bytes: more of it with NVLink peers. graph_bytes: of a
    captured graph; 0: graphs are not counted. error_bytes: how far a GPU's KV memory may be off, from logged
    values.
    """

    since: tuple[int, int]
    logit_bytes: int
    rows: bool
    held_bits: int
    context_bytes: int
    peer_bytes: int
    graph_bytes: int
    error_bytes: int


# context_bytes, peer_bytes: on H100 0.13 and 0.41 GiB with 0.11 and 0.15, 0.25 and 1.82 to 1.88 GiB with 0.18
# and 0.19 (llm-d's reports in benchmarks/kv_tokens.csv).
_EPOCHS: Final = (
    # 36 bytes: 32-bit logits, and torch.sort's values, 64-bit indices and temporaries (apply_top_k_top_p). No
    # logged value is more than 0.12 GiB off.
    _Epoch(
        since=(0, 7), logit_bytes=36, rows=False, held_bits=0, context_bytes=133 * MIB,
        peer_bytes=420 * MIB, graph_bytes=0, error_bytes=128 * MIB,
    ),
    # 12 bytes: 32-bit logits, probabilities and the noise they are divided by (random_sample); no sorting.
    _Epoch(
        since=(0, 17), logit_bytes=12, rows=True, held_bits=0, context_bytes=133 * MIB,
        peer_bytes=420 * MIB, graph_bytes=0, error_bytes=128 * MIB,
    ),
    # Graphs are captured once while memory is measured; what that leaves to the driver and NCCL is counted.
    # Off by up to 0.10 GiB on H100 and A100, 0.35 GiB on an RTX 4090.
    _Epoch(
        since=(0, 18), logit_bytes=12, rows=True, held_bits=0, context_bytes=256 * MIB,
        peer_bytes=1860 * MIB, graph_bytes=0, error_bytes=384 * MIB,
    ),
    # 0.84 GiB of 1,734 graphs of Llama-3.1-8B on an H100, 0.37 GiB of 1,034 of Qwen2.5-7B, vLLM's estimates;
    # older drivers take up to 1.3 MB of a graph.
    _Epoch(
        since=(0, 20), logit_bytes=12, rows=True, held_bits=0, context_bytes=256 * MIB,
        peer_bytes=1860 * MIB, graph_bytes=450_000, error_bytes=768 * MIB,
    ),
    # The second model runner: profiling samples from logits as they are, and counts of tokens stay (32 bits
    # and one bit of every vocabulary entry, vllm/v1/worker/gpu/sample/penalties.py). Its estimate of graphs
    # is large: 1.5 MB of each of Qwen3-8B's on an H100, 0.75 MB of Qwen2.5-1.5B's on a laptop's RTX 4070
    # (what its KV memory gains with enforce_eager).
    _Epoch(
        since=(0, 29), logit_bytes=0, rows=False, held_bits=33, context_bytes=256 * MIB,
        peer_bytes=1860 * MIB, graph_bytes=1_100_000, error_bytes=1024 * MIB,
    ),
)  # fmt: skip


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineLimits:
    """The settings of an engine that decide its profiling; ``captured``: batch sizes with a CUDA graph."""

    version: str
    max_num_seqs: int
    max_num_batched_tokens: int
    captured: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class Reserve:
    """Bytes that each GPU keeps free of KV; ``error_bytes``: how far they may be off.

    ``terms`` add up to ``size_bytes``; a number that was declared as a whole has none.
    """

    size_bytes: int
    terms: tuple[tuple[str, int], ...] = ()
    error_bytes: int = 0

    def told(self) -> str:
        """Return every term in MiB."""
        return " + ".join(f"{round(size / MIB)} MiB {name}" for name, size in self.terms)


def profiled_by(version: str) -> bool:
    """Return whether the memory profiling of this version is known, from 0.7 on."""
    return _epoch_of(version) is not None


def vllm_reserve(gpu: Gpu, llm: LlmShape, *, tp: int, limits: EngineLimits) -> Reserve:
    """Return what a GPU of a replica of ``tp`` keeps free of KV. ``profiled_by`` knows the version."""
    epoch = _epoch_of(limits.version)
    assert epoch is not None, limits.version
    width, sequences, tokens = llm.bytes_per_parameter, limits.max_num_seqs, limits.max_num_batched_tokens
    hidden_bytes = tokens * llm.hidden * width
    sampling = hidden_bytes + sequences * llm.vocab * (width + epoch.logit_bytes)
    sampling += _SAMPLER_ROWS * llm.vocab * 4 if epoch.rows else 0
    layer = 3 * hidden_bytes + tokens * _mlp_width(llm, tp) * width
    peak = (
        (f"to sample {sequences} sequences", sampling)
        if sampling >= layer
        else (f"of a layer with {tokens} tokens", layer)
    )
    experts = _expert_bytes(llm, tp, tokens) if epoch.since >= (0, 17) else 0
    graphs = len(limits.captured) * (llm.layers + 1)
    graphs += sum(size <= sequences for size in limits.captured)
    peers = (epoch.peer_bytes if gpu.nvlink else _PCIE_PEER_BYTES) if tp > 1 else 0
    rotary = 0 if llm.position_rows else llm.max_context_tokens * llm.head_dim * width
    terms = (
        ("context of CUDA", epoch.context_bytes),
        ("buffers to other GPUs", peers),
        ("input and workspace", _BUFFERS_BYTES),
        ("rotary table", rotary),
        ("counts for penalties", sequences * llm.vocab * epoch.held_bits // 8),
        peak,
        ("workspace of experts", experts),
        (f"{graphs} CUDA graphs", graphs * epoch.graph_bytes),
    )
    return Reserve(
        sum(size for _, size in terms), tuple(term for term in terms if term[1]), epoch.error_bytes
    )


def _mlp_width(llm: LlmShape, tp: int) -> int:
    """Return how many values per token the MLP of one rank holds at once, before the last product."""
    products = 3 if llm.gated_mlp else 2
    if llm.experts is None or llm.moe_layers < llm.layers:
        return products * llm.intermediate // tp
    return products * llm.experts.shared_width // tp


def _expert_bytes(llm: LlmShape, tp: int, tokens: int) -> int:
    """Return the two workspaces that stay (TritonExperts.workspace_shapes)."""
    if llm.experts is None:
        return 0
    width = llm.experts.width // tp
    values = max(width, llm.hidden) + max(2 * width, llm.hidden)
    return tokens * llm.experts.per_token * values * llm.bytes_per_parameter


def _epoch_of(version: str) -> _Epoch | None:
    match = _VERSION.match(version)
    number = (int(match[1]), int(match[2])) if match else (0, 0)
    return next((epoch for epoch in reversed(_EPOCHS) if epoch.since <= number), None)
