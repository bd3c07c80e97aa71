"""What is declared of a configuration key at its field: all that its name, type and default do not say.

``--help``, errors, ``config.yaml``, the tables of docs/reference/CONFIGURATION and the refusal of keys that
a run does not read are made from it, so a new key is one field.
"""

import dataclasses
import functools
import re
import typing
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, Final

from serving.vocabulary.errors import UserError


@dataclass(frozen=True, slots=True)
class Range:
    """The allowed values of a number; None means unbounded. ``open_low``/``open_high`` exclude the bound."""

    low: float | None = None
    high: float | None = None
    open_low: bool = False
    open_high: bool = False

    def __contains__(self, value: float) -> bool:
        if self.low is not None and (value < self.low or (self.open_low and value == self.low)):
            return False
        return self.high is None or value < self.high or (value == self.high and not self.open_high)

    @property
    def signs(self) -> str:
        """As in a table: ``>= 1``, ``> 0 and <= 1``, ``0 to 10``."""
        low = "" if self.low is None else f"{'>' if self.open_low else '>='} {self.low:g}"
        if self.high is None:
            return low
        if self.low is not None and not (self.open_low or self.open_high):
            return f"{self.low:g} to {self.high:g}"
        high = f"{'<' if self.open_high else '<='} {self.high:g}"
        return f"{low} and {high}" if low else high

    def __str__(self) -> str:
        """Return the words that follow "write a number ..."."""
        if self.low is not None and self.high is not None:
            low = f"above {self.low:g}" if self.open_low else f"from {self.low:g}"
            return f"{low} {'and below' if self.open_high else 'up to'} {self.high:g}"
        return f"above {self.low:g}" if self.open_low else f"of at least {self.low:g}"


COUNT: Final = Range(low=1)
NOT_NEGATIVE: Final = Range(low=0)
POSITIVE: Final = Range(low=0, open_low=True)


@dataclass(frozen=True, slots=True)
class Reader:
    """A part of the program that reads a key in some runs only.

    ``reads``: returns whether a run with this RunConfig has the part (typed ``Any``, because the module of
    RunConfig imports this one). ``of``: the words that follow "it is read only by" in an error. ``instead``:
    what the user must write so that the key is read.
    """

    reads: Callable[[Any], bool]
    of: str
    instead: str


WRITTEN: Final = object()  # in config.yaml whatever its value


@dataclass(frozen=True, slots=True, kw_only=True)
class Key:
    """The declaration of one key, or of all keys of a nested configuration.

    ``meaning``: for help and docs, in Markdown; links are relative to a folder of docs/. ``within``: the
    allowed numbers.
    ``choices``: the allowed words. ``read_by``: each must be in a run, or the key is refused there.
    ``options``: the options of its group that use the key; if it is ``required`` it must have a value with
    them, and with any other option it must be null. ``kind``: the only kind of run that has the key.
    ``omit``: the value at which config.yaml leaves the key out. ``omit_with``: another key of the same
    configuration; config.yaml leaves this one out whenever it leaves that one out. ``absent``: the value in
    files that have that key and lack this one. ``also``: other words for the key, beside the
    flags of servers that set it (server_flags).
    """

    meaning: str
    within: Range | None = None
    choices: tuple[str, ...] = ()
    read_by: tuple[Reader, ...] = ()
    options: tuple[str, ...] = ()
    required: bool = False
    kind: str | None = None
    omit: object = WRITTEN
    omit_with: str = ""
    absent: object = WRITTEN
    also: tuple[str, ...] = ()


def key(meaning: str, *, default: Any = dataclasses.MISSING, **declared: Any) -> Any:
    """Return the dataclass field of a key: ``block_tokens: int = key("tokens of a KV block", default=16)``.

    ``declared``: the other fields of ``Key``.
    """
    return dataclasses.field(default=default, metadata={"key": Key(meaning=meaning, **declared)})


def key_of(field: "dataclasses.Field[Any]") -> Key:
    """Return what is declared at a field of a configuration."""
    return typing.cast(Key, field.metadata["key"])


@dataclass(frozen=True, slots=True, kw_only=True)
class DeclaredKey:
    """A key with its dotted ``path`` in config.yaml and its type ``hint``.

    ``read_by`` and ``kind`` include those that are declared at the sections which contain the key.
    """

    path: str
    key: Key
    read_by: tuple[Reader, ...]
    kind: str | None
    hint: Any
    default: Any

    @property
    def text(self) -> str:
        """The meaning without Markdown."""
        linked = re.sub(r"\[([^]]*)\]\(([^)#]*)(#[^)]*)?\)", _plain_link, self.key.meaning)
        return linked.replace("`", "")


def _plain_link(link: "re.Match[str]") -> str:
    page = f"docs/{link[2].removeprefix('../')}" if link[2] else "docs/reference/CONFIGURATION.md"
    name = link[2].rpartition("/")[2].removesuffix(".md")
    return page if link[1] in (name, link[2]) else f"{link[1]} ({page})"


@functools.cache
def declared_keys(config_class: type) -> Mapping[str, DeclaredKey]:
    """Map each dotted key of a configuration class to its declaration, free parameters apart."""
    return {declared.path: declared for declared in _declared(config_class, "", (), None)}


def _declared(
    config_class: Any, prefix: str, read_by: tuple[Reader, ...], kind: str | None
) -> Iterator[DeclaredKey]:
    hints = typing.get_type_hints(config_class)
    for field in dataclasses.fields(config_class):
        if field.name == "params":
            continue
        declared = key_of(field)
        readers, of_kind = (*read_by, *declared.read_by), declared.kind or kind
        if dataclasses.is_dataclass(hints[field.name]):
            yield from _declared(hints[field.name], f"{prefix}{field.name}.", readers, of_kind)
        else:
            yield DeclaredKey(
                path=prefix + field.name,
                key=declared,
                read_by=readers,
                kind=of_kind,
                hint=hints[field.name],
                default=field.default,
            )


def check_declared(config: object, prefix: str = "", first: tuple[str, ...] = ()) -> None:
    """Raise UserError for the first value that its key's declaration does not allow.

    ``prefix``: the prefix of the keys of ``config``, with its dot. ``first``: the keys that are checked
    before all others.
    """
    config_class: Any = type(config)
    keys: Mapping[str, DeclaredKey] = declared_keys(config_class)
    for path in (*first, *(path for path in keys if path not in first)):
        declared, value = keys[path].key, attrgetter(path)(config)
        if declared.options:
            _check_option(config, prefix, path, declared, value)
        if value is None:
            continue
        if declared.within is not None and value not in declared.within:
            raise UserError(f"{prefix}{path}={value} is out of range: write a number {declared.within}")
        if declared.choices and value not in declared.choices:
            null = ", or null" if keys[path].default is None else ""
            choices = ", ".join(declared.choices)
            raise UserError(f"{prefix}{path}={value} is unknown: write one of {choices}{null}")


def _check_option(config: Any, prefix: str, path: str, declared: Key, value: Any) -> None:
    """Refuse a key that the option of its group does not use, and one without the value that it needs."""
    owner = path.rpartition(".")[0]
    option, group, name = attrgetter(f"{owner}.name")(config), prefix + owner, prefix + path
    if value is None and declared.required and option in declared.options:
        raise UserError(f"{name}=null does not fit {group}={option}: write {name}=VALUE")
    if value is not None and option not in declared.options:
        fits = " or ".join(f"{group}={fit}" for fit in declared.options)
        raise UserError(f"{name}={value} does not fit {group}={option}: leave it out or write {fits}")
