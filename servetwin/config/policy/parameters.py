"""Parameters of a policy's constructor, with type and default, and checks of values against them."""

import inspect
import math
import types
import typing
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from servetwin.config.overrides import Wanted
from servetwin.config.policy.groups import PolicyGroup
from servetwin.config.policy.policy_class import attribute
from serving.vocabulary.errors import UserError

REQUIRED: Final = "???"  # OmegaConf's mark of a required value
_PLAIN: Final = (int, float, bool, str)
_LISTS: Final = (list, tuple, Sequence, Iterable)
_WRITTEN: Final = {"int": int, "float": float, "bool": bool, "str": str, "list": list}
COLLECTING: Final = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
_NAMED_KINDS: Final = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


@dataclass(frozen=True, slots=True)
class Parameter:
    """A parameter that a user may set. ``default``: ``REQUIRED`` if there is none."""

    wanted: Wanted
    default: Any


def parameters_of(where: str, found: type, group: PolicyGroup) -> dict[str, Parameter]:
    """Return the constructor parameters that a user may set, without those that the builder passes.

    Those whose default cannot be written are left out too. Raises UserError for a parameter without a default
    whose values cannot be written.
    """
    settable = {}
    for name, parameter in signature_of(where, found).parameters.items():
        if name in group.provided:
            continue
        wanted = wanted_of(parameter)
        if wanted is not None and parameter.kind in _NAMED_KINDS and _is_plain(parameter.default):
            settable[name] = Parameter(wanted, _default_value(parameter.default, wanted))
        elif parameter.default is parameter.empty and parameter.kind not in COLLECTING:
            raise UserError(
                f"{where} cannot be made: its constructor wants {name}, and what can be written is an int, "
                f"float, bool, str or list given by name (handed over: {', '.join(group.provided)}); give it "
                "such a type or a default"
            )
    return settable


def declared(where: str, policy: str, name: str) -> Wanted:
    """Return the type of a parameter of this package's option; ``Any`` if it is no plain type."""
    try:
        parameter = signature_of(where, attribute(where, policy)).parameters[name]
    except (KeyError, UserError):  # making the policy raises the error with the reason
        return Wanted(Any)
    wanted = wanted_of(parameter)
    return Wanted(Any) if wanted is None or wanted.type is list else wanted


def signature_of(where: str, factory: Callable[..., Any]) -> inspect.Signature:
    """Return the constructor's signature, with annotations as types if they can be evaluated."""
    try:
        return inspect.signature(factory, eval_str=True)
    except (TypeError, ValueError):
        raise UserError(
            f"{where} cannot be made: its constructor has no signature; write one in Python"
        ) from None
    except Exception:  # names imported only for type checkers
        return inspect.signature(factory)


def wanted_of(parameter: inspect.Parameter) -> Wanted | None:
    """Return the type of its values, from annotation or default; None: values cannot be written."""
    annotation = parameter.annotation
    if annotation is parameter.empty:
        default = parameter.default
        known = default is not parameter.empty and default is not None
        annotation = type(default) if known else Any
    return _wanted(annotation)


def check_values(key: str, values: Mapping[str, Any], parameters: Mapping[str, Wanted | None]) -> None:
    """Refuse values whose type differs from the constructor's. ``key``: ``system.dispatch``."""
    for name, value in values.items():
        wanted = parameters[name]
        if wanted is not None and not _fits(value, wanted):
            raise UserError(
                f"{key}.{name}={value!r:.60} is wrong: {key}.{name} wants {wanted}, so write for example "
                f"{key}.{name}={wanted.example}"
            )


def _wanted(annotation: Any) -> Wanted | None:
    if isinstance(annotation, str):
        written, optional = annotation.replace(" ", "").removesuffix("|None"), annotation.endswith("None")
        return Wanted(_WRITTEN[written], optional) if written in _WRITTEN else None
    if annotation in (Any, object, inspect.Parameter.empty):
        return Wanted(Any, optional=True)
    origin = typing.get_origin(annotation)
    if origin in (types.UnionType, typing.Union):
        return _wanted_by_union(typing.get_args(annotation))
    if origin is typing.Literal:
        words = typing.get_args(annotation)
        return Wanted(str, choices=words) if all(isinstance(word, str) for word in words) else None
    if (origin or annotation) in _LISTS:
        inner = _wanted(next(iter(typing.get_args(annotation)), Any))
        return None if inner is None else Wanted(list, items=inner.type)
    return Wanted(annotation) if annotation in _PLAIN else None


def _wanted_by_union(options: Sequence[Any]) -> Wanted | None:
    """Return a union's only type, number for int and float, else any; None if one type is not plain."""
    wanted = [_wanted(option) for option in options if option is not types.NoneType]
    optional, kinds = types.NoneType in options, {one.type for one in wanted if one is not None}
    if None in wanted or not wanted:
        return None
    if len(wanted) == 1:
        return None if wanted[0] is None else replace(wanted[0], optional=optional)
    return Wanted(float if kinds == {int, float} else Any, optional)


def _is_plain(default: Any) -> bool:
    if isinstance(default, (list, tuple)):
        return all(type(item) in _PLAIN and _is_plain(item) for item in default)
    if isinstance(default, str):
        return "${" not in default and default != REQUIRED
    if isinstance(default, float) and math.isnan(default):
        return False
    return default is None or default is inspect.Parameter.empty or type(default) in _PLAIN


def _default_value(default: Any, wanted: Wanted) -> Any:
    """Return a default as in the configuration."""
    if default is inspect.Parameter.empty:
        return REQUIRED
    if isinstance(default, (list, tuple)):
        return [float(item) if wanted.items is float else item for item in default]
    return float(default) if wanted.type is float and type(default) is int else default


def _fits(value: Any, wanted: Wanted) -> bool:
    if value is None:
        return wanted.optional
    if wanted.type is Any:
        return type(value) in _PLAIN or (
            isinstance(value, list) and all(type(item) in _PLAIN for item in value)
        )
    if isinstance(value, float) and math.isnan(value):
        return False
    if wanted.choices:
        return value in wanted.choices
    if wanted.type is list:
        return isinstance(value, list) and all(_fits(item, Wanted(wanted.items)) for item in value)
    return type(value) is wanted.type or (wanted.type is float and type(value) is int)
