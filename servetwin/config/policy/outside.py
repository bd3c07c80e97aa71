"""``system/dispatch=module:Class``: makes options of the user's classes and of installed policies."""

from collections.abc import Mapping
from typing import Any

from servetwin.config.options import option_groups
from servetwin.config.overrides import Override, Wanted, echo
from servetwin.config.policy.groups import POLICY_GROUPS, group_of
from servetwin.config.policy.installed import installed_names, installed_policy
from servetwin.config.policy.parameters import Parameter, parameters_of
from servetwin.config.policy.policy_class import find_modules_here, is_class_name, policy_class
from serving.vocabulary.errors import UserError

# Hydra's grammar does not accept colons. No option file has this name, and users may not write it.
_OPTION = "policy_from_outside"


def names_outside(choice: Override) -> bool:
    """Return whether the word names a policy by its class, or an installed one that no option shadows.

    Raises UserError for text that resembles a class but is not written as one.
    """
    if group_of(choice.key) is None or choice.text in option_groups()[choice.key]:
        return False
    if is_class_name(choice.text) or installed_policy(str(choice), choice.text) is not None:
        return True
    if any(mark in choice.text for mark in ":./"):
        raise UserError(
            f"{choice} is no class: write {choice.key}=module:Class, such as "
            f"{choice.key}=my_policies:MyPolicy for the class MyPolicy of my_policies.py here"
        )
    return False


def outside_option(choice: Override) -> tuple[Override, dict[str, Any]]:
    """Return the choice as an option, and its file's content: the parameters of the class's constructor."""
    if is_class_name(choice.text):
        find_modules_here()
    policy = _class_name(choice.key, choice.text)
    follows = POLICY_GROUPS[choice.key.removeprefix("system/")].follows
    params = {
        name: f"${{{follows[name]}}}" if name in follows else parameter.default
        for name, parameter in outside_parameters(choice.key, choice.text, policy).items()
    }
    node = {"name": choice.text, "policy": policy, "params": params}
    return Override(choice.key, _OPTION), node


def outside_parameters(key: str, name: str, policy: str) -> dict[str, Parameter]:
    """Return the parameters of a policy from outside that a user may set; imports its module."""
    group, where = POLICY_GROUPS[key.removeprefix("system/")], f"{key}={echo(name)}"
    return parameters_of(where, policy_class(where, policy, group), group)


def outside_wanted(key: str, option: Mapping[str, Any], name: str) -> Wanted:
    """Return the type of one parameter. ``option``: name and policy, as in the configuration."""
    return outside_parameters(key, option["name"], option["policy"])[name].wanted


def other_choices(key: str) -> str:
    """Return what a policy group accepts besides its options, for errors; empty for another group."""
    if group_of(key) is None:
        return ""
    return (
        "".join(f", {name}" for name in installed_names()) + f", or {key}=module:Class for a class of yours"
    )


def _class_name(key: str, text: str) -> str:
    class_name = text if is_class_name(text) else installed_policy(f"{key}={echo(text)}", text)
    assert class_name is not None, "asked before"
    return class_name
