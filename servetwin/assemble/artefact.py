"""The speed constants that BlitzScale's authors ship, for ``estimates=artefact``.

Source: reference table of the OSDI 2025 artefact, per instance: prompt tokens/s, KV tokens/s over RDMA, KV
tokens of its memory. Where the table gives a range, its middle (Llama3-8B: 12000 to 15000 prompt tokens/s).
"""

from typing import Final, NamedTuple

from serving.vocabulary.errors import UserError


class ShippedRates(NamedTuple):
    """The shipped constants of one instance."""

    prefill_tokens_per_s: float
    kv_tokens_per_s: float
    kv_tokens: int


SHIPPED: Final = {
    "llama2_7b": ShippedRates(13_000, 24_000, 128_000),
    "llama3_8b": ShippedRates(13_500, 96_000, 480_000),
    "mistral_24b": ShippedRates(12_000, 160_000, 512_000),
    "qwen2_5_72b": ShippedRates(5_300, 160_000, 256_000),
}


def shipped_rates(shape: str) -> ShippedRates:
    """Return the constants of a model; UserError if the artefact has none."""
    if shape not in SHIPPED:
        raise UserError(
            f"estimates=artefact has no constants of {shape}, only of {', '.join(SHIPPED)}: write "
            "estimates=model"
        )
    return SHIPPED[shape]
