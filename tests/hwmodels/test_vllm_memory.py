"""What vLLM keeps free of KV by its own profiling: by hand, by version, and how it grows."""

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import kv_capacity, smallest_tp
from hwmodels.models.vllm_memory import EngineLimits, Reserve, profiled_by, vllm_reserve
from tests.worlds.refusals import refuses

H100, L40S, LLAMA = load_gpu("h100"), load_gpu("l40s"), load_llm("llama3_1_8b")
MIB = 1 << 20


def limits(version: str = "0.19.0", sequences: int = 1024, tokens: int = 8192) -> EngineLimits:
    return EngineLimits(
        version=version, max_num_seqs=sequences, max_num_batched_tokens=tokens, captured=(1, 2, 2048)
    )


def reserve(version: str = "0.19.0", sequences: int = 1024, tokens: int = 8192, tp: int = 1) -> Reserve:
    return vllm_reserve(H100, LLAMA, tp=tp, limits=limits(version, sequences, tokens))


def test_llama_by_hand() -> None:
    """Hidden states of 8,192 tokens; of 1,024 sequences 14 bytes a logit; 128 rows of 32-bit logits."""
    sampling = 8192 * 4096 * 2 + 1024 * 128_256 * 14 + 128 * 128_256 * 4
    rotary = 131_072 * 128 * 2
    found = reserve()
    assert dict(found.terms)["to sample 1024 sequences"] == sampling
    assert found.size_bytes == sampling + rotary + (256 + 50) * MIB == sum(size for _, size in found.terms)


def test_with_few_sequences_a_layer_is_the_peak() -> None:
    """Three hidden states, and gate, up and their product, of every token of a step."""
    layer = 8192 * (3 * 4096 + 3 * 14_336) * 2
    assert dict(reserve(sequences=8).terms)["of a layer with 8192 tokens"] == layer
    half = 8192 * (3 * 4096 + 3 * 14_336 // 2) * 2
    assert dict(reserve(sequences=8, tp=2).terms)["of a layer with 8192 tokens"] == half


@pytest.mark.parametrize(
    ("version", "logit_bytes"),
    [("0.7.2", 38), ("0.16.0", 38), ("0.17.0", 14), ("0.19.1", 14), ("v0.28.0", 14)],
)
def test_a_logit_costs_what_the_sampler_of_the_version_takes(version: str, logit_bytes: int) -> None:
    two, one = (dict(reserve(version, count).terms)[f"to sample {count} sequences"] for count in (1024, 1023))
    assert two - one == logit_bytes * 128_256


def test_the_second_runner_holds_counts_instead() -> None:
    terms = dict(reserve("0.30.0").terms)
    assert terms["counts for penalties"] == 1024 * 128_256 * 33 // 8
    assert "of a layer with 8192 tokens" in terms


def test_graphs_count_from_0_20_on() -> None:
    """Three captured sizes of 32 layers and the ends between them; two of at most 1,024 sequences whole."""
    names = {version: [name for name, _ in reserve(version).terms] for version in ("0.19.1", "0.20.0")}
    assert "101 CUDA graphs" in names["0.20.0"]
    assert not any("graph" in name for name in names["0.19.1"])


def test_peers_take_more_over_nvlink() -> None:
    alone, joined = (dict(reserve(tp=tp).terms).get("buffers to other GPUs", 0) for tp in (1, 2))
    pcie = dict(vllm_reserve(L40S, LLAMA, tp=2, limits=limits()).terms)["buffers to other GPUs"]
    assert alone == 0 < pcie < joined


def test_experts_have_their_workspaces() -> None:
    """Tokens x 8 experts x the larger of hidden and width, and of hidden and twice the width."""
    terms = dict(vllm_reserve(H100, load_llm("qwen3_30b_a3b"), tp=1, limits=limits()).terms)
    assert terms["workspace of experts"] == 8192 * 8 * (2048 + 2048) * 2


@pytest.mark.parametrize(
    ("version", "known"), [("0.6.6", False), ("0.7", True), ("0.33.0", True), ("OSDI", False)]
)
def test_known_versions(version: str, known: bool) -> None:
    assert profiled_by(version) == known


def test_the_range_is_the_error_in_blocks_of_every_gpu() -> None:
    capacity = kv_capacity(H100, LLAMA, tp=2, memory_utilization=0.9, block_tokens=16, limits=limits())
    block_bytes = 16 * LLAMA.kv_bytes_per_token
    spare = -(-reserve().error_bytes * 2 // block_bytes)
    assert capacity.ends == (capacity.blocks - spare, capacity.blocks + spare)
    assert "1880 MiB to sample 1024 sequences" in capacity.arithmetic and "vLLM 0.19.0" in capacity.arithmetic
    named = kv_capacity(
        H100,
        LLAMA,
        tp=2,
        memory_utilization=0.9,
        block_tokens=16,
        activation_reserve_bytes=5,
        limits=limits(),
    )
    assert named.fewest is None and named.ends == (named.blocks, named.blocks)


def test_the_smallest_tp_has_the_same_reserve() -> None:
    """What is advised also fits: peers and the share of the MLP depend on tp."""
    gpu, llm, many = load_gpu("rtx4090"), load_llm("qwen3_32b"), limits("0.15.0", 1024)
    found = smallest_tp(gpu, llm, 0.9, 16, limits=many)
    assert found is not None
    assert kv_capacity(gpu, llm, tp=found, memory_utilization=0.9, block_tokens=16, limits=many).blocks > 0
    refuses(
        HardwareError, f"write model.tp={found}, the smallest that fits",
        lambda: kv_capacity(gpu, llm, tp=1, memory_utilization=0.9, block_tokens=16, limits=many),
    )  # fmt: skip
