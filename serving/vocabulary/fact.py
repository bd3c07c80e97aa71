"""The ``fact`` decorator makes frozen dataclasses with slots that are fast to create: events and actions.

The ``__init__`` of a frozen dataclass sets each field with ``object.__setattr__``, which takes four times as
long as a plain assignment, and the control plane creates several facts per event. A fact class therefore has
a second, unfrozen class with the same slots. A call of the fact class creates an object of the unfrozen
class, assigns its fields, and then sets the object's ``__class__`` to the fact class. Equality, hashing,
pickling and ``replace`` are those of a frozen dataclass.
"""

from dataclasses import dataclass, fields
from typing import Any, TypeVar, cast, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Class decorator: the same as ``@dataclass(frozen=True, slots=True)``, but instances are made faster."""
    metaclass = type(f"{cls.__name__}Type", (type,), {})
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    frozen: Any = dataclass(frozen=True, slots=True)(metaclass(cls.__name__, cls.__bases__, members))
    metaclass.__call__ = _constructor(frozen)  # type: ignore[method-assign]
    return cast(type[T], frozen)


def _constructor(frozen: Any) -> Any:
    """Return the metaclass's ``__call__``: its arguments are the class and the values of the fields."""
    names = [field.name for field in fields(frozen)]
    unfrozen = type("Unfrozen", (), {"__slots__": tuple(names)})
    lines = [f"def construct(cls, {', '.join(names)}):", "    self = unfrozen()"]
    lines += [f"    self.{name} = {name}" for name in names]
    lines += ["    self.__class__ = cls", "    return self"]
    scope: dict[str, Any] = {"unfrozen": unfrozen}
    exec("\n".join(lines), scope)
    scope["construct"].__defaults__ = frozen.__init__.__defaults__
    scope["construct"].__qualname__ = frozen.__qualname__
    return scope["construct"]
