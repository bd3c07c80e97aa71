"""What people call GPUs and models, and files of GPUs of their own."""

from pathlib import Path

import pytest

from hwmodels.catalogue import (
    gpu_all_reduce,
    gpu_named,
    gpu_names,
    gpu_power,
    llm_named,
    llm_names,
    load_gpu,
    load_llm,
    quantised_publication,
    read_yaml,
)
from hwmodels.errors import HardwareError
from hwmodels.models.precision import PRECISIONS
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from tests.worlds.own_gpu import OWN
from tests.worlds.refusals import refuses


@pytest.mark.parametrize("text, name", [
    ("a100", "a100_80g"), ("A100", "a100_80g"), ("A100-SXM4-80GB", "a100_80g"), ("a100-80gb", "a100_80g"),
    ("NVIDIA A100-SXM4-40GB", "a100_40g"), ("a100 40GB", "a100_40g"), ("A800-SXM4-80GB", "a800"),
    ("H100", "h100"), ("h100-sxm", "h100"), ("NVIDIA H100 80GB HBM3", "h100"), ("H100_SXM5_80GB", "h100"),
    ("NVIDIA H200", "h200"), ("h200-141gb", "h200"), ("Tesla V100-SXM2-32GB", "v100"), ("NVIDIA A10", "a10"),
    ("A40", "a40"), ("NVIDIA L40S", "l40s"), ("NVIDIA GeForce RTX 4090", "rtx4090"), ("4090", "rtx4090"),
    ("NVIDIA RTX PRO 6000 Blackwell Server Edition", "rtx_pro_6000"), ("CPU-core", "cpu_core"),
    ("NVIDIA B200", "b200"), ("B200-SXM-180GB", "b200"), ("NVIDIA B300 SXM6 AC", "b300"),
    ("GB200 NVL72", "gb200"), ("NVIDIA GB300", "gb300"), ("AMD Instinct MI300X", "mi300x"),
    ("MI355X OAM", "mi355x"), ("NVIDIA L4", "l4"), ("RTX 5090 32GB", "rtx_5090"),
])  # fmt: skip
def test_a_gpu_is_found_in_any_case_and_by_alias(text: str, name: str) -> None:
    assert gpu_named(text) == load_gpu(text).name == name
    assert gpu_power(text) == gpu_power(name) and gpu_all_reduce(text) == gpu_all_reduce(name)


@pytest.mark.parametrize("text, choice", [
    ("H100 PCIe", r"'h100' \(H100 SXM 80 GB\)"), ("NVIDIA H100 NVL", "'h100'"),
    ("A100-PCIE-40GB", "'a100_40g'"),
    ("NVIDIA A100 80GB PCIe", "'a100_80g'"), ("Tesla V100-SXM2-16GB", r"'v100' \(V100 SXM2 32 GB\)"),
    ("a10g", "'a10'"), ("nvidia", "another of"), ("RTX PRO 6000 Blackwell Max-Q", "'rtx_pro_6000'"),
])  # fmt: skip
def test_another_card_is_refused_with_the_card_that_is_here(text: str, choice: str) -> None:
    refuses(HardwareError, f"{choice}.*a .yaml file of your own with memory_bytes", load_gpu, text)


def test_every_gpu_is_found_by_its_own_name_alone() -> None:
    assert [gpu_named(name.upper().replace("_", "-")) for name in gpu_names()] == list(gpu_names())


@pytest.mark.parametrize("text, name", [
    ("Qwen/Qwen3-32B", "qwen3_32b"), ("qwen/qwen3-32b", "qwen3_32b"), ("Qwen3-32B", "qwen3_32b"),
    ("meta-llama/Llama-3.1-8B-Instruct", "llama3_1_8b"), ("meta-llama/Meta-Llama-3-8B", "llama3_8b"),
    ("Mixtral-8x7B-Instruct-v0.1", "mixtral_8x7b"), ("LLAMA3-8B", "llama3_8b"),
])  # fmt: skip
def test_a_model_is_found_by_its_name_on_hugging_face(text: str, name: str) -> None:
    assert llm_named(text) == load_llm(text).name == name


@pytest.mark.parametrize("text, name, precision", [
    ("nvidia/Llama-3.1-70B-Instruct-FP8", "llama3_1_70b", "fp8"),
    ("qwen/qwen3-32b-fp8", "qwen3_32b", "fp8_block"),
    ("Llama-3.3-70B-Instruct-FP4", "llama3_1_70b", "nvfp4"), ("Qwen3-32B-AWQ", "qwen3_32b", "int4"),
])  # fmt: skip
def test_a_quantised_publication_is_a_model_and_its_precision(text: str, name: str, precision: str) -> None:
    assert quantised_publication(text) == (name, precision)
    shape = load_llm(text)
    assert shape.name == name and shape.formats.matrices == (precision,)


def test_precisions_of_publications_are_known_and_no_name_stands_twice() -> None:
    entries = read_yaml("models.yaml").values()
    told = [item for entry in entries for item in entry.get("quantised", {}).items()]
    assert {precision for precision, _ in told} <= set(PRECISIONS)
    names = [name.casefold() for _, names in told for name in names]
    assert len(names) == len(set(names)) and all(name.count("/") == 1 for name in names)


def test_no_name_stands_for_two_models() -> None:
    hub = [
        one.casefold() for entry in read_yaml("models.yaml").values() for one in entry.get("huggingface", ())
    ]
    assert len(hub) == len(set(hub)) and all(one.count("/") == 1 for one in hub)
    assert all(
        llm_named(one) in llm_names() and llm_named(one.partition("/")[2]) in llm_names() for one in hub
    )


def test_the_name_in_a_models_source_is_one_of_its_names() -> None:
    for name, entry in read_yaml("models.yaml").items():
        stored = entry.get("quantised", {}).values()
        hub = [*entry.get("huggingface", ()), *(one for names in stored for one in names)]
        assert name == "tiny_llama" or any(one in entry["source"] for one in hub), name


def test_a_folder_of_that_name_comes_first(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "Qwen" / "Qwen3-32B").mkdir(parents=True)
    assert llm_named("Qwen/Qwen3-32B") == "Qwen/Qwen3-32B"
    refuses(HardwareError, "config.json", load_llm, "Qwen/Qwen3-32B")


@pytest.mark.parametrize("text, named", [
    ("Qwen/Qwen3-8B", "not in the catalogue, and no file here: save its config.json.*model=FOLDER"),
    ("Qwen/Qwen3-30B-A3B", "it has qwen3_30b_a3b, which is Qwen/Qwen3-30B-A3B-Instruct-2507"),
    ("Qwen/Qwen3-32B-GGUF", "it has qwen3_32b, which is Qwen/Qwen3-32B"),
    ("foo", "unknown model 'foo': write '.*, or the path of its own config.json"),
])  # fmt: skip
def test_an_unknown_model_is_refused_with_what_to_do(text: str, named: str) -> None:
    refuses(HardwareError, named, load_llm, text)


def test_a_gpu_of_ones_own_is_a_file(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    gpu = load_gpu(str(file))
    assert (gpu.name, gpu.memory_bytes, gpu.flops_per_s) == (str(file), 192 * 10**9, 2.25e15)
    assert "memory_bytes: datasheet" in gpu.source and gpu_power(str(file)) is None
    assert list(load_all_reduce(str(file)).ranks) == []
    links = "all_reduce: {same_as: H100, source: the same links}\n"
    file.write_text(
        f"{OWN}{links}power_limit_w: {{value: 1000, source: d}}\nidle_w: {{value: 90, source: d}}\n"
    )
    assert load_all_reduce(str(file)).ranks.keys() == load_all_reduce("h100").ranks.keys()
    power = gpu_power(str(file))
    assert power is not None and power.limit_w == 1000


def test_a_gpus_own_file_has_rates_of_narrower_products(tmp_path: Path) -> None:
    """Without its own rate INT8 is as fast as FP8, and what has no rate at all is computed in 16 bits."""
    file = tmp_path / "mine.yaml"
    file.write_text(OWN)
    assert {load_gpu(str(file)).flops_in(name) for name in ("fp8", "fp4", "int8")} == {2.25e15}
    file.write_text(OWN + "fp8_flops_per_s: {value: 4.5e+15, source: d}\n")
    assert [load_gpu(str(file)).flops_in(name) for name in ("fp8", "fp4", "int8")] == [
        4.5e15,
        2.25e15,
        4.5e15,
    ]
    both = "fp4_flops_per_s: {value: 9.0e+15, source: d}\nint8_flops_per_s: {value: 1.0e+14, source: d}\n"
    file.write_text(OWN + both)
    assert [load_gpu(str(file)).flops_in(name) for name in ("fp8", "fp4", "int8")] == [2.25e15, 9e15, 1e14]
    assert "int8_flops_per_s: d" in load_gpu(str(file)).source


@pytest.mark.parametrize("old, new, named", [
    ("flops_per_s", "flops", "unknown key 'flops'; write only memory_bytes"),
    ("flops_per_s: {value: 2.25e+15, source: datasheet}\n", "", "lacks flops_per_s; write flops_per_s:"),
    ("{value: 1.92e+11, source: datasheet}", "192000000000", "memory_bytes is not {value: NUMBER, source"),
    ("1.92e+11", "-1", "memory_bytes is -1, out of range"),
    ("source: rough", "source: ''", "activation_reserve_bytes is not {value"),
    ("memory_bytes", "idle_w: {value: 9, source: d}\nmemory_bytes", "one of power_limit_w and idle_w"),
    ("memory_bytes", "all_reduce: 5\nmemory_bytes", "all_reduce is not {same_as: GPU"),
    (OWN, "[]", "no numbers of a GPU"),
    (OWN, "{", "is no YAML"),
])  # fmt: skip
def test_a_file_that_is_no_gpu_is_refused(old: str, new: str, named: str, tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(OWN.replace(old, new, 1))
    refuses(HardwareError, f"mine.yaml.*{named}", load_gpu, str(file))
    file.unlink()
    refuses(HardwareError, "mine.yaml cannot be read.*each as {value: NUMBER", load_gpu, str(file))
