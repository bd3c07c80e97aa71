"""``model=PATH``: a model's own config.json as an option, made on request."""

from typing import Any, Final

from experiments.config.overrides import Override
from hwmodels.hf_config import looks_like_config

# Hydra's grammar takes no paths; no option file has this name, and a user who writes it is refused.
_OPTION: Final = "model_at_path"


def is_model_path(choice: Override) -> bool:
    """Whether a chosen option is the path of a config.json, or of a folder that holds one."""
    return choice.key == "model" and looks_like_config(choice.text)


def model_option(choice: Override) -> tuple[Override, dict[str, Any]]:
    """``model=PATH`` as an option, and what its file would say: that model on one GPU."""
    return Override("model", _OPTION), {"name": choice.text, "tp": 1}
