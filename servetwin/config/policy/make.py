"""Makes a configured policy: imports it, checks it against its protocol, and passes its parameters."""

import inspect
import typing
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from servetwin.config.config import PolicyConfig
from servetwin.config.overrides import echo
from servetwin.config.policy.groups import POLICY_GROUPS, PolicyGroup
from servetwin.config.policy.installed import installed_policy
from servetwin.config.policy.parameters import check_values, signature_of, wanted_of
from servetwin.config.policy.policy_class import attribute, place_of, policy_class
from serving.vocabulary.errors import UserError

# The packages of this project whose options may name a function that makes the policy.
_OURS: Final = ("policies", "servetwin")


def make_policy(key: str, policy: PolicyConfig, **provided: object) -> Any:
    """Return one instance of the policy of ``key``, with ``provided`` objects as its parameters."""
    return policy_maker(key, policy, **provided)()


def policy_maker(key: str, policy: PolicyConfig, **provided: object) -> Callable[[], Any]:
    """Return a function that makes instances of the policy of ``key`` (such as ``system/dispatch``).

    ``provided`` are objects that only the builder has (a random stream): each is passed if the constructor
    has a parameter of that name. Raises UserError if the class cannot be imported, is no policy of that
    group, does not take the parameters, or fails.
    """
    group, where = POLICY_GROUPS[key.removeprefix("system/")], f"{key}={echo(policy.name)}"
    factory = _factory(where, key, policy, group)
    accepted = signature_of(where, factory).parameters
    _check_names(where, key, policy.params, accepted, group)
    dotted = key.replace("/", ".")
    check_values(dotted, policy.params, {name: wanted_of(one) for name, one in accepted.items()})
    given = {name: value for name, value in provided.items() if name in accepted}
    given |= {name: _as_annotated(value, accepted[name]) for name, value in policy.params.items()}
    wanted = [*group.methods, *group.attributes]

    def make() -> Any:
        made, lacks = _make_and_check(where, factory, given, wanted)
        if lacks:
            raise UserError(f"{where} is no {group.protocol.__name__}: it has no {', '.join(lacks)}; add it")
        return made

    return make


def _factory(where: str, key: str, policy: PolicyConfig, group: PolicyGroup) -> Callable[..., Any]:
    """Return the class; an option of this package may also name a function that makes the policy."""
    if ":" not in policy.policy:
        raise UserError(f"{where} names no class: write {key}=module:Class, or another option")
    if policy.name == policy.policy:
        return policy_class(where, policy.policy, group)
    if policy.policy.partition(".")[0] not in _OURS:
        if installed_policy(where, policy.name) == policy.policy:
            return policy_class(where, policy.policy, group)
        raise UserError(
            f"{where} names '{echo(policy.policy)}', a class from outside this package: write "
            f"{key}=module:Class with it, which needs no option file"
        )
    factory: Callable[..., Any] = attribute(where, policy.policy)
    return factory


def _check_names(
    where: str,
    key: str,
    params: Mapping[str, Any],
    accepted: Mapping[str, inspect.Parameter],
    group: PolicyGroup,
) -> None:
    parameters = {name: one for name, one in accepted.items() if name not in group.provided}
    for name in params:
        if name not in parameters:
            raise UserError(
                f"{where} gives the parameter '{echo(name)}', which it does not take: "
                f"write one of its parameters ({', '.join(parameters) or 'none'})"
            )
    for name, one in parameters.items():
        if (
            one.default is one.empty
            and one.kind not in (one.VAR_KEYWORD, one.VAR_POSITIONAL)
            and name not in params
        ):
            raise UserError(f"{where} needs the parameter {name}: write {key.replace('/', '.')}.{name}=VALUE")


def _as_annotated(value: Any, parameter: inspect.Parameter) -> Any:
    """Convert a list to a tuple if the constructor declares one: files and words have no tuples."""
    is_tuple = typing.get_origin(parameter.annotation) is tuple or parameter.annotation is tuple
    return tuple(value) if is_tuple and isinstance(value, list) else value


def _remedy(error: str) -> str:
    """Return what to write, unless the policy's own sentence says it."""
    return "" if "write " in error else "; write other parameters"


def _make_and_check(
    where: str, factory: Callable[..., Any], given: Mapping[str, Any], wanted: Sequence[str]
) -> tuple[Any, list[str]]:
    """Return the policy, and the wanted attributes that it lacks."""
    try:
        made = factory(**given)
        return made, [name for name in wanted if not hasattr(made, name)]
    except UserError:
        raise
    except (TypeError, ValueError) as error:
        raise UserError(f"{where} was refused by {factory.__name__}: {error}{_remedy(str(error))}") from error
    except (Exception, SystemExit) as error:
        raise UserError(
            f"{where} cannot be made: {factory.__name__} stopped with {place_of(error)}; mend it"
        ) from error
