"""``servetwin completion``: what a shell needs to complete commands, groups, options and keys."""

from collections.abc import Sequence
from typing import Final

from experiments.commands.process import telling
from serving.vocabulary.errors import UserError

_SHELLS: Final = ("bash", "zsh")
_SCRIPT: Final = """# {shell}: eval "$(servetwin completion {shell})"
{before}_servetwin() {{
  local word="${{COMP_LINE:0:$COMP_POINT}}"; word="${{word##* }}"
  local known="{words}"
  if [ "$COMP_CWORD" -eq 1 ]; then known="{commands}"; fi
  COMPREPLY=($(compgen -W "$known" -- "$word"))
  case "$word" in *=*) COMPREPLY=("${{COMPREPLY[@]#*=}}");; esac
}}
complete -o nospace -o default -F _servetwin servetwin
"""


def completion(words: Sequence[str], commands: Sequence[str]) -> int:
    """Print the script. Exit status 0."""
    if len(words) != 1 or words[0] not in _SHELLS:
        raise UserError(f"completion takes a shell: write servetwin completion {' | '.join(_SHELLS)}")
    before = "autoload -U +X bashcompinit && bashcompinit\n" if words[0] == "zsh" else ""
    text = _SCRIPT.format(
        shell=words[0], before=before, words=" ".join(known_words()), commands=" ".join(commands)
    )
    with telling():
        print(text, end="")
    return 0


def known_words() -> list[str]:
    """Every option as ``group=option``, every key of a run as ``key=``."""
    from experiments.compose.compose import defaults
    from experiments.config.options import option_groups

    chosen = [f"{group}={option}" for group, options in option_groups().items() for option in options]
    return [*chosen, *(f"{key}=" for key in defaults("simulate"))]
