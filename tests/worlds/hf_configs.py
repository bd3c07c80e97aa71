"""The config.json of models of every family, with the keys that matter, as the publishers have them."""

from typing import Any

LLAMA3_8B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "attention_bias": False, "hidden_size": 4096,
    "intermediate_size": 14336, "max_position_embeddings": 8192, "model_type": "llama",
    "num_attention_heads": 32, "num_hidden_layers": 32, "num_key_value_heads": 8,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 128256,
}  # fmt: skip
LLAMA_7B: dict[str, Any] = {
    "architectures": ["LlamaForCausalLM"], "hidden_size": 4096, "intermediate_size": 11008,
    "max_position_embeddings": 2048, "model_type": "llama", "num_attention_heads": 32,
    "num_hidden_layers": 32, "torch_dtype": "float16", "vocab_size": 32000,
}  # fmt: skip
MISTRAL_24B: dict[str, Any] = {
    "architectures": ["MistralForCausalLM"], "head_dim": 128, "hidden_size": 5120, "intermediate_size": 32768,
    "max_position_embeddings": 32768, "model_type": "mistral", "num_attention_heads": 32,
    "num_hidden_layers": 40, "num_key_value_heads": 8, "sliding_window": None, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "vocab_size": 131072,
}  # fmt: skip
QWEN2_5_72B: dict[str, Any] = {
    "architectures": ["Qwen2ForCausalLM"], "hidden_size": 8192, "intermediate_size": 29568,
    "max_position_embeddings": 32768, "model_type": "qwen2", "num_attention_heads": 64,
    "num_hidden_layers": 80, "num_key_value_heads": 8, "sliding_window": 131072, "torch_dtype": "bfloat16",
    "tie_word_embeddings": False, "use_sliding_window": False, "vocab_size": 152064,
}  # fmt: skip
QWEN3_32B: dict[str, Any] = {
    "architectures": ["Qwen3ForCausalLM"], "attention_bias": False, "head_dim": 128, "hidden_size": 5120,
    "intermediate_size": 25600, "max_position_embeddings": 40960, "model_type": "qwen3",
    "num_attention_heads": 64, "num_hidden_layers": 64, "num_key_value_heads": 8, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
OPT_13B: dict[str, Any] = {
    "architectures": ["OPTForCausalLM"], "do_layer_norm_before": True, "ffn_dim": 20480, "hidden_size": 5120,
    "max_position_embeddings": 2048, "model_type": "opt", "num_attention_heads": 40, "num_hidden_layers": 40,
    "torch_dtype": "float16", "vocab_size": 50272, "word_embed_proj_dim": 5120,
}  # fmt: skip

QWEN3_30B_A3B: dict[str, Any] = {
    "architectures": ["Qwen3MoeForCausalLM"], "attention_bias": False, "decoder_sparse_step": 1,
    "head_dim": 128, "hidden_size": 2048, "intermediate_size": 6144, "max_position_embeddings": 262144,
    "mlp_only_layers": [],
    "model_type": "qwen3_moe", "moe_intermediate_size": 768, "num_attention_heads": 32, "num_experts": 128,
    "num_experts_per_tok": 8, "num_hidden_layers": 48, "num_key_value_heads": 4, "sliding_window": None,
    "tie_word_embeddings": False, "torch_dtype": "bfloat16", "use_sliding_window": False,
    "vocab_size": 151936,
}  # fmt: skip
MIXTRAL_8X7B: dict[str, Any] = {
    "architectures": ["MixtralForCausalLM"], "hidden_size": 4096, "intermediate_size": 14336,
    "max_position_embeddings": 32768, "model_type": "mixtral", "num_attention_heads": 32,
    "num_experts_per_tok": 2, "num_hidden_layers": 32, "num_key_value_heads": 8, "num_local_experts": 8,
    "sliding_window": None, "tie_word_embeddings": False, "torch_dtype": "bfloat16", "vocab_size": 32000,
}  # fmt: skip
DEEPSEEK_V2_LITE: dict[str, Any] = {
    "architectures": ["DeepseekV2ForCausalLM"], "first_k_dense_replace": 1, "hidden_size": 2048,
    "intermediate_size": 10944, "kv_lora_rank": 512, "max_position_embeddings": 163840,
    "model_type": "deepseek_v2", "moe_intermediate_size": 1408, "moe_layer_freq": 1, "n_routed_experts": 64,
    "n_shared_experts": 2, "num_attention_heads": 16, "num_experts_per_tok": 6, "num_hidden_layers": 27,
    "num_key_value_heads": 16, "q_lora_rank": None, "qk_nope_head_dim": 128, "qk_rope_head_dim": 64,
    "tie_word_embeddings": False, "topk_method": "greedy", "torch_dtype": "bfloat16", "v_head_dim": 128,
    "vocab_size": 102400,
}  # fmt: skip
# As published it has fp8 weights ("quantization_config"): this is the model before that.
DEEPSEEK_V3: dict[str, Any] = DEEPSEEK_V2_LITE | {
    "architectures": ["DeepseekV3ForCausalLM"], "first_k_dense_replace": 3, "hidden_size": 7168,
    "intermediate_size": 18432, "model_type": "deepseek_v3", "moe_intermediate_size": 2048,
    "n_routed_experts": 256, "n_shared_experts": 1, "num_attention_heads": 128, "num_experts_per_tok": 8,
    "num_hidden_layers": 61, "num_key_value_heads": 128, "q_lora_rank": 1536, "topk_method": "noaux_tc",
    "vocab_size": 129280,
}  # fmt: skip
