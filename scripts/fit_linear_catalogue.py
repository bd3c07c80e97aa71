"""Prints hwmodels/catalogue/linear_composed.yaml: coefficients composed of AIConfigurator's tables.

python -m scripts.fit_linear_catalogue FOLDER      FOLDER holds aiconfigurator/ and llmservingsim/
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final, NamedTuple

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Profile
from hwmodels.step_times.held_out import held_out_errors
from hwmodels.step_times.linear_fit import linear_model, measured_limits
from hwmodels.step_times.step_time import StepLimits
from scripts.catalogue_command import print_catalogue
from scripts.expert_entry import expert_lines
from scripts.linear_entry import coefficient_lines, error_lines, limit_lines

# An entry that misses more than a twentieth of its held-out steps by more than this is left out.
MOST_P95_PERCENT: Final = 25.0
# What is answered: vLLM's largest default of max_num_seqs, and the longest step of the tables of products.
MOST_SEQUENCES: Final = 1024


class Source(NamedTuple):
    """One GPU's folder; ``prefill``: that of the GPU whose prefill attention is taken."""

    gpu: str
    folder: str
    prefill: str = ""


SOURCES: Final = (
    Source("h100", "h100_sxm"),
    Source("h200", "h200_sxm", "h100_sxm"),
    Source("rtx_pro_6000", "rtx_pro_6000_server"),
)
MODELS: Final = (
    "llama3_1_8b", "qwen3_32b", "llama3_1_70b", "llama2_70b", "qwen3_30b_a3b", "mixtral_8x7b",
)  # fmt: skip
SIZES: Final = (1, 2, 4, 8)
# These have tables of their own layers (linear.yaml), or do not fit.
OTHERS: Final = {("rtx_pro_6000", "llama3_1_8b", 1), ("rtx_pro_6000", "qwen3_32b", 2)}
HEAD: Final = """\
# Linear coefficients composed of operations measured in vLLM 0.19.0, in the form that linear.yaml explains:
# tables of ai-dynamo/aiconfigurator (Apache-2.0), commit 095f58a. Not a measured iteration: norms, rotary
# embedding and activations are computed from their bytes, products of shapes that were not measured are
# scaled from the nearest, the sampler is left out.
# This file is what `python -m scripts.fit_linear_catalogue FOLDER` prints.
# Left out, because a twentieth of the held-out steps is missed by more than 25 %: {left_out}.
"""
BEYOND: Final = """\
  beyond: >-
    prompts above 16,384 tokens keep the square term, and a chunk behind a cache costs the difference of two
    prompts, as neither was measured; total contexts above the grid keep their slope
"""


def main(arguments: Sequence[str]) -> int:
    """Exit status 2 when the call or a table is wrong."""
    return print_catalogue("fit_linear_catalogue", printed, arguments)


def printed(root: Path) -> str:
    """The whole catalogue file."""
    entries, left_out = [], []
    for source in SOURCES:
        for llm in MODELS:
            for tp in SIZES:
                if (source.gpu, llm, tp) in OTHERS or not _exists(source.gpu, llm, tp):
                    continue
                profile = profile_of(root, source, llm, tp)
                errors = held_out_errors(profile, linear_model)
                if max(error.p95_percent for error in errors) > MOST_P95_PERCENT:
                    left_out.append(f"{llm} on {source.gpu} tp={tp}")
                else:
                    entries.append(entry_text(profile, source))
    return "\n".join([HEAD.format(left_out="; ".join(left_out) or "none"), *entries])


def profile_of(root: Path, source: Source, llm: str, tp: int) -> Profile:
    """The profile that an entry is fitted to."""
    tables = root / "aiconfigurator"
    beside = tables / source.prefill if source.prefill else None
    request = ImportRequest(
        path=tables / source.folder,
        gpu=source.gpu,
        llm=llm,
        tp=tp,
        engine_version="0.19.0",
        aiconfigurator=beside,
    )
    return import_profile("aiconfigurator", request)


def _exists(gpu: str, llm: str, tp: int) -> bool:
    """It fits, and its heads divide."""
    if not load_llm(llm).splits_into(tp):
        return False
    return load_llm(llm).weight_bytes < 0.9 * load_gpu(gpu).memory_bytes * tp


def entry_text(profile: Profile, source: Source) -> str:
    """One entry as it stands in the file."""
    stamp = profile.stamp
    shape, memory = load_llm(stamp.llm), load_gpu(stamp.gpu).memory_bytes * stamp.tp
    measured = measured_limits(profile.tables)
    in_memory = (memory - shape.weight_bytes) // shape.kv_bytes_per_token
    limits = StepLimits(
        min(MOST_SEQUENCES, measured.max_decode_sequences),
        max(measured.max_context_tokens, in_memory),
        measured.max_prefill_tokens,
        max(measured.prompt_tokens, shape.max_context_tokens),
    )
    beside = f", aiconfigurator: aiconfigurator/{source.prefill}" if source.prefill else ""
    lines = [
        f"- gpu: {stamp.gpu}",
        f"  llm: {stamp.llm}",
        f"  tp: {stamp.tp}",
        f"  fitted_profile: {{format: aiconfigurator, path: aiconfigurator/{source.folder}{beside}}}",
        *(["  labels:", *(f'  - "{label}"' for label in stamp.labels)] if stamp.labels else []),
        *coefficient_lines(profile),
        *expert_lines(profile),
        *limit_lines("measured", measured),
        *limit_lines("limits", limits),
        *error_lines(profile),
    ]
    return "\n".join([*lines, BEYOND + _source(profile, source)])


def _source(profile: Profile, source: Source) -> str:
    stamp = profile.stamp
    attention = "decode attention" if source.prefill else "attention"
    attention += ", experts" if profile.tables.experts else ""
    reduce = f" and all-reduce between {stamp.tp} ranks" if stamp.tp > 1 else ""
    prefill = ", prefill attention of the H100 (the H200's own table is impossible)" if source.prefill else ""
    return (
        "  source: >-\n"
        f"    composed of measured operations on {stamp.gpu} in vLLM {stamp.engine_version}, not a measured\n"
        f"    iteration: matrix products, {attention}{reduce}{prefill} of {stamp.source} ({stamp.licence})\n"
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
