"""Values of a configuration that are missing (``???``) or another key's (``${engine.max_num_seqs}``)."""

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

MISSING: Final = "???"
_REFERENCE: Final = re.compile(r"\$\{([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)\}")
_DEEPEST: Final = 8  # a longer chain of references is circular


class _OtherFormError(Exception):
    """A reference that is not only the name of another key, or has no target."""


def is_reference(value: Any) -> bool:
    """Return whether a value is a reference to another key."""
    return isinstance(value, str) and "${" in value


def missing_keys(value: Any, key: str = "") -> Iterator[str]:
    """Yield the dotted keys without a value, and items of lists in OmegaConf's form: ``ways[0]``."""
    if isinstance(value, Mapping):
        for name, inner in value.items():
            yield from missing_keys(inner, f"{key}.{name}" if key else name)
    elif isinstance(value, list):
        for at, inner in enumerate(value):
            yield from missing_keys(inner, f"{key}[{at}]")
    elif value == MISSING:
        yield key


def followed(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the same data with every reference resolved.

    The option files of this package name keys only. Other forms (resolvers, text around a name) are resolved
    by OmegaConf; a UserError says what is wrong.
    """
    try:
        return {name: _value(inner, tree, 0) for name, inner in tree.items()}
    except _OtherFormError:
        from servetwin.config.compose import hydra_merge

        return hydra_merge.followed(tree)


def _value(value: Any, tree: Mapping[str, Any], depth: int) -> Any:
    if isinstance(value, Mapping):
        return {name: _value(inner, tree, depth) for name, inner in value.items()}
    if isinstance(value, list):
        return [_value(inner, tree, depth) for inner in value]
    if not is_reference(value):
        return value
    reference = _REFERENCE.fullmatch(value)
    if reference is None or depth == _DEEPEST:
        raise _OtherFormError
    return _value(_found(tree, reference[1]), tree, depth + 1)


def _found(tree: Mapping[str, Any], key: str) -> Any:
    found: Any = tree
    for part in key.split("."):
        if not isinstance(found, Mapping) or part not in found:
            raise _OtherFormError
        found = found[part]
    return found
