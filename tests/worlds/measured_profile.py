"""A made-up measured profile, and sections of what ``servetwin support`` prints."""

from pathlib import Path

import numpy as np

from hwmodels.profiles.profile import Curve, Lattice, OpTables, Profile, Stamp
from hwmodels.profiles.profile_file import save_profile


def section(text: str, name: str) -> str:
    """What stands behind one label, in one line."""
    start = text.index(f"\n{name:<14}") + 1 + 14
    return " ".join(text[start:].partition("\n\n")[0].split())


def measured(tmp_path: Path) -> Path:
    """A profile of mistral_24b on an h200, of round numbers."""
    stamp = Stamp(
        gpu="h200",
        llm="mistral_24b",
        tp=1,
        engine="vllm",
        engine_version="0.19.0",
        precision="bf16",
        source="made up",
        licence="MIT",
        files=(("a.csv", "0" * 64),),
    )
    decode = np.array([[1e-4, 2e-3], [1e-3, 6e-2]])
    tables = OpTables(
        dense=Curve((1, 2048), (1e-2, 1e-1)),
        head=Curve((1, 256), (1e-3, 2e-3)),
        all_reduce=None,
        decode=(Lattice(((1, 64), (16, 16384)), decode),),
        prefill=(Lattice(((16, 2048), (0,)), np.array([[1e-4], [4e-3]])),),
        mixed=(),
        skew=None,
    )
    path = tmp_path / "profile.json"
    save_profile(Profile(stamp, tables), path)
    return path
