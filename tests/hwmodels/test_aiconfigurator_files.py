"""AIConfigurator's files of today: versions that differ by operation, kernels of experts by either name."""

import shutil
from collections.abc import Mapping
from pathlib import Path

import pandas as pd
import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.importers.aiconfigurator import read_expert_rows
from hwmodels.importers.aiconfigurator_tables import Folder
from tests.worlds.profile_tables import A100, write_aiconfigurator


def request(folder: Path, llm: str, tp: int = 1) -> ImportRequest:
    return ImportRequest(path=folder, gpu="a100_80g", llm=llm, tp=tp)


@pytest.mark.parametrize(
    ("there", "taken"),
    [(("0.12.0", "0.19.0"), "0.12.0"), (("0.9.1", "0.10.0"), "0.10.0"), (("0.19.0",), "0.19.0")],
)
def test_an_operation_of_another_version_stands_in_and_is_noted(
    tmp_path: Path, there: tuple[str, ...], taken: str
) -> None:
    """The newest before that of the products, by number; else the first after it."""
    folder = write_aiconfigurator(tmp_path)
    own = folder / "comm" / "vllm" / "0.14.0"
    for version in there:
        shutil.copytree(own, own.parent / version)
    shutil.rmtree(own)
    stamp = import_profile("aiconfigurator", request(folder, "llama3_8b", tp=2)).stamp
    assert f"custom_allreduce_perf is of vllm {taken}: there is none of 0.14.0" in stamp.notes
    assert f"a100_sxm/comm/vllm/{taken}/custom_allreduce_perf.parquet" in dict(stamp.files)


def experts_folder(tmp_path: Path, kernels: Mapping[str, int]) -> Path:
    """Tables of a small mixture, each kernel measured with so many counts of tokens."""
    folder = write_aiconfigurator(tmp_path)
    shape = {"hidden_size": 2048, "inter_size": 768, "topk": 8, "num_experts": 128, "moe_tp_size": 1}
    rows = [
        {"device": A100, "moe_dtype": "bfloat16", "kernel_source": kernel, "distribution": "balanced",
         **shape, "moe_ep_size": 1, "num_tokens": tokens, "latency": 1.0 + tokens * 1e-3}
        for kernel, counts in kernels.items()
        for tokens in [1 << power for power in range(counts)]
    ]  # fmt: skip
    path = folder / "moe" / "vllm" / "0.14.0" / "moe_perf.parquet"
    path.parent.mkdir(parents=True)
    pd.DataFrame(rows).to_parquet(path, index=False)
    return folder


@pytest.mark.parametrize(
    ("kernels", "taken"),
    [
        ({"vllm_fused_moe": 12, "other": 14}, "vllm_fused_moe"),
        (
            {"vllm_unquantizedfusedmoe_triton_tritonexperts": 12},
            "vllm_unquantizedfusedmoe_triton_tritonexperts",
        ),
        (
            {"vllm_unquantizedfusedmoe_a": 10, "vllm_unquantizedfusedmoe_b": 13},
            "vllm_unquantizedfusedmoe_b",
        ),
    ],
)
def test_experts_are_those_of_vllms_kernel_under_its_old_and_new_names(
    tmp_path: Path, kernels: Mapping[str, int], taken: str
) -> None:
    folder = experts_folder(tmp_path, kernels)
    llm = load_llm("qwen3_30b_a3b")
    rows = read_expert_rows(Folder(folder, request(folder, llm.name)), llm)
    assert set(rows.table.words["kernel_source"]) == {taken}
    curve = rows.curve(1, 1)
    assert curve is not None and len(curve.counts) == kernels[taken]


def test_experts_of_no_kernel_of_vllm_are_refused(tmp_path: Path) -> None:
    folder = experts_folder(tmp_path, {"trtllm_moe": 12})
    llm = load_llm("qwen3_30b_a3b")
    with pytest.raises(
        HardwareError, match=r"has no rows of vllm_fused_moe or .*it has kernel_source=trtllm_moe"
    ):
        read_expert_rows(Folder(folder, request(folder, llm.name)), llm)
