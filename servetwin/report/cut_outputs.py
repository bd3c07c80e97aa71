"""Outputs that end before their length, in a summary."""

from collections.abc import Mapping
from typing import Any


def cut_at_cap(trace: Mapping[str, Any]) -> int:
    """Return the number of outputs that end at their cap, not those that end early for another reason."""
    reasons = trace.get("truncated_reasons")
    cut = trace.get("truncated_outputs") if reasons is None else reasons.get("max_new_tokens")
    return int(cut or 0)
