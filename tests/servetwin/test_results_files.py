"""requests.parquet: pyarrow and pandas read what was written, and nothing of pandas is needed to write it."""

import io
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from servetwin.run.write_results import write_parquet
from tests.worlds.loaded_modules import loaded_after
from traces.arrow import arrow_numbers, arrow_words, codes_of, numbers_of
from traces.columns import Names

COLUMNS = {
    "request": np.arange(5),
    "every_other": np.arange(10)[::2],
    "tpot_ms": np.array([1.5, np.nan, 3.25, -0.0, np.inf]),
}
WRITE = """
import numpy as np
from pathlib import Path
from servetwin.run.write_results import write_parquet
from traces.arrow import arrow_numbers, arrow_words, codes_of, numbers_of
from traces.columns import Names
write_parquet(Path({path!r}), {{"request": np.arange(3), "model": Names.of(["a", "b", "a"])}})
"""


def test_columns_are_the_bytes_that_arrow_makes_of_them(tmp_path: Path) -> None:
    expected = io.BytesIO()
    pq.write_table(pa.table({name: pa.array(values) for name, values in COLUMNS.items()}), expected)
    write_parquet(tmp_path / "requests.parquet", COLUMNS)
    assert (tmp_path / "requests.parquet").read_bytes() == expected.getvalue()


@pytest.mark.parametrize("count", [1, 126, 127, 32_767])
def test_names_are_the_bytes_of_a_category(tmp_path: Path, count: int) -> None:
    """As pandas 3 hands them over: large strings, words of several bytes too, and the narrowest codes."""
    words = tuple(f"m\N{MICRO SIGN}{number}" for number in range(count))
    codes = np.array([count - 1, 0, count // 2, 0], dtype=np.int32)
    codes_of = pa.array(pd.Categorical.from_codes(codes, list(words))).indices
    category = pa.DictionaryArray.from_arrays(codes_of, pa.array(words, pa.large_string()))
    expected = io.BytesIO()
    pq.write_table(pa.table({"model": category}), expected)
    write_parquet(tmp_path / "requests.parquet", {"model": Names(codes, words)})
    assert (tmp_path / "requests.parquet").read_bytes() == expected.getvalue()


def test_pandas_reads_values_types_and_names_back(tmp_path: Path) -> None:
    names = Names.of(["b", "a", "b", "b", "a"])
    write_parquet(tmp_path / "requests.parquet", COLUMNS | {"model": names})
    read = pd.read_parquet(tmp_path / "requests.parquet")
    assert list(read) == [*COLUMNS, "model"]
    for name, values in COLUMNS.items():
        assert read[name].dtype == values.dtype
        np.testing.assert_array_equal(read[name].to_numpy(), values)
    assert read["model"].dtype == "category" and read["model"].tolist() == names.tolist()


def test_a_run_without_finished_requests_has_empty_columns(tmp_path: Path) -> None:
    empty = {"request": np.empty(0, dtype=np.int64), "model": Names(np.empty(0, dtype=np.int32), ("a",))}
    write_parquet(tmp_path / "requests.parquet", empty)
    table = pq.read_table(tmp_path / "requests.parquet")
    assert table.num_rows == 0 and table.column_names == ["request", "model"]


def test_writing_needs_no_pandas(tmp_path: Path) -> None:
    assert "pandas" in sys.modules  # here; not there:
    loaded = loaded_after(WRITE.format(path=str(tmp_path / "requests.parquet")))
    assert "pyarrow" in loaded and "pandas" not in loaded


def test_numbers_come_back_from_chunks_slices_and_nothing() -> None:
    values = np.arange(10, dtype=np.int64)
    whole = arrow_numbers(values)
    for array in (whole, whole.slice(3, 4), pa.chunked_array([whole, whole.slice(0, 0), whole.slice(8)])):
        found = numbers_of(array)
        assert found.tolist() == array.to_pylist() and found.dtype == np.int64
    assert numbers_of(pa.chunked_array([], pa.int64())).dtype == np.int64
    gaps = arrow_numbers(values.astype(np.int32), values % 3 > 0)
    assert gaps.equals(pa.array(values.astype(np.int32), mask=values % 3 == 0)) and gaps.null_count == 4
    assert codes_of(gaps, -1).tolist() == [-1, 1, 2, -1, 4, 5, -1, 7, 8, -1]
    assert codes_of(gaps.slice(2, 3), -1).tolist() == [2, -1, 4] and codes_of(whole, -1).tolist() == [
        *range(10)
    ]
    assert arrow_words(["a", "", "\N{MICRO SIGN}"]).to_pylist() == ["a", "", "\N{MICRO SIGN}"]
