"""The files of a result folder, the same for simulated and real runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from experiments.report import write_report

if TYPE_CHECKING:
    import numpy as np


def write_results(
    folder: Path, summary: dict[str, Any], columns: dict[str, np.ndarray], config_yaml: str
) -> None:
    """summary.json, requests.parquet, config.yaml and report.html."""
    text = json.dumps(summary, indent=2, allow_nan=False, ensure_ascii=False)
    (folder / "summary.json").write_text(text + "\n", encoding="utf-8")
    write_config(folder, config_yaml)
    write_parquet(folder / "requests.parquet", columns)
    write_report(folder / "report.html", summary, columns, config_yaml, [])


def write_config(folder: Path, config_yaml: str) -> None:
    """config.yaml."""
    (folder / "config.yaml").write_text(config_yaml, encoding="utf-8")


def write_parquet(path: Path, columns: dict[str, np.ndarray]) -> None:
    """One row per finished request."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    with path.open("wb") as file:  # opened here, for pyarrow refuses a name that is not UTF-8
        pq.write_table(table, file)
