"""Sorting logits for top-p: which models ask for it, which versions of vLLM do it, what it adds to a step."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.step_times.engine_overhead import EngineOverhead, EngineStepModel
from hwmodels.step_times.engine_terms import engine_terms
from hwmodels.step_times.op_table_step import OpTableStepModel
from hwmodels.step_times.rows import FIXED_PER_S, StepRows
from hwmodels.step_times.scaled_rows import PhaseFactors, ScaledRows
from tests.worlds.hf_configs import LLAMA3_8B
from tests.worlds.refusals import refuses
from tests.worlds.toy_profile import toy_profile

PLAIN = EngineOverhead(step_s=3e-4, per_sequence_s=2e-6, graph_batches=(1, 2, 4, 8))
SORTS = replace(PLAIN, per_logit_s=1e-10, sorted_logits=100_000)
EACH = round(1e-5 * FIXED_PER_S)


def folder(tmp_path: Path, generation: object = None, **changed: object) -> str:
    (tmp_path / "config.json").write_text(json.dumps(LLAMA3_8B | changed))
    if generation is not None:
        (tmp_path / "generation_config.json").write_text(json.dumps(generation))
    return str(tmp_path)


def test_a_sort_adds_its_time_for_each_sequence_of_any_step() -> None:
    operations = OpTableStepModel(toy_profile())
    plain, sorts = (StepRows(EngineStepModel(operations, one)) for one in (PLAIN, SORTS))
    for n in (1, 3, 8):
        assert sorts.decode_cost(n, 8 * n) - plain.decode_cost(n, 8 * n) == pytest.approx(n * EACH, abs=2)
    mixed = (2, 16, ((0, 0, 5), (1, 0, 7)))
    assert sorts.mixed(*mixed) - plain.mixed(*mixed) == pytest.approx(4 * EACH, abs=4)
    model = EngineStepModel(operations, SORTS)
    at_end = ScaledRows(model, PhaseFactors(), SORTS)
    assert at_end.decode_cost(3, 30) == pytest.approx(sorts.decode_cost(3, 30), abs=4)


def test_a_sort_is_as_uncertain_as_what_timed_it_unless_whole_steps_were_judged_with_it() -> None:
    fitted = replace(SORTS, error_s=1e-4)
    low, high, told = fitted.ends()
    assert [low.sort_s, high.sort_s] == pytest.approx([6.9e-6, 13.1e-6])
    assert told == "fitted, 0.1 ms a step either way, 31% of 10 us to sort its logits"
    assert [one.sequence_s for one in fitted.ends(steps_judged=True)[:2]] == [fitted.sequence_s] * 2
    assert [one.sort_s for one in SORTS.ends()[:2]] == pytest.approx([5e-6, 2e-5])


def test_vllm_sorts_before_0_17() -> None:
    per_logit_s = {
        version: engine_terms("vllm", version)["overhead"]["per_logit_s"]
        for version in ("0.12.0", "0.15.1", "0.16.0", "0.17.0", "0.19.0", "0.30.0")
    }
    assert [version for version, seconds in per_logit_s.items() if seconds] == ["0.12.0", "0.15.1", "0.16.0"]


def test_a_generation_config_beside_a_shape_decides_also_for_a_shape_of_the_catalogue(tmp_path: Path) -> None:
    assert load_llm("llama3_8b").top_p and not load_llm("opt_13b").top_p
    assert load_llm(folder(tmp_path)).name == "llama3_8b" and load_llm(folder(tmp_path)).top_p
    for said, found in (({"top_p": 0.9}, True), ({"top_p": 1.0}, False), ({"top_k": 20}, False)):
        assert load_llm(folder(tmp_path, said)).top_p is found


@pytest.mark.parametrize("changed, found", [
    ({"vocab_size": 32000, "max_position_embeddings": 4096}, True),  # as Llama 2
    ({"vocab_size": 32000, "max_position_embeddings": 16384}, False),  # as Code Llama
    ({"architectures": ["Qwen3ForCausalLM"], "vocab_size": 151936}, True),
    ({"architectures": ["MistralForCausalLM"], "vocab_size": 32768}, False),
])  # fmt: skip
def test_without_the_file_the_family_decides(tmp_path: Path, changed: dict, found: bool) -> None:
    assert load_llm(folder(tmp_path, **changed)).top_p is found


@pytest.mark.parametrize("said", [{"top_p": 2}, {"top_p": "high"}, {"top_p": 0}])
def test_a_top_p_that_is_no_share_is_refused(tmp_path: Path, said: object) -> None:
    refuses(HardwareError, r'"top_p" in .*generation_config.json is .*: write a number above 0', load_llm,
            folder(tmp_path, said))  # fmt: skip
