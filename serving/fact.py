"""Frozen slotted dataclasses that are cheap to build: the vocabulary of events and actions.

A frozen dataclass sets each field through ``object.__setattr__``, four times the cost of a plain attribute,
and the control plane builds several facts per event. Here ``__init__`` fills an unfrozen twin of the same
layout and then turns it into the frozen class. Equality, hash, repr and pickling are the dataclass's own.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Class decorator: ``@dataclass(frozen=True, slots=True)`` with a faster ``__init__``."""
    frozen: Any = dataclass(frozen=True, slots=True)(cls)
    names = [field.name for field in fields(frozen)]
    twin = type("Unfrozen", (), {"__slots__": tuple(names)})
    scope: dict[str, Any] = {"become": object.__setattr__, "twin": twin, "frozen": frozen}
    lines = [f"def __init__(self, {', '.join(names)}):", "    become(self, '__class__', twin)"]
    lines += [f"    self.{name} = {name}" for name in names]
    lines += ["    self.__class__ = frozen"]
    exec("\n".join(lines), scope)
    init = scope["__init__"]
    init.__defaults__ = frozen.__init__.__defaults__
    init.__qualname__ = f"{cls.__qualname__}.__init__"
    frozen.__init__ = init
    return cast(type[T], frozen)
