"""docs/explanation/HOW_FAR_OFF.md: its loop over cluster sizes runs, and tells where the answer flips."""

import re
from pathlib import Path
from typing import Any

import pytest

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "explanation" / "HOW_FAR_OFF.md").read_text(
    encoding="utf-8"
)
MODEL = ("model=llama3_70b", "model.tp=4", "trace=azure_conv_like")
SMALL = (*MODEL, "trace.requests=150", "trace.rate_per_s=5.5")


def loop() -> Any:
    """``least_gpus`` of the page, which does not run by being read."""
    names: dict[str, Any] = {"__name__": "page"}
    (code,) = re.findall(r"```python\n(.*?)```", PAGE, re.DOTALL)
    exec(code, names)  # the page is ours
    return names["least_gpus"]


def test_the_loop_of_the_page_answers_for_both_ends(capsys: pytest.CaptureFixture[str]) -> None:
    found = loop()(range(4, 129, 4), *SMALL, "engine.step_time=roofline")
    assert None not in (found.low, found.mid, found.high)
    assert found.low <= found.mid <= found.high
    assert found.low < found.high and found.flips
    told = found.told("H100s needed")
    assert told.startswith(f"H100s needed: {found.mid}, ")
    assert told.endswith("the answer flips inside the range")
    lines = capsys.readouterr().out.splitlines()
    assert lines[0].startswith("4 GPUs: P99 ")
    assert len(lines) == found.high // 4


def test_a_size_that_nothing_reaches_is_none() -> None:
    found = loop()((4,), *MODEL, "trace.requests=60", "trace.rate_per_s=40")
    assert (found.mid, found.high) == (None, None)


def test_the_page_shows_what_the_loop_prints() -> None:
    """Its lines are of the recorded trace; their form is that of the code."""
    assert re.search(r"^    12 GPUs: P99 \d+ ms, range \d+ to \d+ ms$", PAGE, re.MULTILINE)
    assert re.search(
        r"^    H100s needed: \d+, but \d+ with all step times at their low end", PAGE, re.MULTILINE
    )
