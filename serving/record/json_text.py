"""Parses JSON that another program or a user wrote."""

import json
from typing import Any


def json_data(text: str | bytes) -> Any:
    """The data. Raises ValueError for what is no JSON in UTF-8, or nests too deeply to be parsed."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it nests too deeply") from None
