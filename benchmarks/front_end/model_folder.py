"""A tiny Llama with a real vocabulary, written by the interpreter that has vLLM: it runs there, without us.

    PYTHON benchmarks/front_end/model_folder.py FOLDER

The vocabulary is Tekken's, 131,072 entries, which the package mistral-common contains. The model has random
parameters (--load-format dummy): its steps take little time, and the front end does what it does elsewhere.
"""

import json
import sys
from importlib.resources import files
from pathlib import Path


def main(folder: Path) -> None:
    """Write config.json, tokenizer.json and tokenizer_config.json."""
    from transformers.convert_slow_tokenizer import TikTokenConverter

    source = files("mistral_common").joinpath("data", "tekken_240911.json")
    tekken = json.loads(source.read_text(encoding="utf-8"))
    size, special = tekken["config"]["default_vocab_size"], tekken["config"]["default_num_special_tokens"]
    ranks = folder / "tekken.tiktoken"
    lines = [f"{one['token_bytes']} {one['rank']}" for one in tekken["vocab"][: size - special]]
    ranks.write_text("\n".join(lines) + "\n", encoding="utf-8")
    specials = ["<s>", "</s>", *(f"<special_{one}>" for one in range(special - 2))]
    converter = TikTokenConverter(str(ranks), tekken["config"]["pattern"], extra_special_tokens=specials)
    converter.converted().save(str(folder / "tokenizer.json"))
    ranks.unlink()
    turn = "{{ bos_token }}{% for one in messages %}[{{ one['role'] }}]{{ one['content'] }}{% endfor %}"
    tokenizer = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": "<s>",
        "eos_token": "</s>",
        "chat_template": turn,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(tokenizer), encoding="utf-8")
    model = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "torch_dtype": "float32",
        "hidden_act": "silu",
        "rms_norm_eps": 1e-5,
        "bos_token_id": size - special,
        "eos_token_id": size - special + 1,
        "hidden_size": 64,
        "intermediate_size": 64,
        "num_hidden_layers": 1,
        "num_attention_heads": 2,
        "num_key_value_heads": 1,
        "head_dim": 32,
        "vocab_size": size,
        "max_position_embeddings": 32768,
        "tie_word_embeddings": False,
    }
    (folder / "config.json").write_text(json.dumps(model), encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
