"""Measured tables and documents: how much of one is read, and what is refused before memory is spent."""

import tracemalloc
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hwmodels.errors import HardwareError
from hwmodels.importers import tables
from hwmodels.importers.tables import read_table
from hwmodels.models.hf_config import llm_shape_from_config
from hwmodels.profiles.profile_file import load_profile


@pytest.fixture
def little_memory() -> Iterator[None]:
    """Fails a test that holds more than a small table needs."""
    tracemalloc.start()
    yield
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak_bytes < 32 << 20


def written(path: Path, rows: int, word: str) -> Path:
    """Some kB, whatever the rows are."""
    columns = {"n": np.ones(rows, np.int64), "latency": np.ones(rows), "device": pa.array([word] * rows)}
    pq.write_table(pa.table(columns), path, compression="zstd")
    return path


def test_a_table_of_any_kind_is_read(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", 3, "NVIDIA A100")
    table = read_table(path, ("n",), times=("latency",), words=("device",))
    assert table.words["device"].tolist() == ["NVIDIA A100"] * 3
    assert (len(table), table.counts["n"].tolist()) == (3, [1, 1, 1])


@pytest.mark.usefixtures("little_memory")
def test_rows_are_counted_before_they_are_read(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", tables.MOST_ROWS + 1, "x")
    assert path.stat().st_size < 300_000
    with pytest.raises(HardwareError, match=r"t.parquet has 1000001 rows; write at most 1000000"):
        read_table(path, ("n",), times=("latency",), words=("device",))
    path = tmp_path / "t.csv"
    path.write_text("n,latency\n" + "1\n" * (tables.MOST_ROWS + 1))
    with pytest.raises(HardwareError, match=r"t.csv has 1000002 rows; write at most"):
        read_table(path, ("n",), times=("latency",))


@pytest.mark.usefixtures("little_memory")
def test_a_long_word_is_not_repeated_in_every_row(tmp_path: Path) -> None:
    path = written(tmp_path / "t.parquet", 20_000, "x" * 20_000)
    assert path.stat().st_size < 100_000
    with pytest.raises(HardwareError, match=r"device has a word of 20000 characters; write at most 100"):
        read_table(path, ("n",), times=("latency",), words=("device",))


@pytest.mark.parametrize("text", ["n," * 500_000, "n,latency\n1,2\n" + "1," * 500_000])
@pytest.mark.usefixtures("little_memory")
def test_one_line_of_a_million_cells_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "t.csv"
    path.write_text(text)
    with pytest.raises(HardwareError, match=r"t.csv has a line of over 65536 bytes"):
        read_table(path, ("n",), times=("latency",))


@pytest.mark.usefixtures("little_memory")
def test_a_file_of_a_terabyte_is_refused_by_its_size(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    with path.open("wb") as file:
        file.truncate(1 << 40)
    said = r"t.json has 1099511627776 bytes and the limit is \d+; name another file"
    for read in (llm_shape_from_config, load_profile, tables.read_bytes):
        with pytest.raises(HardwareError, match=said):
            read(path)
