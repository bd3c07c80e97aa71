"""Steps between the points that the library is asked for, beside what it says; needs servetwin[silicon]."""

from itertools import product

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.models.parallelism import Parallelism
from hwmodels.step_times import aiconfigurator_library as library
from hwmodels.step_times.library_step import LibraryTerms, _model
from hwmodels.step_times.step_time import pieces_s

pytest.importorskip("aiconfigurator_core")
DECODES, PROMPTS = 0.02, 0.05


@pytest.fixture(scope="module", params=["llama3_1_8b", "qwen3_30b_a3b"])
def both(request: pytest.FixtureRequest) -> tuple[object, library.Operations]:
    """The model without what the library leaves out, and the library."""
    llm, parallelism = load_llm(request.param), Parallelism(2)
    (asked, *_) = library._ways("h100", llm, parallelism)
    terms = LibraryTerms(expert_layer_s=0.0, expert_layer_prompt_s=0.0)
    return _model("h100", llm, parallelism, terms), library.Operations(asked)


def test_steps_that_decode(both: tuple) -> None:  # type: ignore[type-arg]
    model, asked = both
    for sequences, context in product((1, 3, 37, 200), (50, 700, 3000, 20_000)):
        whole = asked.dense_s(sequences) + asked.head_s(sequences)
        told = pieces_s(model.decode_attention(sequences), sequences * context)
        assert told is not None
        own = model.dense_s(0, 0, sequences) + told
        assert own == pytest.approx(whole + asked.decode_s(sequences, context), rel=DECODES)


def test_steps_with_a_prompt(both: tuple) -> None:  # type: ignore[type-arg]
    model, asked = both
    for new, cached in product((7, 300, 1000, 5000), (0, 900, 11_000)):
        whole = asked.dense_s(new) + asked.head_s(1) + asked.prefill_s(new, cached)
        own = model.dense_s(new, 1, 0) + model.prefill_attention_s(new, cached)
        assert own == pytest.approx(whole, rel=PROMPTS)


def test_a_gpu_without_tables_is_refused_with_those_that_have_them() -> None:
    with pytest.raises(library.HardwareError, match=r"no tables for mi300x: write engine.step_time=roofline"):
        library.tables_stamp("mi300x")
