"""The architectures of ``config.json`` files that are read, each with its reader."""

from collections.abc import Callable, Mapping
from typing import Final

from hwmodels.models import hf_dense, hf_hybrid, hf_latent, hf_mixtures
from hwmodels.models.hf_section import Fields, Notes, Section

Reader = Callable[[Section], tuple[Fields, Notes]]

ARCHITECTURES: Final[Mapping[str, Reader]] = {
    "LlamaForCausalLM": hf_dense.llama,
    "MistralForCausalLM": hf_dense.mistral,
    "Phi3ForCausalLM": hf_dense.mistral,
    "Qwen2ForCausalLM": hf_dense.qwen2,
    "Qwen3ForCausalLM": hf_dense.qwen3,
    "Gemma3ForCausalLM": hf_dense.gemma3,
    "OPTForCausalLM": hf_dense.opt,
    "MixtralForCausalLM": hf_mixtures.mixtral,
    "Qwen3MoeForCausalLM": hf_mixtures.qwen3_moe,
    "MiniMaxM2ForCausalLM": hf_mixtures.minimax_m2,
    "Glm4MoeForCausalLM": hf_mixtures.glm4_moe,
    "GptOssForCausalLM": hf_mixtures.gpt_oss,
    "Llama4ForCausalLM": hf_mixtures.llama4,
    "DeepseekV2ForCausalLM": hf_latent.deepseek,
    "DeepseekV3ForCausalLM": hf_latent.deepseek,
    "DeepseekV32ForCausalLM": hf_latent.deepseek_sparse,
    "GlmMoeDsaForCausalLM": hf_latent.glm_sparse,
    "Qwen3NextForCausalLM": hf_hybrid.qwen3_next,
    "Qwen3_5ForCausalLM": hf_hybrid.qwen3_5,
    "Qwen3_5MoeForCausalLM": hf_hybrid.qwen3_5_moe,
}
FAMILIES: Final = (
    "Llama 1 to 4, Mistral, Mixtral, Qwen2 to Qwen3.5 and their VL models, DeepSeek-V2 to V3.2, Kimi-K2, "
    "gpt-oss, GLM-4.5 to 5, MiniMax-M2, Gemma 3, Phi-3 and 4, OPT"
)
"""The same for people."""

# Multimodal models by their language model.
_LANGUAGE_MODELS: Final[Mapping[str, str]] = {
    "Mistral3ForConditionalGeneration": "MistralForCausalLM",
    "Qwen2_5_VLForConditionalGeneration": "Qwen2ForCausalLM",
    "Qwen3VLForConditionalGeneration": "Qwen3ForCausalLM",
    "Qwen3VLMoeForConditionalGeneration": "Qwen3MoeForCausalLM",
    "Qwen3_5ForConditionalGeneration": "Qwen3_5ForCausalLM",
    "Qwen3_5MoeForConditionalGeneration": "Qwen3_5MoeForCausalLM",
    "Gemma3ForConditionalGeneration": "Gemma3ForCausalLM",
    "Llama4ForConditionalGeneration": "Llama4ForCausalLM",
    "KimiK25ForConditionalGeneration": "DeepseekV3ForCausalLM",
}
_MODEL_TYPES: Final[Mapping[str, str]] = {
    "llama": "LlamaForCausalLM",
    "mistral": "MistralForCausalLM",
    "phi3": "Phi3ForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen2_5_vl": "Qwen2ForCausalLM",
    "qwen2_5_vl_text": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "qwen3_vl_text": "Qwen3ForCausalLM",
    "gemma3_text": "Gemma3ForCausalLM",
    "opt": "OPTForCausalLM",
    "mixtral": "MixtralForCausalLM",
    "qwen3_moe": "Qwen3MoeForCausalLM",
    "qwen3_vl_moe_text": "Qwen3MoeForCausalLM",
    "minimax_m2": "MiniMaxM2ForCausalLM",
    "glm4_moe": "Glm4MoeForCausalLM",
    "gpt_oss": "GptOssForCausalLM",
    "llama4_text": "Llama4ForCausalLM",
    "deepseek_v2": "DeepseekV2ForCausalLM",
    "deepseek_v3": "DeepseekV3ForCausalLM",
    "kimi_k2": "DeepseekV3ForCausalLM",
    "deepseek_v32": "DeepseekV32ForCausalLM",
    "glm_moe_dsa": "GlmMoeDsaForCausalLM",
    "qwen3_next": "Qwen3NextForCausalLM",
    "qwen3_5_text": "Qwen3_5ForCausalLM",
    "qwen3_5_moe_text": "Qwen3_5MoeForCausalLM",
}
DTYPES: Final[Mapping[str, str]] = {"GptOssForCausalLM": "bfloat16", "MiniMaxM2ForCausalLM": "bfloat16"}
"""The type of what is not quantised, where the publishers' files do not name it (weights, by their index)."""


def language_model(named: str) -> str:
    """The architecture that is read for one of these names; the name itself if none is."""
    return _LANGUAGE_MODELS.get(named, named)


def of_model_type(model_type: str) -> str:
    """The architecture of a ``model_type``; itself if it is unknown."""
    return _MODEL_TYPES.get(model_type, model_type)
