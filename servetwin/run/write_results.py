"""Writes the files of a result folder, the same for simulated and real runs."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from servetwin.report.report import write_report
from servetwin.results.journal_file import NAME as JOURNAL_NAME
from servetwin.results.stage_load import STAGE_LOAD_NAME
from servetwin.results.unserved import Unserved
from servetwin.results.use_over_time import USE_NAME
from traces.arrow import arrow_numbers, arrow_words
from traces.columns import Names, numbers

if TYPE_CHECKING:
    import numpy as np

    Columns = Mapping[str, np.ndarray | Names]


SERIES_NAME: Final = "series.parquet"
STAGES_NAME: Final = "stages.parquet"
UNSERVED_NAME: Final = "unserved.parquet"


def write_results(
    folder: Path,
    *,
    summary: dict[str, Any],
    columns: Columns,
    config_yaml: str,
    unserved: Unserved,
    stage_load: Columns | None = None,
    use: Columns | None = None,
) -> None:
    """Write summary.json, requests.parquet, config.yaml, report.html; unserved.parquet if there are any.

    ``stage_load``: the columns of stage_series.parquet. ``use``: the columns of use_series.parquet (GPUs,
    links and host memory over time). Both are also drawn on the page.
    """
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    write_config(folder, config_yaml)
    write_parquet(folder / "requests.parquet", columns)
    if len(unserved):
        write_parquet(folder / UNSERVED_NAME, unserved.columns())
    if stage_load is not None:
        write_parquet(folder / STAGE_LOAD_NAME, stage_load)
    if use is not None:
        write_parquet(folder / USE_NAME, use)
    journal = folder / JOURNAL_NAME
    page = folder / "report.html"
    write_report(
        page,
        summary=summary,
        columns=numbers(columns),
        config_yaml=config_yaml,
        notes=[],
        stage_load=stage_load,
        journal=journal,
        use=use,
    )


def write_config(folder: Path, config_yaml: str) -> None:
    """Write config.yaml."""
    (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")


def write_parquet(path: Path, columns: Columns) -> None:
    """Write columns as a Parquet file; names become an Arrow dictionary, which pandas reads as a category."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: _arrow(values) for name, values in columns.items()})
    with path.open("wb") as file:  # opened here because pyarrow refuses a name that is not UTF-8
        pq.write_table(table, file)
    pa.default_memory_pool().release_unused()  # a million encoded rows, 100 MB and more


def _arrow(values: np.ndarray | Names) -> Any:
    import numpy as np
    import pyarrow as pa

    if not isinstance(values, Names):
        return arrow_numbers(values)
    assert len(values) == 0 or values.codes.min() >= 0, "every row has a name"
    # Use the word type and code width of a pandas category, which earlier versions wrote.
    narrow = next(kind for kind in (np.int8, np.int16, np.int32) if len(values.words) < np.iinfo(kind).max)
    codes = arrow_numbers(values.codes.astype(narrow))
    return pa.DictionaryArray.from_arrays(codes, arrow_words(values.words, large=True))
