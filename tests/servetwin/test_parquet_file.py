"""Result files are read without threads that outlive the reading."""

import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from servetwin.results.parquet_file import frame_of

READERS = {
    "a run": "from servetwin.compare.own_result import columns_of; columns_of(path)",
    "a sweep": "from servetwin.results.parquet_file import frame_of; frame_of(path)",
    "a story": "from servetwin.story.beside import first_tokens; list(first_tokens(path.parent))",
}
COUNTED = """
import os, sys
from pathlib import Path
import numpy, pandas, pyarrow.parquet
path = Path(sys.argv[1])
before = len(os.listdir("/proc/self/task"))
{read}
print(len(os.listdir("/proc/self/task")) - before)
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    names = ("arrival_ns", "prompt_tokens", "output_tokens", "request", "first_token_ns")
    path = tmp_path / "requests.parquet"
    pd.DataFrame(dict.fromkeys(names, range(50_000))).to_parquet(path)
    return path


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
@pytest.mark.parametrize("kind", READERS)
def test_reading_starts_no_threads(file: Path, kind: str) -> None:
    """One of pyarrow's that is late brings the process down when it ends: exit status 134."""
    words = [sys.executable, "-c", COUNTED.format(read=READERS[kind]), str(file)]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert (found.stdout.strip(), found.returncode) == ("0", 0), found.stderr


@pytest.mark.skipif(not Path("/proc/self/task").exists(), reason="threads are counted in /proc")
def test_pyarrow_by_itself_starts_some(file: Path) -> None:
    """Else the tests above could not fail."""
    words = [
        sys.executable,
        "-c",
        COUNTED.format(read="pyarrow.parquet.read_table(path.open('rb'))"),
        str(file),
    ]
    found = subprocess.run(words, capture_output=True, text=True, timeout=120)
    assert int(found.stdout) > 0


def test_a_frame_is_that_of_pandas(file: Path) -> None:
    pd.testing.assert_frame_equal(frame_of(file), pd.read_parquet(file))
