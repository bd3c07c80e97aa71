"""Reads whole files of a user: regular ones of limited size, parsed within limits.

Each raises OSError if the file cannot be read, ValueError if its content is not of the kind, and
HardwareError, a sentence for the user, if it is no regular file or too large.
"""

from pathlib import Path
from typing import Any, Final

from hwmodels.reading import read_limited
from hwmodels.yaml_text import MOST_YAML_BYTES, users_yaml
from serving.record.json_text import json_data

MOST_BYTES: Final = 256 << 20  # of a result's summary, or a table; 2 s to parse


def text_in(path: Path, errors: str = "strict") -> str:
    """Return the text, in UTF-8."""
    return read_limited(path, MOST_BYTES).decode("utf-8", errors)


def json_in(path: Path) -> Any:
    """Return the data of a JSON document."""
    return json_data(text_in(path))


def yaml_in(path: Path, aliases: bool = True) -> Any:
    """Return the data of a YAML document. ``aliases``: whether it may have any. Also raises YAMLError."""
    return users_yaml(read_limited(path, MOST_YAML_BYTES), aliases)
