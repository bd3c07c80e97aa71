"""Which policies a saved configuration may make: a result folder is data and names no code of its own.

Without the user's words these are the options of this package, each with the class that its own file
names, and installed policies. Any other class must be named on the command line.
"""

from collections.abc import Iterable, Mapping, Sequence

from servetwin.config.config import PolicyConfig, SystemConfig
from servetwin.config.options import option_file, option_groups
from servetwin.config.overrides import echo
from servetwin.config.policy.groups import POLICY_GROUPS
from servetwin.config.policy.installed import installed_policy
from servetwin.config.policy.policy_class import is_class_name
from serving.vocabulary.errors import UserError


def check_policies(
    system: SystemConfig, named: Mapping[str, str], source: str, groups: Iterable[str] = POLICY_GROUPS
) -> None:
    """Refuse policies that only the folder names, and those that differ from the user's ``named``.

    ``named``: ``system/dispatch`` -> the command line's policy. ``source``: the file, for errors.
    """
    saved: dict[str, PolicyConfig] = {f"system/{group}": getattr(system, group) for group in groups}
    options = option_groups()
    outside = [
        f"{key}={policy.name}"
        for key, policy in saved.items()
        if _is_outside(key, policy, source, options[key])
    ]
    for key, text in named.items():
        if key in saved and text != (had := saved[key].name):
            had = had if is_class_name(had) else echo(had)
            raise UserError(
                f"{key}={echo(text)} is not what the run had: write {key}={had}, as {source} has it"
            )
    if missing := [word for word in outside if word.partition("=")[0] not in named]:
        raise UserError(
            f"{source} names classes from outside this package, and only you may have them imported: write "
            f"{' '.join(missing)} behind it if that is code you trust"
        )


def _is_outside(key: str, policy: PolicyConfig, source: str, options: Sequence[str]) -> bool:
    """Return whether the user must name the policy; UserError if no option could have chosen it."""
    if policy.name in options:
        known = option_file(key, policy.name)["policy"]
    elif is_class_name(policy.name):
        known = policy.name
    else:
        known = installed_policy(f"{key}={echo(policy.name)} in {source}", policy.name)
    if known is None:
        raise UserError(
            f"{key}={echo(policy.name)} in {source} is no option of this version and no installed policy: "
            "install the package that has it, or write the name of an option"
        )
    if policy.policy != known:
        raise UserError(
            f"{key}={echo(policy.name)} in {source} names the class '{echo(policy.policy)}', and that option "
            f"is {known or 'no class'} here: use the file as the run wrote it, with the version that ran it"
        )
    return policy.name == policy.policy
