"""The ``fact`` decorator makes frozen dataclasses with slots that are fast to create: events and actions.

The ``__init__`` of a frozen dataclass sets each field with ``object.__setattr__``, which takes four times as
long as a plain assignment, and the control plane creates several facts per event. A fact class therefore has
a second, unfrozen class with the same slots. A call of the fact class creates an object of the unfrozen
class, assigns its fields, and then sets the object's ``__class__`` to the fact class. With the compiled core
``nativecore/construct.c`` does the same in a third of the time. Equality, hashing, pickling and ``replace``
are those of a frozen dataclass.

A dataclass compiles six methods when its module loads, which is half of what loading this package takes.
Facts share the rare ones, and compile what creates, compares and hashes them when it is first called.
"""

from collections.abc import Callable, Sequence
from dataclasses import MISSING, FrozenInstanceError, dataclass, fields
from importlib import import_module
from typing import Any, Final, TypeVar, cast, dataclass_transform

from nativecore import core

T = TypeVar("T")


@dataclass_transform(frozen_default=True)
def fact(cls: type[T]) -> type[T]:
    """Class decorator: the same as ``@dataclass(frozen=True, slots=True)``, but instances are made faster."""
    metaclass = type(f"{cls.__name__}Type", (type,), {})
    members = {name: value for name, value in vars(cls).items() if name not in ("__dict__", "__weakref__")}
    plain = metaclass(cls.__name__, cls.__bases__, _SHARED | members)
    made: Any = dataclass(init=False, repr=False, eq=False, slots=True)(plain)

    def first(made: Any, *values: Any, **named: Any) -> Any:
        metaclass.__call__ = _constructor(made)  # type: ignore[method-assign]
        return made(*values, **named)

    metaclass.__call__ = first  # type: ignore[method-assign]
    return cast(type[T], made)


def _constructor(made: Any) -> Any:
    """Return the metaclass's ``__call__``: its arguments are the class and the values of the fields."""
    names = [field.name for field in fields(made)]
    defaults = [field.default for field in fields(made) if field.default is not MISSING]
    if core() == "compiled":
        return import_module("nativecore.construct").constructor(made, tuple(names), tuple(defaults))
    unfrozen = type("Unfrozen", (), {"__slots__": tuple(names)})
    lines = [f"def construct(cls, {', '.join(names)}):", "    self = unfrozen()"]
    lines += [f"    self.{name} = {name}" for name in names]
    lines += ["    self.__class__ = cls", "    return self"]
    construct = _compiled(lines, "construct", unfrozen=unfrozen)
    construct.__defaults__ = tuple(defaults) or None
    construct.__qualname__ = made.__qualname__
    return construct


def _compiled(lines: Sequence[str], name: str, **scope: Any) -> Any:
    exec("\n".join(lines), scope)
    return scope[name]


def _tuple_of(cls: Any, name: str) -> str:
    return f"({''.join(f'{name}.{field}, ' for field in cls.__match_args__)})"


def _equal(self: Any, other: object) -> Any:
    cls = self.__class__
    alike = f"{_tuple_of(cls, 'self')} == {_tuple_of(cls, 'other')}"
    lines = [
        "def equal(self, other):",
        f"    return {alike} if other.__class__ is self.__class__ else object.__eq__(self, other)",
    ]
    cls.__eq__ = _compiled(lines, "equal")
    return cls.__eq__(self, other)


def _hashed(self: Any) -> Any:
    cls = self.__class__
    cls.__hash__ = _compiled(["def hashed(self):", f"    return hash({_tuple_of(cls, 'self')})"], "hashed")
    return cls.__hash__(self)


def _shown(self: Any) -> str:
    shown = [f"{name}={getattr(self, name)!r}" for name in self.__match_args__]
    return f"{self.__class__.__qualname__}({', '.join(shown)})"


def _refuse_change(self: Any, name: str, value: object) -> None:
    raise FrozenInstanceError(f"cannot assign to field {name!r}")


def _refuse_deletion(self: Any, name: str) -> None:
    raise FrozenInstanceError(f"cannot delete field {name!r}")


def _pickled(self: Any) -> list[Any]:
    return [getattr(self, name) for name in self.__match_args__]


def _unpickled(self: Any, values: list[Any]) -> None:
    for name, value in zip(self.__match_args__, values, strict=True):
        object.__setattr__(self, name, value)


_SHARED: Final[dict[str, Callable[..., Any]]] = {
    "__eq__": _equal,
    "__hash__": _hashed,
    "__repr__": _shown,
    "__setattr__": _refuse_change,
    "__delattr__": _refuse_deletion,
    "__getstate__": _pickled,
    "__setstate__": _unpickled,
}
