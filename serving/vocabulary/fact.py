"""Frozen slotted dataclasses that are cheap to build: the vocabulary of events and actions.

A frozen dataclass sets each field through ``object.__setattr__``, four times the cost of a plain attribute,
and the control plane builds several facts per event. Here calling the class fills an unfrozen twin of the
same layout and then turns it into the frozen class. Everything else, equality and hash and pickling and
``replace``, is the dataclass's own.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Class decorator: ``@dataclass(frozen=True, slots=True)``, quicker to call."""
    caller = type(f"{cls.__name__}Type", (type,), {})
    content = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    frozen: Any = dataclass(frozen=True, slots=True)(caller(cls.__name__, cls.__bases__, content))
    caller.__call__ = _constructor(frozen)  # type: ignore[method-assign]
    return cast(type[T], frozen)


def _constructor(frozen: Any) -> Any:
    """What calling the class does: a function of the class and its fields."""
    names = [field.name for field in fields(frozen)]
    twin = type("Unfrozen", (), {"__slots__": tuple(names)})
    lines = [f"def construct(cls, {', '.join(names)}):", "    self = twin()"]
    lines += [f"    self.{name} = {name}" for name in names]
    lines += ["    self.__class__ = cls", "    return self"]
    scope: dict[str, Any] = {"twin": twin}
    exec("\n".join(lines), scope)
    scope["construct"].__defaults__ = frozen.__init__.__defaults__
    scope["construct"].__qualname__ = frozen.__qualname__
    return scope["construct"]
