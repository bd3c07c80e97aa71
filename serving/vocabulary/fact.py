"""The ``fact`` decorator: frozen slotted dataclasses that are cheap to build, used for events and actions.

A frozen dataclass sets each field through ``object.__setattr__``, at four times the cost of a plain
attribute, and the control plane builds several facts per event. Calling a fact class instead fills an
unfrozen twin of the same layout, then changes its class to the frozen one. Equality, hash, pickling,
``replace`` and the rest are the dataclass's own.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Class decorator: ``@dataclass(frozen=True, slots=True)``, faster to call."""
    caller = type(f"{cls.__name__}Type", (type,), {})
    content = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    frozen: Any = dataclass(frozen=True, slots=True)(caller(cls.__name__, cls.__bases__, content))
    caller.__call__ = _constructor(frozen)  # type: ignore[method-assign]
    return cast(type[T], frozen)


def _constructor(frozen: Any) -> Any:
    """Return the function that calling the class runs, with the class and its fields as arguments."""
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
