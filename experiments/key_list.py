"""What ``--help`` lists: every option and every key, with defaults, as the option files have them."""

from experiments.clusters import made_names
from experiments.compose import defaults, option_groups
from experiments.config import Kind


def key_list(kind: Kind) -> str:
    """Text for a terminal, 80 columns where the names allow it."""
    groups = option_groups()
    if kind == "simulate":
        groups["cluster"] += made_names().split(", ")
    else:
        groups["cluster"] = ["local"]
    lines = ["Options:"]
    lines += [f"  {group + '=':<18} {' | '.join(options)}" for group, options in groups.items()]
    lines += ["", "Values, with their defaults:"]
    for key, (default, wanted) in defaults(kind).items():
        if not key.startswith("system.") and key != "out":
            lines.append(f"  {key + '=' + _shown(default):<48} {wanted}")
    lines += ["", "A policy's own parameters follow its group: system.admission.rate_per_s=2", ""]
    return "\n".join(lines)


def _shown(default: object) -> str:
    """As the user would write it."""
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)
