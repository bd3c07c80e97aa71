"""Parses JSON that another program or a user wrote."""

import json
from collections.abc import Sequence
from typing import Any


def json_data(text: str | bytes) -> Any:
    """The data. Raises ValueError for what is no JSON in UTF-8, or nests too deeply to be parsed."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def as_tuples(fields: Sequence[Any]) -> list[Any]:
    """The values, with tuples for lists. Raises ValueError for what nests too deeply."""
    try:
        return [_tuples(field) for field in fields]
    except RecursionError:
        raise ValueError("it nests too deeply") from None


def _tuples(value: Any) -> Any:
    return tuple([_tuples(item) for item in value]) if type(value) is list else value
