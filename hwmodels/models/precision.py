"""How the numbers of a model are stored: number formats with their scales, and which parts have which."""

from dataclasses import dataclass, replace
from typing import Final

from hwmodels.errors import HardwareError


@dataclass(frozen=True, slots=True)
class NumberFormat:
    """``bits`` of a value, and ``scale_bits`` for each ``group`` of values that share a scale.

    A scale of a whole matrix or row is left out: it is below 0.1 % of the bytes. ``computes``: the numbers
    that matrix products take beside such weights: bf16, fp8, fp4 or int8.
    """

    bits: int
    computes: str
    source: str
    scale_bits: int = 0
    group: int = 1

    def size_bytes(self, values: int) -> int:
        """Bytes of so many values with their scales."""
        return -(-(values * self.bits + -(-values // self.group) * self.scale_bits) // 8)


_OCP: Final = "OCP Microscaling Formats (MX) Specification v1.0"
FORMATS: Final = {
    "fp32": NumberFormat(32, "fp32", "IEEE 754"),
    "fp16": NumberFormat(16, "bf16", "IEEE 754"),
    "bf16": NumberFormat(16, "bf16", "IEEE 754, cut to 8 bits of mantissa"),
    "fp8": NumberFormat(8, "fp8", "E4M3 with a scale per matrix or row: vLLM, FP8 W8A8"),
    "fp8_block": NumberFormat(8, "fp8", "E4M3, fp32 scales of 128x128 values: DeepSeek-V3", 32, 16_384),
    "int8": NumberFormat(8, "int8", "a scale per row: vLLM, INT8 W8A8"),
    "int4": NumberFormat(4, "bf16", "16-bit scales of 128 values: AutoAWQ; widened before use", 16, 128),
    "mxfp4": NumberFormat(4, "bf16", f"E2M1, 8-bit scales of 32 values: {_OCP}; widened", 8, 32),
    "nvfp4": NumberFormat(4, "fp4", "E2M1, E4M3 scales of 16 values: NVIDIA, NVFP4", 8, 16),
}  # fmt: skip
# Words of `model.precision` and `engine.kv_cache_dtype`.
_ON_PARTS: Final = {
    "int4_experts": ("int4", ("experts",)),
    "mxfp4_experts": ("mxfp4", ("experts",)),
    "nvfp4_experts": ("nvfp4", ("experts",)),
    "nvfp4_mlp": ("nvfp4", ("mlp", "experts")),
}
"""Formats of parts beside others in 16 bits, as mixtures of experts are published."""
PRECISIONS: Final = ("bf16", "fp8", "fp8_block", "int8", "int4", "mxfp4", "nvfp4", *_ON_PARTS)
KV_FORMATS: Final = ("bf16", "fp8")
_OF_WIDTH: Final = {1: "fp8", 2: "bf16", 4: "fp32"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Precision:
    """The number format of the matrices of attention, of MLPs and of experts, and of the KV cache.

    Embeddings, head, norms, biases and gates have the model's own width (``LlmShape.bytes_per_parameter``).
    ``group``: values that share a scale, where a checkpoint says so (None: as usual for the format).
    """

    attention: str
    mlp: str
    experts: str
    kv: str
    group: int | None = None

    def __post_init__(self) -> None:
        for name in (self.attention, self.mlp, self.experts, self.kv):
            if name not in FORMATS:
                raise HardwareError(f"unknown number format {name!r}: write one of {', '.join(FORMATS)}")

    def format(self, name: str) -> NumberFormat:
        """The format called ``name`` with this model's groups."""
        known = FORMATS[name]
        return known if self.group is None or known.group == 1 else replace(known, group=self.group)

    @property
    def matrices(self) -> tuple[str, ...]:
        """The formats of all matrices, each once."""
        return tuple(dict.fromkeys((self.attention, self.mlp, self.experts)))

    @property
    def text(self) -> str:
        """In words: one format, or one for each part that differs; and that of KV."""
        if len(self.matrices) == 1:
            stored = self.attention
        else:
            stored = f"{self.attention} attention, {self.mlp} MLP, {self.experts} experts"
        return f"{stored}, KV {self.kv}"


def uniform(bytes_per_parameter: int) -> Precision:
    """Everything in the model's own width."""
    name = _OF_WIDTH[bytes_per_parameter]
    return Precision(attention=name, mlp=name, experts=name, kv=name)


def quantised(name: str, bytes_per_parameter: int) -> Precision:
    """Matrices of layers in what ``name`` says, one of ``PRECISIONS``; KV in the model's own width."""
    own = uniform(bytes_per_parameter)
    stored, parts = _ON_PARTS.get(name, (name, ("attention", "mlp", "experts")))
    attention, mlp, experts = (
        stored if part in parts else getattr(own, part) for part in ("attention", "mlp", "experts")
    )
    return replace(own, attention=attention, mlp=mlp, experts=experts)


def stored_as(
    bytes_per_parameter: int, published: Precision | None, name: str | None, kv: str
) -> Precision | None:
    """What a run stores: matrices in ``name`` (None: as published) and KV in ``kv`` (``auto``: as published).

    None: everything in the model's own width.
    """
    own = published or uniform(bytes_per_parameter)
    chosen = own if name is None else replace(quantised(name, bytes_per_parameter), kv=own.kv)
    chosen = chosen if kv == "auto" else replace(chosen, kv=kv)
    return None if chosen == uniform(bytes_per_parameter) else chosen
