"""``model=PATH``: makes an option from a model's own config.json."""

from typing import Any, Final

from hwmodels.models.config_path import looks_like_config
from servetwin.config.overrides import Override

# Hydra's grammar does not accept paths. No option file has this name, and users may not write it.
_OPTION: Final = "model_at_path"


def is_model_path(choice: Override) -> bool:
    """Return whether a chosen option is the path of a config.json, or of a folder that holds one."""
    return choice.key == "model" and looks_like_config(choice.text)


def model_option(choice: Override) -> tuple[Override, dict[str, Any]]:
    """Return ``model=PATH`` as an option, and its file's content: that model on one GPU."""
    return Override("model", _OPTION), {"name": choice.text, "tp": 1}
