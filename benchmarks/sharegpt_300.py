"""The 300-request ShareGPT workloads on op tables, with the settings of runs that were measured elsewhere.

python -m benchmarks.sharegpt_300 [FOLDER]     (out/sharegpt_300 if left out; needs SERVETWIN_PROFILES)
python -m benchmarks.sharegpt_300 --corrections  what each correction is worth, instead of the runs

Imports four profiles into FOLDER/profiles and writes a result folder per run. The measured runs (vLLM
0.19.0, bf16, chunked prefill) are not part of this repository, and nothing here was fitted to them. What they
did not record is assumed: asynchronous scheduling and prefix caching as vLLM 0.19.0 has them by default,
480,000 KV tokens of each engine on the RTX PRO 6000 (never full). The all-reduce of two of them is
AIConfigurator's, measured in vLLM 0.19.0, and so are whole experts on one of two GPUs and NCCL between them.
"""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from benchmarks.command import command
from benchmarks.corrections import lines
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile import Profile
from hwmodels.profiles.profile_file import save_profile
from servetwin.cli import main as cli

FOLDER = Path("out") / "sharegpt_300"
CORRECTIONS_WORD = "--corrections"
ENGINE = (
    "engine=vllm_v1",
    "engine.version=0.19.0",
    "engine.max_num_batched_tokens=2048",
    "engine.block_tokens=16",
    "engine.front_end=none",  # the measured times are those of vLLM's own request states
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ShareGptCase:
    """One workload on one GPU type; ``tables`` below $SERVETWIN_PROFILES/llmservingsim.

    ``shared``: the folder below $SERVETWIN_PROFILES/aiconfigurator that has what GPUs share: all-reduce,
    experts, exchange between engines. ``data_parallel``: engines that step together, with whole experts each.
    """

    name: str
    tables: str
    gpu: str
    model: str
    tp: int
    max_num_seqs: int
    kv_tokens: int
    engine_version: str | None = None
    shared: str | None = None
    data_parallel: int = 1

    def words(self, profile: Path, root: Path, out: Path) -> list[str]:
        """What ``servetwin simulate`` is given; ``root`` holds the workloads."""
        workload = (
            root / "llmservingsim" / f"workloads_sharegpt-{WORKLOADS[self.model]}-300-sps10_prefix.jsonl"
        )
        return [
            *ENGINE,
            f"model={self.model}",
            f"model.tp={self.tp}",
            f"cluster={self.gpu}_x{self.tp * self.data_parallel}",
            *self._parallel(),
            "trace=file",
            f"trace.path={workload}",
            f"engine.max_num_seqs={self.max_num_seqs}",
            f"engine.kv_tokens={self.kv_tokens}",
            f"engine.profile={profile}",
            f"out={out}",
            "overwrite=true",
        ]

    def _parallel(self) -> tuple[str, ...]:
        if self.data_parallel == 1:
            return ()
        return f"engine.data_parallel_size={self.data_parallel}", "engine.enable_expert_parallel=true"


# Lengths, arrivals and the identity of every full block of the prompts.
WORKLOADS = {
    "llama3_1_8b": "llama-3.1-8b",
    "qwen3_32b": "qwen3-32b",
    "qwen3_30b_a3b": "qwen3-30b-a3b",
}
LLAMA, QWEN = "meta-llama/Llama-3.1-8B", "Qwen/Qwen3-32B"
MIXTURE = "Qwen/Qwen3-30B-A3B-Instruct-2507"
CASES = (
    ShareGptCase(
        name="rtx4090_llama3_1_8b",
        tables=f"RTX4090/{LLAMA}",
        gpu="rtx4090",
        model="llama3_1_8b",
        tp=1,
        max_num_seqs=256,
        kv_tokens=41_408,
    ),
    ShareGptCase(
        name="rtx_pro_6000_llama3_1_8b",
        tables=f"RTXPRO6000/{LLAMA}",
        gpu="rtx_pro_6000",
        model="llama3_1_8b",
        tp=1,
        max_num_seqs=128,
        kv_tokens=480_000,
    ),
    ShareGptCase(
        name="rtx_pro_6000_qwen3_32b",
        tables=f"RTXPRO6000/{QWEN}",
        gpu="rtx_pro_6000",
        model="qwen3_32b",
        tp=2,
        max_num_seqs=128,
        kv_tokens=480_000,
        shared="rtx_pro_6000_server",
    ),
    ShareGptCase(
        name="rtx_pro_6000_qwen3_30b_a3b",
        tables=f"RTXPRO6000/{MIXTURE}",
        gpu="rtx_pro_6000",
        model="qwen3_30b_a3b",
        tp=1,
        max_num_seqs=128,
        kv_tokens=480_000,
        shared="rtx_pro_6000_server",
        data_parallel=2,
    ),
)


def profile_of(case: ShareGptCase, root: Path) -> Profile:
    """Imported; ``root`` holds the tables."""
    request = ImportRequest(
        path=root / "llmservingsim" / case.tables,
        gpu=case.gpu,
        llm=case.model,
        tp=case.tp,
        engine_version=case.engine_version,
        aiconfigurator=root / "aiconfigurator" / case.shared if case.shared else None,
    )
    return import_profile("llmservingsim", request)


def run(case: ShareGptCase, root: Path, folder: Path) -> int:
    """Import the profile, simulate; the exit status of the command."""
    profile = folder / "profiles" / f"{case.name}.json"
    profile.parent.mkdir(parents=True, exist_ok=True)
    save_profile(profile_of(case, root), profile)
    return cli.run(["simulate", *case.words(profile, root, folder / case.name)])


def _tell_corrections(case: ShareGptCase, root: Path) -> None:
    with TemporaryDirectory() as folder:
        words = [
            word
            for word in case.words(Path("unused"), root, Path("unused"))
            if word.partition("=")[0] not in ("engine.profile", "out", "overwrite")
        ]
        for line in lines(profile_of(case, root), words, Path(folder)):
            print(line, flush=True)


def main(words: list[str]) -> int:
    """All cases; the first exit status that is not 0."""
    corrections = CORRECTIONS_WORD in words
    words = [word for word in words if word != CORRECTIONS_WORD]
    if len(words) > 1 or any(word.startswith("-") for word in words):
        raise HardwareError(
            f"it takes one folder or none and {words[-1]!r} was given: "
            "write python -m benchmarks.sharegpt_300 FOLDER"
        )
    folder = Path(words[0]) if words else FOLDER
    root = os.environ.get("SERVETWIN_PROFILES")
    if root is None:
        raise HardwareError("SERVETWIN_PROFILES is not set: name the folder that holds llmservingsim/")
    for case in CASES:
        print(f"\n{case.name}", flush=True)
        if corrections:
            _tell_corrections(case, Path(root))
            continue
        status = run(case, Path(root), folder)
        if status:
            return status
    return 0


if __name__ == "__main__":
    command("benchmarks.sharegpt_300", __doc__, main)
