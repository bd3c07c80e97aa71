"""Parses YAML that this package ships: by libyaml if PyYAML was built with it, eight times as fast.

Users' files are read by PyYAML's own loader, whose error for too deep nesting is a sentence.
"""

from functools import cache
from typing import Any


@cache
def _loader() -> Any:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_data(text: str) -> Any:
    """The result of ``yaml.safe_load(text)``, with its errors: libyaml's say less about where and why."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.YAMLError:
        return yaml.safe_load(text)
