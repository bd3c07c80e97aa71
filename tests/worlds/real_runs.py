"""Real runs: the tiny model, a small trace, what a result folder holds, and which processes are left."""

from pathlib import Path

FILES = {"summary.json", "requests.parquet", "config.yaml", "report.html", "journal"}
UNSERVED = "unserved.parquet"  # where requests were rejected or failed
DRAWN = ("trace=azure_conv_like", "trace.tokens_scale=0.05")


def of_group(group: int) -> set[int]:
    """Processes of the group that are alive, by Linux's own account."""
    alive = set()
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, pgrp = stat.read_text().rpartition(")")[2].split()[:3]
        except OSError:
            continue
        if int(pgrp) == group and state not in "ZX":
            alive.add(int(stat.parent.name))
    return alive


# Grouped queries: 4 heads, 2 kv heads.
TINY = {
    "vocab_size": 512,
    "hidden_size": 64,
    "intermediate_size": 176,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 2048,
}
