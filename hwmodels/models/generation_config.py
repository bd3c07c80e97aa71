"""Whether requests sample with top-p unless they say otherwise: generation_config.json or family."""

import json
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.models.hf_section import echo
from hwmodels.reading import read_limited

FILE: Final = "generation_config.json"
# What the publishers' chat models have in that file, as entries of the catalogue say. Llama 2 (4,096
# positions) and Llama 3 (its vocabulary) have 0.9; LLaMA 1, Code Llama, Mistral, Mixtral and OPT have none.
_WITH_TOP_P: Final = (
    "Qwen2ForCausalLM",
    "Qwen3ForCausalLM",
    "Qwen3MoeForCausalLM",
    "DeepseekV2ForCausalLM",
    "DeepseekV3ForCausalLM",
    "DeepseekV32ForCausalLM",
    "Qwen3NextForCausalLM",
    "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForCausalLM",
    "MiniMaxM2ForCausalLM",
    "Llama4ForCausalLM",
    "Gemma3ForCausalLM",
)
_LLAMA: Final = "LlamaForCausalLM"
_LLAMA_2_POSITIONS: Final = 4096
_LLAMA_3_VOCABULARY: Final = 128256
_MOST_BYTES: Final = 1 << 20


def samples_with_top_p(folder: Path, architecture: str, vocab: int, positions: int) -> bool:
    """Whether the file beside a config.json says so; without one, whether the family's chat models do."""
    path = folder / FILE
    if path.is_file():
        return _top_p_in(path) < 1.0
    llama = vocab == _LLAMA_3_VOCABULARY or positions == _LLAMA_2_POSITIONS
    return architecture in _WITH_TOP_P or (architecture == _LLAMA and llama)


def _top_p_in(path: Path) -> float:
    """Top-k alone needs no sort, and without ``top_p`` or with 1 all entries are candidates."""
    try:
        data: Any = json.loads(read_limited(path, _MOST_BYTES).decode("utf-8"))
    except OSError as error:
        raise HardwareError(
            f"{path} cannot be read ({error.strerror}): remove it, or give it back"
        ) from error
    except (ValueError, RecursionError) as error:
        raise HardwareError(f"{path} is not JSON ({error}): remove it, or save it again") from error
    if not isinstance(data, dict):
        raise HardwareError(f"{path} is not a JSON object: remove it, or save it again")
    value = data.get("top_p")
    if value is None:
        return 1.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0.0 < value <= 1.0:
        raise HardwareError(f'"top_p" in {path} is {echo(value)}: write a number above 0 and up to 1')
    return float(value)
