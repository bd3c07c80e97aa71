"""Whether a system prefills and decodes on separate instances, known before a run."""

from collections.abc import Sequence

from servetwin.config.compose.option_tree import option_tree
from servetwin.config.options import option_groups
from servetwin.config.overrides import Override, Wanted, parse_value

SPLIT_KEY = "system.instances.split"
_SYSTEM = "system"


def splits_roles(words: Sequence[str]) -> bool:
    """Return the choice in the words of a run; False for an unknown system, which its run refuses."""
    given = {key: text for key, _, text in (word.partition("=") for word in words)}
    if SPLIT_KEY in given:
        return bool(parse_value(Override(SPLIT_KEY, given[SPLIT_KEY]), Wanted(bool)))
    name = given.get(_SYSTEM)
    if name is not None and name not in option_groups()[_SYSTEM]:
        return False
    choices = [] if name is None else [Override(_SYSTEM, name)]
    return bool(option_tree("simulate", choices)[_SYSTEM]["instances"]["split"])
