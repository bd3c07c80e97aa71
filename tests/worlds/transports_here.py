"""The transports as parameters of tests: what this machine lacks is skipped and says so."""

from collections.abc import Iterable
from typing import Any

import pytest

from realexec.transport_registry import DIRECT, OPTIONAL, TRANSPORTS, missing


def transports(kinds: Iterable[str] = TRANSPORTS, prefix: str = "") -> list[Any]:
    """Parameters of a test; only those that not every machine has may be missing."""
    lacks = {kind: lack for kind, lack in missing().items() if kind in OPTIONAL and lack is not None}
    return [
        pytest.param(
            prefix + kind,
            marks=[*_marks(kind), pytest.mark.skipif(kind in lacks, reason=lacks.get(kind, ""))],
        )
        for kind in kinds
    ]


def _marks(kind: str) -> list[pytest.MarkDecorator]:
    """Those that read tensors import torch, in every process of a test."""
    return [pytest.mark.real] if kind in DIRECT else []
