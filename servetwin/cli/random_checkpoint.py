"""``realexec random-checkpoint``: writes a folder for model.checkpoint in the size of a real model."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from servetwin.config.overrides import Wanted, parse_value, parse_words
from serving.vocabulary.errors import UserError

USAGE: Final = """realexec random-checkpoint: random parameters in the shape of a model, as a folder

  realexec random-checkpoint model=llama3_1_8b model.dtype=bfloat16 device=cuda out=DIR

For loads from a disk and from host memory where the real parameters are not at hand: 8 billion parameters
of 16 bits are 16 GB, drawn on the GPU and written to DIR. Then write model.checkpoint=DIR.
Keys: model=, model.dtype=, device=, seed=0; spread=0.02 is the standard deviation that parameters are drawn
with.
"""
# The model families' own initializer_range.
_SPREAD: Final = 0.02
_OWN: Final = {"spread": Wanted(float)}
_READ: Final = ("out", "model", "model.dtype", "model.checkpoint", "device", "seed")


def random_checkpoint(words: Sequence[str]) -> int:
    """Write the checkpoint; exit status 0."""
    if any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0
    from servetwin.config.compose.compose import load_config
    from servetwin.config.compose.unread_keys import refuse_others
    from servetwin.run.real_run import require_torch, worker_model

    words, as_json = asked_for_json(words)
    own = [word for word in words if word.partition("=")[0] in _OWN]
    words = [word for word in words if word not in own]
    config = load_config(words, "realexec", alone=True)
    refuse_others(words, _READ, "realexec random-checkpoint")
    spread = next((parse_value(word, _OWN[word.key]) for word in parse_words(own)), _SPREAD)
    out = Path(config.out).expanduser().absolute()
    if out.exists():
        raise UserError(f"out={config.out} exists: write the name of a folder that does not")
    if config.model.checkpoint is not None:
        raise UserError(f"model.checkpoint={config.model.checkpoint} is there already: leave it out")
    require_torch()
    from realexec.model.checkpoint import write_random_checkpoint

    size_bytes = write_random_checkpoint(worker_model(config.model, config.device), config.seed, spread, out)
    found = {"model": config.model.name, "folder": str(out), "bytes": size_bytes}
    lines = [f"{config.model.name}: {size_bytes / 1e9:.2f} GB in {out}; write model.checkpoint={out}"]
    tell(found, lines, as_json, f"; the parameters are in {out}")
    return 0
