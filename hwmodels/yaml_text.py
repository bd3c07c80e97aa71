"""YAML that this package ships, read as data: by libyaml where PyYAML was built with it, eight times as fast.

Files of others are read by PyYAML's own loader, which refuses in a sentence what is nested too deeply.
"""

from functools import cache
from typing import Any


@cache
def _loader() -> Any:
    import yaml  # type: ignore[import-untyped, unused-ignore]

    return getattr(yaml, "CSafeLoader", yaml.SafeLoader)


def yaml_data(text: str) -> Any:
    """What ``yaml.safe_load(text)`` gives, with its errors: libyaml's say less about where and why."""
    import yaml

    try:
        return yaml.load(text, _loader())
    except yaml.YAMLError:
        return yaml.safe_load(text)
