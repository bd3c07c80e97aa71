"""The library's times as a step model: with what it leaves out, and the errors that measured runs show."""

import dataclasses
from collections.abc import Iterator

import pytest

from hwmodels.catalogue import load_gpu, load_llm
from hwmodels.models.parallelism import Parallelism
from hwmodels.profiles.profile import Profile
from hwmodels.step_times import library_step
from hwmodels.step_times.library_step import LibraryTerms, library_model
from hwmodels.step_times.select import step_model
from servetwin.assemble import hardware, library_tables
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import evaluated
from tests.worlds.profile_tables import large_profile

TERMS = LibraryTerms(
    query_norm_s=1e-3,
    expert_layer_prompt_s=5e-3,
    prompts=(0.5, 2.0),
    decodes=(0.8, 1.5),
    expert_decodes=(0.9, 1.2),
)
NOTHING = LibraryTerms(query_norm_s=0.0, expert_layer_prompt_s=0.0)
STAMP = "aiconfigurator-core 0.12.0, made up"


@pytest.fixture(autouse=True)
def library(monkeypatch: pytest.MonkeyPatch) -> Iterator[list[str]]:
    """The library knows one profile, and who asked for it; nothing of it needs to be installed."""
    asked: list[str] = []

    def asked_profile(gpu: str, llm: object, parallelism: object) -> Profile:
        asked.append(gpu)
        return large_profile()

    monkeypatch.setattr(library_step, "asked_profile", asked_profile)
    for module in (hardware, library_tables):
        monkeypatch.setattr(module, "tables_stamp", lambda gpu: STAMP)
    library_step._model.cache_clear()
    yield asked
    library_step._model.cache_clear()


def of(llm: str, terms: LibraryTerms, monkeypatch: pytest.MonkeyPatch) -> library_step.OpTableStepModel:
    monkeypatch.setattr(library_step, "TERMS", terms)
    return library_model("h100", load_llm(llm), Parallelism(1))


def test_each_layer_with_experts_takes_more_and_prompts_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    layers = load_llm("qwen3_30b_a3b").moe_layers
    plain, whole = (of("qwen3_30b_a3b", terms, monkeypatch) for terms in (NOTHING, TERMS))
    for tokens in (1, 8, 16):
        assert whole.dense_s(0, 0, tokens) - plain.dense_s(0, 0, tokens) == pytest.approx(layers * 1e-3)
    more = whole.prefill_attention_s(64, 0) - plain.prefill_attention_s(64, 0)
    assert more == pytest.approx(layers * 5e-3, rel=1e-6)
    assert whole.decode_attention(2) == plain.decode_attention(2), "launches are outside CUDA graphs only"


def test_a_model_without_experts_lacks_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plain, whole = (of("llama3_8b", terms, monkeypatch) for terms in (NOTHING, TERMS))
    assert whole.dense_s(16, 1, 2) == plain.dense_s(16, 1, 2)
    assert whole.prefill_attention_s(32, 0) == plain.prefill_attention_s(32, 0)


@pytest.mark.parametrize(("llm", "decodes"), [("llama3_8b", (0.8, 1.5)), ("qwen3_30b_a3b", (0.9, 1.2))])
def test_errors_are_those_of_the_kind_of_model(
    llm: str, decodes: tuple[float, float], monkeypatch: pytest.MonkeyPatch
) -> None:
    errors = of(llm, TERMS, monkeypatch).errors
    assert (errors.decode.low, errors.decode.high) == decodes
    assert (errors.prefill.low, errors.prefill.high) == (errors.mixed.low, errors.mixed.high) == (0.5, 2.0)
    assert {errors.prefill.how, errors.decode.how} == {"measured runs"}


def test_one_combination_is_asked_and_compiled_once(
    library: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plan of many sizes, a sweep and rows of one server share it; other constants do not."""
    first = of("llama3_8b", TERMS, monkeypatch)
    assert step_model("aiconfigurator", load_gpu("h100"), load_llm("llama3_8b"), tp=1) is first
    assert library == ["h100"]
    assert of("llama3_8b", dataclasses.replace(TERMS, prompts=(0.4, 2.0)), monkeypatch) is not first


WORDS = (
    "model=llama3_8b", "cluster=h100_x1", "engine.step_time=aiconfigurator", "trace=poisson",
    "trace.requests=40", "trace.rate_per_s=1", "trace.lengths=64x32", "engine.max_num_seqs=8",
    "engine.max_num_batched_tokens=64", "engine.max_model_len=128", "engine.prefix_caching=false", "out=none",
)  # fmt: skip


def test_a_run_has_the_range_that_measured_runs_show(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not the 4 and 6 % of tables that nobody judged. The overhead is inside, as it was in the runs."""
    monkeypatch.setattr(library_step, "TERMS", TERMS)
    found = evaluated(load_config([*WORDS], "simulate"))
    low, high = found["range"]["tpot_ms.mean"]
    middle = found["tpot_ms"]["mean"]
    assert low / middle == pytest.approx(0.8, rel=0.05)
    assert high / middle == pytest.approx(1.5, rel=0.05)
    assert "step times x0.50 to x2.00 (prefill, decode, mixed measured runs" in found["range_in_short"]
    assert "engine overhead judged with the steps" in found["range_in_short"]


def test_a_declared_overhead_is_not_judged_by_those_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(library_step, "TERMS", TERMS)
    found = evaluated(load_config([*WORDS, "engine.overhead.step_s=0.002"], "simulate"))
    assert "engine overhead judged with the steps" not in found["range_in_short"]
    assert "measured runs" in found["range_in_short"]
