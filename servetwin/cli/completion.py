"""``servetwin completion``: the data that a shell needs to complete commands, groups, options and keys."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from servetwin.config.config import Kind
from serving.vocabulary.errors import UserError

_SHELLS: Final = ("bash", "zsh")
_SCRIPT: Final = """# {shell}: eval "$({name} completion {shell})"
{before}_{name}() {{
  local word="${{COMP_LINE:0:$COMP_POINT}}"; word="${{word##* }}"
  local known="{words}"
  set -- $COMP_LINE
  case "$2" in
{own}
  esac
  if [ "$COMP_CWORD" -eq 1 ]; then known="{commands}"; fi
  COMPREPLY=($(compgen -W "$known" -- "$word"))
  case "$word" in *=*) COMPREPLY=("${{COMPREPLY[@]#*=}}");; esac
}}
complete -o nospace -o default -F _{name} {name}
"""


def completion(words: Sequence[str]) -> int:
    """Print the script of ``servetwin``, or its known words as JSON. Exit status 0."""
    from servetwin.cli.main import COMMANDS

    return _completion(words, list(COMMANDS), "servetwin")


def realexec_completion(words: Sequence[str]) -> int:
    """Print the same of ``realexec``."""
    from servetwin.cli.realexec import COMMANDS

    return _completion(words, list(COMMANDS), "realexec")


def _completion(words: Sequence[str], commands: Sequence[str], name: str) -> int:
    words, as_json = asked_for_json(words)
    if len(words) != 1 or words[0] not in _SHELLS:
        raise UserError(f"completion takes a shell: write {name} completion {' | '.join(_SHELLS)}")
    before = "autoload -U +X bashcompinit && bashcompinit\n" if words[0] == "zsh" else ""
    real = name != "servetwin"
    known, own = known_words("realexec" if real else "simulate"), own_of_real() if real else own_words()
    cases = "\n".join(f'    {command}) known="$known {" ".join(keys)}";;' for command, keys in own.items())
    text = _SCRIPT.format(
        name=name,
        shell=words[0],
        before=before,
        words=" ".join(known),
        commands=" ".join(commands),
        own=cases,
    )
    answer = {"shell": words[0], "commands": list(commands), "words": known, "own": own}
    tell(answer, text.splitlines(), as_json)
    return 0


def own_words() -> dict[str, list[str]]:
    """Map command to the keys that it has besides those of a run."""
    from servetwin.advising.advise_words import OWN as ADVISE
    from servetwin.cli.export import FORMS
    from servetwin.cli.plot import OWN as PLOT
    from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names
    from servetwin.explore.controls import controls
    from servetwin.planning.objective import AT_LEAST, LATENCIES, STATISTICS
    from servetwin.planning.plan_words import OWN as PLAN
    from servetwin.planning.prices import PREFIX
    from servetwin.sweeps.sweep_words import OWN as SWEEP

    objectives = [f"slo.{name}_{at}_ms=" for name in LATENCIES for at in STATISTICS]
    objectives += [f"{name}=" for name in AT_LEAST]
    prices = [f"{PREFIX}{name}=" for name in (*CLUSTER_FAMILIES, *topology_names())]
    hardware = [f"gpu={name}" for name in (*CLUSTER_FAMILIES, *topology_names())]
    return {
        "plan": [*objectives, *hardware, *prices, "prices=", "split=", *(f"{key}=" for key in PLAN)],
        "plot": [f"{key}=" for key in PLOT],
        "explore": ["port=", "open=", *(f"{control.name}=" for control in controls())],
        "advise": ["log=", "out=", *(f"{key}=" for key in ADVISE)],
        "sweep": ["sweep=", *(f"{key}=" for key in SWEEP)],
        "compare": ["page=", "overwrite=true", "json=true", "format=", "run="],
        "story": ["request=", "instance=", "json=true"],
        "export": [*(f"to={name}" for name in FORMS), "out=", "overwrite=true"],
        "timeline": ["out="],
    }


def own_of_real() -> dict[str, list[str]]:
    """Return the same of realexec."""
    return {"run": ["repeat=", "json=true"]}


def known_words(kind: Kind = "simulate") -> list[str]:
    """Return options as ``group=option``, keys as ``key=``; ``cluster=a100_x`` needs a number after it.

    Keys of every drawn trace are included, whichever trace the run has.
    """
    from servetwin.config.compose.clusters import CLUSTER_FAMILIES, topology_names
    from servetwin.config.compose.compose import defaults
    from servetwin.config.options import option_groups
    from servetwin.config.trace_options import trace_names, trace_parameters

    chosen = [f"{group}={option}" for group, options in option_groups().items() for option in options]
    made = [
        f"cluster={name}" for name in (*(f"{family}_x" for family in CLUSTER_FAMILIES), *topology_names())
    ]
    drawn = [f"trace.{name}" for trace in trace_names() for name in trace_parameters(trace)]
    keys = dict.fromkeys((*defaults(kind), *drawn, "config"))
    return [*chosen, *made, *(f"{key}=" for key in keys)]
