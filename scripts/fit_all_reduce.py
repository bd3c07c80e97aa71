"""Prints hwmodels/catalogue/all_reduce.yaml out of AIConfigurator's tables, with the errors of the fits.

python -m scripts.fit_all_reduce FOLDER      FOLDER holds a100_sxm, h100_sxm, ...
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

import numpy as np

from hwmodels.importers.aiconfigurator_tables import Folder, Messages, nccl_messages, read_messages
from hwmodels.importers.request import ImportRequest
from hwmodels.step_times.all_reduce_fit import StretchFit, fit_stretches
from scripts.catalogue_command import print_catalogue

# 16,384 tokens of a model as wide as 8,192: no step sends more.
MOST_BYTES: Final = 256 << 20
# Folder, GPU, ranks measured in vLLM, ranks of NCCL alone.
FOLDERS: Final = (
    ("a100_sxm", "a100_80g", (2, 4, 8), ()),
    ("h100_sxm", "h100", (2, 4, 8), ()),
    ("h200_sxm", "h200", (2, 4, 8), ()),
    ("rtx_pro_6000_server", "rtx_pro_6000", (2,), (4, 8)),
    ("l40s", "l40s", (), (2, 4, 8)),
)
HEAD: Final = """\
# All-reduces of 16-bit messages between GPUs of one kind: coefficients per number of ranks.
# A message of at least from_bytes takes start_s + bytes * s_per_byte, up to the next stretch.
# engine and version: what they were measured in; nccl: NCCL alone, outside of an engine.
# errors_percent of the sizes measured, up to 256 MiB; held_out of fits that did not see every second size.
# left_out_bytes: sizes whose times were bad (longer than those of larger messages).
# Source: tables of ai-dynamo/aiconfigurator (Apache-2.0), commit 095f58a. This file is what
# `python -m scripts.fit_all_reduce FOLDER` prints of its systems' data.
"""


def main(arguments: Sequence[str]) -> int:
    """Exit status 2 when the call or a table is wrong."""
    return print_catalogue("fit_all_reduce", printed, arguments)


def printed(root: Path) -> str:
    """The whole catalogue file."""
    parts = [HEAD]
    for name, gpu, in_vllm, alone in FOLDERS:
        folder = Folder(root / name, ImportRequest(path=root / name, gpu=gpu, llm="llama3_8b", tp=1))
        for ranks, read in ((in_vllm, read_messages), (alone, nccl_messages)):
            if ranks:
                parts.append(_entry(gpu, {tp: read(folder, tp) for tp in ranks}))
    return "\n".join(parts)


def _entry(gpu: str, found: dict[int, Messages]) -> str:
    first = next(iter(found.values()))
    lines = [f"- gpu: {gpu}", f"  engine: {first.engine}", f"  version: {first.version}", "  ranks:"]
    for tp, messages in found.items():
        seen = messages.sizes <= MOST_BYTES
        lines += _ranks(tp, fit_stretches(messages.sizes[seen], messages.seconds[seen]), messages.left_out)
    return "\n".join([*lines, ""])


def _ranks(tp: int, fit: StretchFit, left_out: tuple[int, ...]) -> list[str]:
    own, unseen = (np.abs(errors) * 100.0 for errors in (fit.errors, fit.held_out))
    return [
        f"    {tp}:",
        "      stretches:  # from_bytes, start_s, s_per_byte",
        *(f"        - [{one.from_size}, {one.start_s:.5e}, {one.s_per_unit:.5e}]" for one in fit.stretches),
        f"      errors_percent: {{mean: {own.mean():.1f}, max: {own.max():.1f}, "
        f"held_out_mean: {unseen.mean():.1f}, held_out_max: {unseen.max():.1f}}}",
        *([f"      left_out_bytes: [{', '.join(map(str, left_out))}]"] if left_out else []),
    ]


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
