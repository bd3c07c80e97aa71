"""The gap histogram against every gap spelled out."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from servetwin.results.gap_sketch import GAPS_BUFFERED, GapSketch
from serving.vocabulary.units import FRACTION_BITS

runs = st.lists(
    st.tuples(
        st.integers(1, 6 * 10**18),
        st.integers(0, 10**15),
        st.integers(1, 60),
        st.integers(1, 5),
    ),
    min_size=1,
    max_size=12,
)


@given(runs=runs)
def test_max_exact_and_quantiles_within_a_bucket(runs: list[tuple[int, int, int, int]]) -> None:
    sketch = GapSketch()
    gaps: list[int] = []
    for first, slope, steps, sequences in runs:
        sketch.add(first, slope, steps, sequences)
        gaps += [first + slope * i for i in range(steps) for _ in range(sequences)]
    values = np.array(gaps, dtype=float) / (1 << FRACTION_BITS) / 1e6
    summary = sketch.summary_ms({"p50": 0.5, "p99": 0.99})
    np.testing.assert_allclose(summary["max"], values.max(), rtol=1e-12)
    for name, share in {"p50": 0.5, "p99": 0.99}.items():
        exact = np.quantile(values, share, method="lower")
        np.testing.assert_allclose(summary[name], exact, rtol=0.003, atol=1.1e-4)


@given(runs=runs, data=st.data())
def test_cutting_a_run_changes_no_bucket(runs: list[tuple[int, int, int, int]], data: st.DataObject) -> None:
    whole, cut = GapSketch(), GapSketch()
    for first, slope, steps, sequences in runs:
        whole.add(first, slope, steps, sequences)
        at = data.draw(st.integers(1, steps))
        cut.add(first, slope, at, sequences)
        if at < steps:
            cut.add(first + slope * at, slope, steps - at, sequences)
    quantiles = {f"q{i}": i / 20 for i in range(20)}
    assert whole.summary_ms(quantiles) == cut.summary_ms(quantiles)


def test_no_gaps_no_numbers() -> None:
    assert GapSketch().summary_ms({"p50": 0.5}) == {"p50": None, "max": None}


def test_settling_on_the_way_changes_nothing() -> None:
    sketch = GapSketch()
    for _ in range(60_000):
        sketch.add(20_000_000 << FRACTION_BITS, 0, 2, 3)
        if len(sketch.buffer) > GAPS_BUFFERED:
            sketch.settle()
            assert not sketch.buffer
    assert int(sketch._count().sum()) == 360_000
