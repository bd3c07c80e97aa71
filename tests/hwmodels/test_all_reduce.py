"""All-reduces by GPU, ranks and engine version: fitted, found, imported, and said at the head of a run."""

import os
from io import StringIO
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from rich.console import Console

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.step_times.all_reduce import Stretch
from hwmodels.step_times.all_reduce_catalogue import Imitated, load_all_reduce
from hwmodels.step_times.all_reduce_fit import fit_stretches, stretches_s
from hwmodels.step_times.select import step_model
from scripts.fit_all_reduce import printed
from servetwin.assemble.hardware import hardware_of
from servetwin.config.compose.compose import load_config
from servetwin.report.table import print_summary
from servetwin.results.step_times import step_time_section
from tests.worlds.profile_tables import Row, write_aiconfigurator, write_llmservingsim

PROFILES = Path(os.environ.get("SERVETWIN_PROFILES", ""))
CATALOGUE = Path(__file__).parents[2] / "hwmodels" / "catalogue" / "all_reduce.yaml"
SIZES = np.array([float(1 << power) for power in range(10, 29)])
VLLM_0_19 = Imitated("vllm", "0.19.0")


def on_rtx4090(name: str, rows: list[Row]) -> list[Row]:
    return [{**row, "device": "NVIDIA GeForce RTX 4090"} for row in rows]


def write_nccl(folder: Path, version: str, ranks: tuple[int, ...], us: float) -> None:
    path = folder / "comm" / "nccl" / version / "nccl_perf.parquet"
    path.parent.mkdir(parents=True)
    rows = [
        {"op_name": op, "nccl_dtype": "half", "num_gpus": n, "message_size": size, "device": folder.name,
         "latency": slow * us * 1e-3 * (1 + size * 1e-5)}
        for op, slow in (("all_reduce", 1), ("all_gather", 7)) for n in ranks
        for size in (256, 4096, 1 << 20, 1 << 24)
    ]  # fmt: skip
    pd.DataFrame(rows).to_parquet(path, index=False)


def test_two_lines_and_the_jump_between_them_are_found() -> None:
    truth = (Stretch(0, 5e-6, 4e-12), Stretch(1 << 23, 4e-5, 6e-12))
    found = fit_stretches(SIZES, stretches_s(truth, SIZES))
    assert [one.from_size for one in found.stretches] == [0, 1 << 23]
    assert found.stretches[1][1:] == pytest.approx(truth[1][1:])
    assert np.abs(found.errors).max() < 1e-9 < np.abs(found.held_out).max()


def test_what_was_measured_in_the_imitated_engine_needs_no_label() -> None:
    assert load_all_reduce("h100", VLLM_0_19).of(4).label == ""
    a100 = load_all_reduce("a100_80g", VLLM_0_19).of(4)
    assert a100.label == "all-reduce of 4 a100_80g: measured in vllm 0.14.0, this run imitates vllm 0.19.0"
    assert "NCCL 2.29.2 measured alone" in load_all_reduce("rtx_pro_6000", VLLM_0_19).of(8).label
    assert load_all_reduce("rtx_pro_6000", VLLM_0_19).of(2).label == ""
    assert "is rough: nothing measured, PCIe" in load_all_reduce("rtx4090", VLLM_0_19).of(2).label


def test_two_rtx_pro_6000_exchange_2_mib_in_some_158_us() -> None:
    one_layer = load_all_reduce("rtx_pro_6000", VLLM_0_19).of_step(load_llm("qwen3_32b"), 2)
    tokens = (2 << 20) // (5120 * 2)
    assert one_layer.seconds(tokens) / 128 == pytest.approx(158e-6, rel=0.03)


def test_ranks_that_vllm_was_not_measured_with_have_nccl_s(tmp_path: Path) -> None:
    folder = write_aiconfigurator(tmp_path)
    write_nccl(folder, "2.9.1", (4,), 900.0)
    write_nccl(folder, "2.27.3", (2, 4), 20.0)
    llm = load_llm("llama3_8b")
    found = import_profile("aiconfigurator", ImportRequest(path=folder, gpu="a100_80g", llm=llm.name, tp=2))
    assert found.stamp.labels == ()

    def with_heads(name: str, rows: list[Row]) -> list[Row]:
        return [*rows, *({**row, "num_heads": 8, "num_key_value_heads": 2} for row in rows)]

    four = write_aiconfigurator(tmp_path / "more", with_heads)
    write_nccl(four, "2.27.3", (4,), 20.0)
    profile = import_profile("aiconfigurator", ImportRequest(path=four, gpu="a100_80g", llm=llm.name, tp=4))
    assert profile.stamp.labels == ("all-reduce of 4 a100_80g: NCCL 2.27.3 measured alone, in no engine",)
    assert profile.tables.all_reduce is not None
    seconds = dict(zip(profile.tables.all_reduce.counts, profile.tables.all_reduce.seconds))
    assert seconds[256] == pytest.approx(2 * llm.layers * 20e-6 * (1 + (256 * 4096) * 1e-5))
    assert step_model("auto", load_gpu("a100_80g"), llm, tp=4, profile=profile).labels == profile.stamp.labels


def test_layer_tables_take_the_all_reduce_of_their_engine_version(tmp_path: Path) -> None:
    folder = write_llmservingsim(tmp_path, tp=2)
    beside = write_aiconfigurator(tmp_path, on_rtx4090, version="0.19.0")
    found = import_profile(
        "llmservingsim",
        ImportRequest(
            path=folder, gpu="rtx4090", llm="llama3_1_8b", tp=2, engine_version=None, aiconfigurator=beside
        ),
    )
    assert found.tables.all_reduce is not None and found.tables.all_reduce.counts == (1, 2, 256)
    assert any(name.endswith("0.19.0/custom_allreduce_perf.parquet") for name, _ in found.stamp.files)
    assert "ai-dynamo/aiconfigurator" in found.stamp.source and "Apache-2.0" in found.stamp.licence
    for wrong, says in (("0.14.0", "has no vllm 0.19.0"), ("0.19.0", "measured on NVIDIA A100")):
        other = write_aiconfigurator(tmp_path / says[:4], version=wrong)
        with pytest.raises(HardwareError, match=says):
            import_profile(
                "llmservingsim",
                ImportRequest(
                    path=folder,
                    gpu="rtx4090",
                    llm="llama3_1_8b",
                    tp=2,
                    engine_version=None,
                    aiconfigurator=other,
                ),
            )


def test_a_rough_all_reduce_stands_at_the_head_of_console_and_summary() -> None:
    words = ["cluster=rtx4090_x2", "model=llama3_8b", "model.tp=2", "engine=vllm_v1", "out=unused"]
    section = step_time_section(hardware_of(load_config(words, "simulate"))["llama3_8b"])
    (label,) = section["labels"]
    assert label.startswith("all-reduce of 2 rtx4090 is rough: nothing measured")
    console = Console(record=True, width=200, file=StringIO())
    print_summary({"step_time": section}, console)
    assert f"step time: {label}"[:120] in console.export_text()
    alone = hardware_of(load_config([*words[:2], "engine=vllm_v1", "out=unused"], "simulate"))
    assert "labels" not in step_time_section(alone["llama3_8b"])


@pytest.mark.skipif(
    not (PROFILES / "aiconfigurator").is_dir(), reason="SERVETWIN_PROFILES names no folder of measured tables"
)
def test_the_catalogue_is_what_the_command_prints() -> None:
    assert printed(PROFILES / "aiconfigurator") == CATALOGUE.read_text(encoding="utf-8")
