"""KV memory that vLLM logged, beside its own arithmetic here."""

import pytest

from benchmarks.kv_memory import Logged, logged_values

VALUES = {value.case: value for value in logged_values()}
# Its GPU keeps 0.35 GiB more outside PyTorch than an H100 or A100 with this version; why is not known.
FAR = "llama3_1_8b, 1 rtx4090, vLLM 0.19.0"


def test_there_are_enough_of_them() -> None:
    assert len(VALUES) > 12 and FAR in VALUES


@pytest.mark.parametrize(
    "value", [value for case, value in VALUES.items() if case != FAR], ids=lambda v: v.case
)
def test_an_error_of_at_most_three_percent(value: Logged) -> None:
    assert abs(value.error) <= 0.03


@pytest.mark.xfail(strict=True, reason="what an RTX 4090 keeps outside PyTorch with vLLM 0.19 is not known")
def test_the_rtx_4090_too() -> None:
    assert abs(VALUES[FAR].error) <= 0.03


@pytest.mark.parametrize("value", VALUES.values(), ids=lambda v: v.case)
def test_the_range_holds_what_was_logged(value: Logged) -> None:
    assert value.inside
