"""``model=PATH``: a model's own config.json as an option, made on request."""

from typing import Final

from hydra.core.config_store import ConfigStore

from experiments.overrides import Override
from hwmodels.hf_config import looks_like_config

# Hydra's grammar takes no paths; no option file has this name, and a user who writes it is refused.
_OPTION: Final = "model_at_path"


def is_model_path(choice: Override) -> bool:
    """Whether a chosen option is the path of a config.json, or of a folder that holds one."""
    return choice.key == "model" and looks_like_config(choice.text)


def as_option(choice: Override) -> Override:
    """The choice itself, or for ``model=PATH`` an option registered with Hydra: that model on one GPU."""
    if not is_model_path(choice):
        return choice
    ConfigStore.instance().store(group="model", name=_OPTION, node={"name": choice.text, "tp": 1})
    return Override("model", _OPTION)
