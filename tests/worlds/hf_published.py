"""The published numbers of parameters of models whose config.json is in hf_configs and hf_families."""

from typing import Any, NamedTuple

from tests.worlds import hf_configs as old
from tests.worlds import hf_families as new


class Published(NamedTuple):
    """A model with its published number of parameters. ``name``: in the catalogue, "" if not there."""

    config: dict[str, Any]
    name: str
    parameters: float
    source: str


HUB = "safetensors metadata on Hugging Face of "
NO_VISION = "llama.cpp's count of the language model of "
PUBLISHED = (
    Published(new.LLAMA3_1_405B, "", 405_853_388_800, HUB + "meta-llama/Llama-3.1-405B"),
    Published(old.MIXTRAL_8X7B, "mixtral_8x7b", 46_702_792_704, HUB + "mistralai/Mixtral-8x7B-v0.1"),
    Published(new.MISTRAL_SMALL, "mistral_small_24b", 23_572_403_200, "language model of Mistral-Small-3.1"),
    Published(new.PHI4, "phi4", 14_659_507_200, HUB + "microsoft/phi-4"),
    Published(new.PHI3_MINI, "", 3_821_079_552, HUB + "microsoft/Phi-3-mini-4k-instruct"),
    Published(new.QWEN2_5_VL_72B, "", 72_706_203_648, HUB + "Qwen/Qwen2.5-72B-Instruct, its language model"),
    Published(new.QWEN3_VL_32B, "", 32_762_123_264, HUB + "Qwen/Qwen3-32B, its language model"),
    Published(new.QWEN3_VL_30B, "qwen3_30b_a3b", 30_532_122_624, HUB + "Qwen/Qwen3-30B-A3B"),
    Published(new.QWEN3_235B, "qwen3_235b_a22b", 235_093_634_560, HUB + "Qwen/Qwen3-235B-A22B"),
    Published(new.QWEN3_NEXT, "qwen3_next_80b_a3b", 81_324_862_720, HUB + "Qwen/Qwen3-Next-80B-A3B-Instruct"),
    Published(
        new.QWEN3_5_397B,
        "qwen3_5_397b_a17b",
        403_397_928_944 - 456_010_480,
        HUB + "Qwen/Qwen3.5-397B-A17B, less its vision tensors",
    ),
    Published(
        new.QWEN3_5_27B,
        "",
        27_781_427_952 - 456_010_480 - 4608 * 1024 - 1024,
        HUB + "Qwen/Qwen3.5-27B, less the same vision tensors with a product into 1,024 more values",
    ),
    Published(new.GEMMA3_27B, "gemma3_27b", 27.01e9, NO_VISION + "google/gemma-3-27b-it"),
    Published(new.GEMMA3_1B, "", 999_885_952, HUB + "google/gemma-3-1b-it"),
    Published(new.GPT_OSS_120B, "gpt_oss_120b", 116_829_156_672, "gpt-oss model card, table 1: 116.83 B"),
    Published(new.GPT_OSS_20B, "gpt_oss_20b", 20_914_757_184, "gpt-oss model card, table 1: 20.91 B"),
    Published(new.LLAMA4_SCOUT, "llama4_scout", 107.77e9, NO_VISION + "Llama-4-Scout-17B-16E"),
    Published(new.LLAMA4_MAVERICK, "", 400.71e9, NO_VISION + "Llama-4-Maverick-17B-128E"),
    Published(new.MINIMAX_M2_5, "minimax_m2_5", 228_689_764_864, HUB + "MiniMaxAI/MiniMax-M2"),
    Published(new.GLM_4_5_AIR, "glm_4_5_air", 110_468_824_832, HUB + "zai-org/GLM-4.5-Air"),
    Published(new.GLM_4_5, "", 358_337_791_296, HUB + "zai-org/GLM-4.5"),
    Published(new.GLM_5, "glm_5", 753_864_139_008, HUB + "zai-org/GLM-5"),
    Published(old.DEEPSEEK_V2_LITE, "deepseek_v2_lite", 15_706_484_224, HUB + "deepseek-ai/DeepSeek-V2-Lite"),
    Published(new.DEEPSEEK_V2, "", 235_741_434_880, HUB + "deepseek-ai/DeepSeek-V2"),
    Published(new.DEEPSEEK_V3_FP8, "deepseek_v3", 684_489_845_504, HUB + "deepseek-ai/DeepSeek-R1"),
    Published(new.DEEPSEEK_V3_2, "deepseek_v3_2", 685_355_329_792, HUB + "deepseek-ai/DeepSeek-V3.2"),
    Published(new.KIMI_K2, "kimi_k2", 1_026_408_235_864, HUB + "moonshotai/Kimi-K2-Instruct"),
    Published(new.KIMI_K2_5, "kimi_k2_5", 1_026_408_240_256, HUB + "moonshotai/Kimi-K2-Thinking"),
)
# Of this one the catalogue knows more than its config.json says: its predictor has no tables of its own.
GLM_4_6 = ("glm_4_6", 356_785_898_816)  # HUB + "zai-org/GLM-4.6"
