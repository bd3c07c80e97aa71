"""The example of docs/papers/QUART.md prints what the page says; its tables have the code's numbers."""

import contextlib
import io
import re
from pathlib import Path

from policies.quart.cpu import MOST_CORES, PAPER_POINTS, fitted
from policies.quart.quart import KEY_FOR_S
from policies.quart.settings import REFERENCE, RELEASED, SMOOTHER_DEFAULTS, PlacementSettings

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "papers" / "QUART.md").read_text(encoding="utf-8")


def test_the_example_prints_what_the_page_says() -> None:
    code = PAGE.split("```python\n")[1].split("```")[0]
    said = PAGE.split("```\n")[1].split("##")[0].strip("\n").splitlines()
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        exec(compile(code, "QUART.md", "exec"), {"__name__": "example"})
    assert [f"    {line}" for line in printed.getvalue().splitlines()] == said


def test_the_defaults_of_the_page_are_those_of_the_code() -> None:
    rows = {
        cells[1]: cells[2:4]
        for line in PAGE.split("## Defaults")[1].splitlines()
        if len(cells := [cell.strip() for cell in line.split("|")]) == 5
    }
    for column, settings in enumerate((REFERENCE, RELEASED)):
        gains = settings.gains
        numbers = (gains.proportional, gains.integral_per_s, gains.derivative_s)
        assert numbers == tuple(
            float(one) for one in re.findall(r"[\d.]+\d|\d", rows["Kp, Ki, Kd"][column])[:3]
        )
        period = rows["period, cool-down of a stage"][column]
        assert f"{settings.period_s:g} s" in period
        assert (f"{settings.cool_down_s:g} s" in period) == bool(settings.cool_down_s)
        assert [*SMOOTHER_DEFAULTS.values()][column].hold_s == float(rows["`hold_s`"][column])
        assert rows["most cores of a replica"][column] == str(MOST_CORES)
        spread = PlacementSettings()
        assert rows["KL: rate, steps"][column] == f"{spread.rate}, {spread.steps}"
    for column, settings in enumerate((REFERENCE, RELEASED)):
        assert rows["key stage (`key_rule`)"][column].startswith(f"`{settings.key_rule}`")
    assert f"{RELEASED.target_s} s" in rows["target of a stage"][1]
    assert f"is a key stage for {KEY_FOR_S:.0f} s" in PAGE


def test_the_line_of_cores_is_that_of_the_page() -> None:
    line = fitted(PAPER_POINTS)
    assert f"`{line.fixed:.2f} + {line.per_core:.2f} / c`" in PAGE
