"""Every GPU and model of the catalogue against published numbers, and what experiments make of the names."""

import re
from itertools import pairwise
from pathlib import Path

import pytest

from hwmodels.catalogue import gpu_names, llm_names, load_gpu, load_llm, read_yaml
from hwmodels.catalogue.stacks import stack_names
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity, smallest_tp
from hwmodels.step_times.all_reduce import StepAllReduce
from hwmodels.step_times.all_reduce_catalogue import load_all_reduce
from hwmodels.step_times.roofline_step import roofline_step_model
from servetwin.config.compose.clusters import CLUSTER_FAMILIES, made_names, requested_cluster
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.key_list import key_list
from servetwin.config.options import CONF_DIR, option_file, option_groups
from serving.vocabulary.errors import UserError
from tests.worlds.hf_published import GLM_4_6, PUBLISHED
from tests.worlds.refusals import refuses

# Published: the sum of the sizes of all tensors in the checkpoint. Newer families: hf_published.py.
PARAMETERS = {
    "llama_7b": 6_738_415_616,
    "llama_30b": 32_528_943_616,
    "llama2_7b": 6_738_415_616,
    "llama2_13b": 13_015_864_320,
    "llama2_70b": 68_976_648_192,
    "llama3_8b": 8_030_261_248,
    "llama3_1_8b": 8_030_261_248,
    "llama3_70b": 70_553_706_496,
    "llama3_1_70b": 70_553_706_496,
    "mistral_24b": 23_572_403_200,
    "opt_13b": 12_853_473_280,
    "qwen2_5_72b": 72_706_203_648,
    "qwen3_32b": 32_762_123_264,
    "qwen_72b": 72_287_920_128,
    "qwen3_30b_a3b": 30_532_122_624,
    "mixtral_8x7b": 46_702_792_704,
    "deepseek_v2_lite": 15_706_484_224,
    "smollm2_135m": 134_515_008,
}
# Known to three digits only.
ABOUT = {"opt_66b": 65.7e9}
OWN = {"tiny_llama"}
NEWER = {one.name for one in PUBLISHED if one.name} | {GLM_4_6[0]}
DATASHEET_GB = {
    "a10": 24, "a40": 48, "a100_40g": 40, "a100_80g": 80, "a800": 80, "h100": 80, "h200": 141, "l40s": 48,
    "rtx4090": 24, "rtx_pro_6000": 96, "v100": 32, "b200": 180, "b300": 270, "gb200": 186, "gb300": 279,
    "mi300x": 192, "mi355x": 288, "l4": 24, "rtx_5090": 32,
}  # fmt: skip
EXACT_TP = {
    "llama_30b": (1, 2, 4),
    "opt_66b": (1, 2, 4, 8),
    "qwen_72b": (1, 2, 4, 8),
    "opt_13b": (1, 2, 4, 8),
}


def test_every_model_is_checked_below() -> None:
    assert set(llm_names()) == set(PARAMETERS) | set(ABOUT) | OWN | NEWER


@pytest.mark.parametrize(("name", "parameters"), PARAMETERS.items())
def test_parameters_equal_the_published_counts(name: str, parameters: int) -> None:
    assert load_llm(name).parameters == parameters


@pytest.mark.parametrize(("name", "parameters"), ABOUT.items())
def test_parameters_are_near_the_published_size(name: str, parameters: float) -> None:
    assert load_llm(name).parameters == pytest.approx(parameters, rel=0.01)


def test_opt_66b_by_hand() -> None:
    """Its layers: four square matrices, two of the MLP, all with biases, two norms with weight and bias."""
    hidden, middle = 9216, 36864
    layer = 4 * (hidden * hidden + hidden) + 2 * hidden * middle + middle + hidden + 4 * hidden
    tables = (50272 + 2050) * hidden
    opt = load_llm("opt_66b")
    assert opt.parameters == 64 * layer + tables + 2 * hidden
    assert (
        opt.attention_parameters_of("full") + opt.mlp_parameters == 4 * hidden * hidden + 2 * hidden * middle
    )
    assert opt.kv_bytes_per_token == 2 * 64 * hidden * 2


@pytest.mark.parametrize(("name", "sizes"), EXACT_TP.items())
def test_tensor_parallel_sizes(name: str, sizes: tuple[int, ...]) -> None:
    assert tuple(tp for tp in (1, 2, 4, 8) if load_llm(name).splits_into(tp)) == sizes


def test_every_gpu_is_checked_below() -> None:
    assert set(gpu_names()) == set(DATASHEET_GB) | {"cpu_core"}


@pytest.mark.parametrize(("name", "gigabytes"), DATASHEET_GB.items())
def test_usable_memory_is_a_little_less_than_what_the_card_has(name: str, gigabytes: int) -> None:
    """Datasheets count 2^30 bytes as a GB; ECC of GDDR6 takes up to 1/16, the driver up to 2 % more."""
    assert 0.91 < load_gpu(name).memory_bytes / (gigabytes << 30) < 1.0


@pytest.mark.parametrize("name", DATASHEET_GB)
def test_rates_are_in_their_units(name: str) -> None:
    """A rate in GB/s or TFLOP/s, or a sparse one on a small card, would fall out of these ranges."""
    gpu = load_gpu(name)
    assert 0.29e12 < gpu.memory_bandwidth_bytes_per_s < 9e12
    assert 100e12 < gpu.flops_per_s < 2600e12
    assert 0.5e9 < gpu.activation_reserve_bytes < 4e9


@pytest.mark.parametrize("name", DATASHEET_GB)
def test_all_reduce_is_known_for_every_size(name: str) -> None:
    """Between GPUs a message of 64 MiB goes at 0.5 to 400 GB/s, and a larger one never takes much less."""
    links = load_all_reduce(name)
    assert sorted(links.ranks) == [2, 4, 8]
    for tp in links.ranks:
        step = StepAllReduce(links.of(tp).stretches)
        seconds = [step.seconds(1 << power) for power in range(9, 29)]
        assert seconds[0] > 3e-6 and 0.5e9 < (64 << 20) / step.seconds(64 << 20) < 400e9
        assert all(later > 0.9 * before for before, later in pairwise(seconds)), tp


def test_the_a100_is_what_it_was() -> None:
    gpu = load_gpu("a100_80g")
    assert (gpu.memory_bytes, gpu.activation_reserve_bytes) == (85_061_827_461, 3_274_912_563)
    assert (gpu.memory_bandwidth_bytes_per_s, gpu.flops_per_s) == (2.039e12, 312e12)


def test_kv_capacity_meets_what_llumnix_names_for_an_a10() -> None:
    assert (
        kv_capacity(
            load_gpu("a10"), load_llm("llama_7b"), tp=1, memory_utilization=0.9, block_tokens=16
        ).tokens
        == 13_616
    )


def test_what_is_not_from_a_datasheet_or_report_says_so() -> None:
    """The entries that were scaled from another card are marked, so that nobody takes them for measured."""
    gpus = read_yaml("gpus.yaml")
    for name in ("a800", "v100", "a10", "a40", "rtx4090"):
        assert gpus[name]["all_reduce"]["source"].startswith("rough, "), name
        assert all(f"of {tp} {name} is rough: " in load_all_reduce(name).of(tp).label for tp in (2, 4, 8))
    assert "is that of a100_80g" in load_all_reduce("a100_40g").of(2).label
    assert gpus["h200"]["memory_bytes"]["source"].startswith("rough, ")
    assert gpus["rtx_pro_6000"]["flops_per_s"]["source"].startswith("rough, ")


UNMEASURED = ("b200", "b300", "gb200", "gb300", "mi300x", "mi355x", "l4", "rtx_5090")


def test_gpus_by_datasheet_alone_say_so_in_their_step_times() -> None:
    tables = {entry["gpu"] for file in ("linear.yaml", "linear_composed.yaml") for entry in read_yaml(file)}
    assert not tables & set(UNMEASURED)
    for name in gpu_names():
        gpu = load_gpu(name)
        step = roofline_step_model(gpu, load_llm("tiny_llama"), 1, all_reduce=load_all_reduce(name))
        told = [label for label in step.labels if "none was measured on it" in label]
        assert gpu.unmeasured == (name in UNMEASURED) == bool(told), name


def test_all_reduces_of_blackwell_are_those_of_the_h200_until_measured() -> None:
    for name in ("b200", "b300", "gb200", "gb300"):
        assert load_all_reduce(name).of(8).stretches == load_all_reduce("h200").of(8).stretches
        assert (
            load_all_reduce(name).of(8).label == f"all-reduce of 8 {name} is that of h200, not measured on it"
        )
    assert load_all_reduce("l4").of(2).label == "all-reduce of 2 l4 is that of l40s, not measured on it"


def test_more_ranks_of_a_mesh_have_more_links_between_them() -> None:
    """Each pair of MI300X has a link of 64 GB/s each way: 7 of them for 8 ranks, 1 for 2."""
    links = load_all_reduce("mi300x")
    stretches = {tp: links.of(tp).stretches[0] for tp in (2, 4, 8)}
    for tp, stretch in stretches.items():
        assert stretch.s_per_unit == pytest.approx(2 * (tp - 1) / tp / (0.7 * (tp - 1) * 64e9))


def test_smallest_tp() -> None:
    a100, rtx = load_gpu("a100_80g"), load_gpu("rtx4090")
    assert smallest_tp(a100, load_llm("llama3_8b"), 0.9, 16) == 1
    assert smallest_tp(a100, load_llm("qwen2_5_72b"), 0.9, 16) == 2
    assert smallest_tp(rtx, load_llm("llama3_8b"), 0.9, 16) == 1
    assert smallest_tp(rtx, load_llm("qwen2_5_72b"), 0.9, 16) == 8
    assert smallest_tp(rtx, load_llm("llama_30b"), 0.9, 16) == 4
    assert smallest_tp(rtx, load_llm("llama_30b"), 0.1, 16) is None
    assert smallest_tp(load_gpu("cpu_core"), load_llm("llama3_8b"), 0.9, 16) is None


# Larger than eight GPUs of 80 GB, and the GPU that eight (of glm_5: 16) of hold them.
LARGE = {
    "qwen3_235b_a22b": "h200", "glm_4_6": "h200", "glm_5": "h200", "qwen3_5_397b_a17b": "h200",
    "deepseek_v3": "h200", "deepseek_v3_2": "h200", "kimi_k2": "b200", "kimi_k2_5": "h200",
}  # fmt: skip
# Contexts of ten million tokens are promised, and fit nowhere.
LONG = {"llama4_scout": 131_072}


def test_every_model_has_an_option_file_that_fits_its_gpus() -> None:
    assert set(option_groups()["model"]) == {*llm_names(), *stack_names()}
    for name in llm_names():
        option = option_file("model", name)
        assert option["name"] == name
        gpu = load_gpu(LARGE.get(name, "a100_80g"))
        capacity = kv_capacity(gpu, load_llm(name), tp=option["tp"], memory_utilization=0.9, block_tokens=16)
        assert capacity.tokens >= LONG.get(name, load_llm(name).max_context_tokens), name


def test_every_gpu_has_a_cluster_family() -> None:
    assert set(CLUSTER_FAMILIES.values()) == set(gpu_names()) - {"cpu_core"}
    assert CLUSTER_FAMILIES["a100"] == "a100_80g"


@pytest.mark.parametrize(("family", "gpu"), CLUSTER_FAMILIES.items())
def test_clusters_of_every_family_are_made(family: str, gpu: str) -> None:
    cluster = load_config([f"cluster={family}_x16", "out=x"], "simulate").cluster
    assert (cluster.name, cluster.gpu, cluster.gpus) == (f"{family}_x16", gpu, 16)
    assert family in re.split(r"\W+", made_names().replace("_xN", ""))
    assert f"{family}_xN" in key_list("simulate")


@pytest.mark.parametrize(
    "name", ["h100_x0", "h100_x08", "h100_x8193", "h100_x", "h900_x8", "h100", "cpu_core_x2"]
)
def test_other_clusters_are_not(name: str) -> None:
    assert requested_cluster(name) is None
    refuses(
        UserError,
        r"a100_xN \(N from 1 to 8192\), also .* h100, ",
        load_config,
        [f"cluster={name}", "out=x"],
        "simulate",
    )


def test_a_bare_cluster_of_any_family_is_told_its_group() -> None:
    refuses(UserError, "write cluster=rtx_pro_6000_x4", load_config, ["rtx_pro_6000_x4", "out=x"], "simulate")


@pytest.mark.parametrize("name", ["a10", "h100", "rtx4090"])
def test_a_mistyped_gpu_is_told_the_nearest(name: str) -> None:
    refuses(HardwareError, f"write '{name}'", load_gpu, name.upper() + "x")


def test_option_files_are_beside_the_others() -> None:
    assert all(Path(CONF_DIR, "model", f"{name}.yaml").is_file() for name in llm_names())
