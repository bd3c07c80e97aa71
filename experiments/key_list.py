"""What ``--help`` lists: every option and every key, with defaults, as the option files have them."""

from experiments.clusters import made_names, topology_names
from experiments.compose import defaults, option_groups
from experiments.config import Kind
from experiments.trace_options import default_parameters, trace_names
from traces.find import FILE


def key_list(kind: Kind) -> str:
    """Text for a terminal, 80 columns where the names allow it."""
    groups = option_groups()
    if kind == "simulate":
        families = [name for name in made_names().split(", ") if not name.startswith("or ")]
        groups["cluster"] += [*families, *topology_names(), "NAME_HxG (hosts x GPUs)"]
    else:
        groups["cluster"] = ["local"]
    lines = ["Options:"]
    lines += [f"  {group + '=':<18} {' | '.join(options)}" for group, options in groups.items()]
    lines += ["", "Values, with their defaults:"]
    for key, (default, wanted) in defaults(kind).items():
        if not key.startswith("system.") and key != "out":
            lines.append(f"  {key + '=' + _shown(default):<48} {wanted}")
    lines += ["", "A policy's own parameters follow its group: system.admission.rate_per_s=2"]
    lines += ["", "A trace's own parameters follow trace: trace=gamma trace.gap_cv=8"]
    return "\n".join([*lines, *_trace_parameters(), ""])


def _trace_parameters() -> list[str]:
    """One line per set of parameters, with the traces that take it."""
    takers: dict[str, list[str]] = {}
    for name in trace_names():
        given = default_parameters(name).items()
        if given and name != FILE:
            takers.setdefault(" ".join(f"{key}={_shown(value)}" for key, value in given), []).append(name)
    return [f"  {', '.join(names)}: {parameters}" for parameters, names in takers.items()]


def _shown(default: object) -> str:
    """As the user would write it."""
    if default is None:
        return "null"
    return str(default).lower() if isinstance(default, bool) else str(default)
