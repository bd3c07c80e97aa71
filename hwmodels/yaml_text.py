"""Parses YAML by libyaml if PyYAML was built with it, eight times as fast; users' files also within limits.

A few lines of YAML can stand for any amount of data (aliases), or nest deeper than a parser's stack.
"""

from collections.abc import Iterable, Iterator
from functools import cache
from typing import Any, Final

MOST_YAML_BYTES: Final = 1 << 18  # files that this program writes or ships have some kB; 4 s without libyaml
_DEEPEST: Final = 100
_MOST_VALUES: Final = 100_000
_EXPLAINED: Final = 1 << 16  # characters
_MERGE: Final = "<<"  # takes over other mappings, any number of them
_KEY_SHOWN: Final = 60  # characters


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


def users_yaml(content: bytes, aliases: bool = True, most_values: int = _MOST_VALUES) -> Any:
    """``yaml_data`` of a user's file in UTF-8; files that people write have ``MOST_YAML_BYTES`` at most.

    Raises yaml.YAMLError, or ValueError: not UTF-8, a value that its tag does not fit, nested too deeply,
    aliases (``*name``) that stand for too much, or any of them if not ``aliases``; a key written twice.
    """
    import yaml

    text = content.decode("utf-8-sig")
    try:
        _refuse_large(yaml.parse(text, Loader=_loader()), aliases, most_values)
    except yaml.YAMLError:
        if len(text) > _EXPLAINED:
            raise
        # Eight times as slow; says more of where and why, and takes escapes of file names that are no text.
        _refuse_large(yaml.parse(text, Loader=yaml.SafeLoader), aliases, most_values)
    try:
        return yaml_data(text)
    except (ArithmeticError, AttributeError, LookupError, TypeError) as error:
        # PyYAML's own, for '!!bool 5' and the like.
        raise ValueError(f"a tag (!!NAME) does not fit its value: {error}") from error


def _refuse_large(events: Iterable[Any], aliases: bool, most_values: int) -> None:
    """Count the values that a document stands for, each alias as what it refers to."""
    import yaml

    counts, names, known = [0], list[str | None](), dict[str, int]()
    for event in _with_keys_once(events):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            names.append(event.anchor)
            if len(counts) > _DEEPEST:
                raise ValueError(f"it nests more than {_DEEPEST} deep")
        elif isinstance(event, yaml.CollectionEndEvent):
            count, name = counts.pop(), names.pop()
            counts[-1] += count
            if name is not None:
                known[name] = count
        elif isinstance(event, yaml.AliasEvent):
            if not aliases:
                raise ValueError("it refers to another part of itself with '*'")
            if event.anchor in names:
                raise ValueError(f"*{event.anchor} contains itself")
            counts[-1] += known.get(str(event.anchor), 1)
        elif isinstance(event, yaml.ScalarEvent):
            counts[-1] += 1
            if event.anchor is not None:
                known[event.anchor] = 1
        if counts[-1] > most_values:
            raise ValueError(f"it stands for more than {most_values} values")


def _with_keys_once(events: Iterable[Any]) -> Iterator[Any]:
    """The same events. ValueError for a second key of the same name, of which PyYAML keeps the last."""
    import yaml

    # Of each open collection the keys so far (None: a list), and whether a key comes next.
    known, is_key = list[set[str] | None]([None]), [False]
    for event in events:
        if isinstance(event, yaml.CollectionEndEvent):
            known.pop()
            is_key.pop()
        elif isinstance(event, yaml.NodeEvent):
            keys = known[-1]
            if keys is not None and is_key[-1] and isinstance(event, yaml.ScalarEvent):
                if event.value in keys and event.value != _MERGE:
                    again = f", again in line {event.start_mark.line + 1}" if event.start_mark else ""
                    raise ValueError(f"{event.value[:_KEY_SHOWN]} is written twice{again}")
                keys.add(event.value)
            is_key[-1] = not is_key[-1]
            if isinstance(event, yaml.CollectionStartEvent):
                is_mapping = isinstance(event, yaml.MappingStartEvent)
                known.append(set() if is_mapping else None)
                is_key.append(True)
        yield event
