"""The keys that matter in the config.json of models that people serve, of every family that is read.

Numbers are those of the published files; keys that those leave out are left out here.
"""

from typing import Any

from tests.worlds.hf_configs import DEEPSEEK_V3, QWEN2_5_72B, QWEN3_30B_A3B, QWEN3_32B

Config = dict[str, Any]
BF16: Config = {"torch_dtype": "bfloat16", "tie_word_embeddings": False}


def config(architecture: str, **keys: Any) -> Config:
    """A config.json in bfloat16 with head and embedding of its own."""
    return {"architectures": [architecture], **BF16, **keys}


def sizes(layers: int, hidden: int, heads: int, kv_heads: int, vocab: int, context: int) -> Config:
    """The keys that all files have."""
    return {
        "num_hidden_layers": layers, "hidden_size": hidden, "num_attention_heads": heads,
        "num_key_value_heads": kv_heads, "vocab_size": vocab, "max_position_embeddings": context,
    }  # fmt: skip


def multimodal(architecture: str, model_type: str, text: Config, **outside: Any) -> Config:
    """A config.json whose language model is the text_config."""
    inner = {key: value for key, value in text.items() if key != "architectures"}
    return {"architectures": [architecture], "text_config": inner | {"model_type": model_type}, **outside}


FP8_BLOCKS: Config = {"quant_method": "fp8", "fmt": "e4m3", "weight_block_size": [128, 128]}
LLAMA3_1_405B = config(
    "LlamaForCausalLM", **sizes(126, 16384, 128, 8, 128256, 131072), intermediate_size=53248
)
PHI4 = config("Phi3ForCausalLM", **sizes(40, 5120, 40, 10, 100352, 16384), intermediate_size=17920)
PHI3_MINI = config(
    "Phi3ForCausalLM", **sizes(32, 3072, 32, 32, 32064, 4096), intermediate_size=8192, sliding_window=2047
)
MISTRAL_SMALL = multimodal(
    "Mistral3ForConditionalGeneration",
    "mistral",
    sizes(40, 5120, 32, 8, 131072, 131072) | {"head_dim": 128, "intermediate_size": 32768},
    torch_dtype="bfloat16",
)
QWEN2_5_VL_72B = QWEN2_5_72B | {
    "architectures": ["Qwen2_5_VLForConditionalGeneration"], "model_type": "qwen2_5_vl",
    "max_position_embeddings": 128000,
}  # fmt: skip
QWEN3_VL_32B = multimodal(
    "Qwen3VLForConditionalGeneration", "qwen3_vl_text", QWEN3_32B | {"max_position_embeddings": 262144}
)
QWEN3_VL_30B = multimodal("Qwen3VLMoeForConditionalGeneration", "qwen3_vl_moe_text", QWEN3_30B_A3B)
QWEN3_235B = QWEN3_30B_A3B | sizes(94, 4096, 64, 4, 151936, 262144) | {
    "intermediate_size": 12288, "moe_intermediate_size": 1536,
}  # fmt: skip
# Gemma's files leave out the table's rows, the longest context, and the heads of small models.
GEMMA3_27B = multimodal(
    "Gemma3ForConditionalGeneration",
    "gemma3_text",
    {
        "num_hidden_layers": 62, "hidden_size": 5376, "num_attention_heads": 32, "num_key_value_heads": 16,
        "head_dim": 128, "intermediate_size": 21504, "sliding_window": 1024,
    },
    torch_dtype="bfloat16",
)  # fmt: skip
GEMMA3_1B: Config = sizes(26, 1152, 4, 1, 262144, 32768) | {
    "architectures": ["Gemma3ForCausalLM"], "model_type": "gemma3_text", "torch_dtype": "bfloat16",
    "head_dim": 256, "intermediate_size": 6912, "sliding_window": 512, "sliding_window_pattern": 6,
}  # fmt: skip
GPT_OSS_120B: Config = sizes(36, 2880, 64, 8, 201088, 131072) | {
    "architectures": ["GptOssForCausalLM"], "model_type": "gpt_oss", "head_dim": 64,
    "intermediate_size": 2880, "num_local_experts": 128, "num_experts_per_tok": 4, "attention_bias": True,
    "sliding_window": 128, "layer_types": ["sliding_attention", "full_attention"] * 18,
    "tie_word_embeddings": False,
    "quantization_config": {
        "quant_method": "mxfp4",
        "modules_to_not_convert": [
            "model.layers.*.self_attn", "model.layers.*.mlp.router", "model.embed_tokens", "lm_head",
        ],
    },
}  # fmt: skip
GPT_OSS_20B = GPT_OSS_120B | {
    "num_hidden_layers": 24, "num_local_experts": 32,
    "layer_types": ["sliding_attention", "full_attention"] * 12,
}  # fmt: skip
LLAMA4_SCOUT = multimodal(
    "Llama4ForConditionalGeneration",
    "llama4_text",
    sizes(48, 5120, 40, 8, 202048, 10485760) | {
        "head_dim": 128, "intermediate_size": 8192, "intermediate_size_mlp": 16384, "num_local_experts": 16,
        "num_experts_per_tok": 1, "interleave_moe_layer_step": 1, "attention_chunk_size": 8192,
    },
    torch_dtype="bfloat16",
)  # fmt: skip
LLAMA4_MAVERICK = LLAMA4_SCOUT | {
    "text_config": LLAMA4_SCOUT["text_config"] | {
        "num_local_experts": 128, "interleave_moe_layer_step": 2, "max_position_embeddings": 1048576,
    },
}  # fmt: skip
MINIMAX_M2_5: Config = sizes(62, 3072, 48, 8, 200064, 196608) | {
    "architectures": ["MiniMaxM2ForCausalLM"], "model_type": "minimax_m2", "head_dim": 128,
    "intermediate_size": 1536, "num_local_experts": 256, "num_experts_per_tok": 8, "use_qk_norm": True,
    "qk_norm_type": "per_layer", "use_routing_bias": True, "use_mtp": True, "num_mtp_modules": 3,
    "shared_intermediate_size": 0, "tie_word_embeddings": False,
    "quantization_config": FP8_BLOCKS | {
        "modules_to_not_convert": ["gate", "e_score_correction_bias", "lm_head"]
    },
}  # fmt: skip
GLM_4_5_AIR = config(
    "Glm4MoeForCausalLM", **sizes(46, 4096, 96, 8, 151552, 131072), head_dim=128, intermediate_size=10944,
    moe_intermediate_size=1408, n_routed_experts=128, n_shared_experts=1, num_experts_per_tok=8,
    first_k_dense_replace=1, attention_bias=True, use_qk_norm=False, num_nextn_predict_layers=1,
)  # fmt: skip
GLM_4_5 = GLM_4_5_AIR | sizes(92, 5120, 96, 8, 151552, 131072) | {
    "intermediate_size": 12288, "moe_intermediate_size": 1536, "n_routed_experts": 160,
    "first_k_dense_replace": 3, "use_qk_norm": True,
}  # fmt: skip
DEEPSEEK_V3_FP8 = DEEPSEEK_V3 | {"num_nextn_predict_layers": 1, "quantization_config": FP8_BLOCKS}
DEEPSEEK_V2 = DEEPSEEK_V3 | sizes(60, 5120, 128, 128, 102400, 163840) | {
    "architectures": ["DeepseekV2ForCausalLM"], "model_type": "deepseek_v2", "intermediate_size": 12288,
    "moe_intermediate_size": 1536, "n_routed_experts": 160, "n_shared_experts": 2, "num_experts_per_tok": 6,
    "first_k_dense_replace": 1, "topk_method": "group_limited_greedy",
}  # fmt: skip
DEEPSEEK_V3_2 = DEEPSEEK_V3_FP8 | {
    "architectures": ["DeepseekV32ForCausalLM"], "model_type": "deepseek_v32", "index_head_dim": 128,
    "index_n_heads": 64, "index_topk": 2048,
}  # fmt: skip
KIMI_K2 = DEEPSEEK_V3 | sizes(61, 7168, 64, 64, 163840, 131072) | {
    "model_type": "kimi_k2", "n_routed_experts": 384, "first_k_dense_replace": 1,
    "num_nextn_predict_layers": 0, "quantization_config": FP8_BLOCKS,
}  # fmt: skip
_INT4 = {"num_bits": 4, "type": "int", "strategy": "group", "group_size": 32, "symmetric": True}
KIMI_K2_5: Config = {
    "architectures": ["KimiK25ForConditionalGeneration"], "model_type": "kimi_k25", "dtype": "bfloat16",
    "text_config": KIMI_K2 | {
        "max_position_embeddings": 262144,
        "quantization_config": {
            "quant_method": "compressed-tensors", "format": "pack-quantized",
            "config_groups": {"group_0": {"targets": ["Linear"], "weights": _INT4}},
            "ignore": [
                "lm_head", "re:.*self_attn.*", "re:.*shared_experts.*",
                r"re:.*mlp\.(gate|up|gate_up|down)_proj.*",
            ],
        },
    },
}  # fmt: skip
GLM_5 = DEEPSEEK_V3_2 | sizes(78, 6144, 64, 64, 154880, 202752) | {
    "architectures": ["GlmMoeDsaForCausalLM"], "model_type": "glm_moe_dsa", "head_dim": 64,
    "intermediate_size": 12288, "q_lora_rank": 2048, "qk_nope_head_dim": 192, "v_head_dim": 256,
    "index_n_heads": 32, "quantization_config": None,
}  # fmt: skip
QWEN3_NEXT = config(
    "Qwen3NextForCausalLM", **sizes(48, 2048, 16, 2, 151936, 262144), head_dim=256, intermediate_size=5120,
    full_attention_interval=4, linear_num_key_heads=16, linear_num_value_heads=32, linear_key_head_dim=128,
    linear_value_head_dim=128, linear_conv_kernel_dim=4, num_experts=512, num_experts_per_tok=10,
    moe_intermediate_size=512, shared_expert_intermediate_size=512, decoder_sparse_step=1, mlp_only_layers=[],
)  # fmt: skip
_LINEAR_3_5: Config = {
    "head_dim": 256, "attn_output_gate": True, "linear_conv_kernel_dim": 4, "linear_key_head_dim": 128,
    "linear_num_key_heads": 16, "linear_value_head_dim": 128, "mamba_ssm_dtype": "float32",
    "mtp_num_hidden_layers": 1, "mlp_only_layers": [], "dtype": "bfloat16",
}  # fmt: skip
_THREE_OF_FOUR = ["linear_attention", "linear_attention", "linear_attention", "full_attention"]
QWEN3_5_397B = multimodal(
    "Qwen3_5MoeForConditionalGeneration",
    "qwen3_5_moe_text",
    sizes(60, 4096, 32, 2, 248320, 262144) | _LINEAR_3_5 | {
        "linear_num_value_heads": 64, "num_experts": 512, "num_experts_per_tok": 10,
        "moe_intermediate_size": 1024, "shared_expert_intermediate_size": 1024,
        "layer_types": _THREE_OF_FOUR * 15,
    },
    tie_word_embeddings=False,
)  # fmt: skip
QWEN3_5_27B = multimodal(
    "Qwen3_5ForConditionalGeneration",
    "qwen3_5_text",
    sizes(64, 5120, 24, 4, 248320, 262144) | _LINEAR_3_5 | {
        "linear_num_value_heads": 48, "intermediate_size": 17408, "layer_types": _THREE_OF_FOUR * 16,
    },
    tie_word_embeddings=False,
)  # fmt: skip
