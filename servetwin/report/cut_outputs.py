"""Outputs that end before their length, in a summary."""

from collections.abc import Mapping
from typing import Any


def cut_at_cap(trace: Mapping[str, Any]) -> int:
    """Return how many outputs end at their cap; the labels tell of those that end for another reason."""
    reasons = trace.get("truncated_reasons")
    cut = trace.get("truncated_outputs") if reasons is None else reasons.get("max_new_tokens")
    return int(cut or 0)
