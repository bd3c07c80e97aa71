"""Records of a service for tests: the samples of a real run, and answers of Prometheus written by hand."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import pandas as pd

SAMPLES: Final = Path(__file__).resolve().parents[1] / "data" / "production"
ANSWERS, TABLE = SAMPLES / "prometheus.json", SAMPLES / "grafana.csv"
"""Of one real run of three CPU workers under the scaler below: ``scripts/record_production.py``."""
ITS_SCALER: Final = (
    "system/scaler=kpa", "system.scaler.target=2", "system.scaler.stable_s=10", "system.scaler.panic_s=4",
)  # fmt: skip
ITS_SERVICE: Final = ("model=tiny_llama", "cluster=local_3x1", "engine.kv_tokens=16384")


def answer(
    name: str,
    *series: tuple[Mapping[str, str], Sequence[float]],
    step_s: float = 15.0,
    start_s: float = 1.7e9,
) -> dict[str, Any]:
    """An answer of /api/v1/query_range; each series has a value every ``step_s`` (NaN: no sample)."""
    result: list[dict[str, Any]] = [
        {
            "metric": dict(labels, __name__=name),
            "values": [
                [start_s + step_s * at, f"{value:g}"] for at, value in enumerate(values) if value == value
            ],
        }
        for labels, values in series
    ]
    return {"status": "success", "data": {"resultType": "matrix", "result": result}}


def write(path: Path, *answers: Any) -> Path:
    """The file of several answers."""
    path.write_text(json.dumps(list(answers)), encoding="utf-8")
    return path


def record_of_run(folder: Path, path: Path, first: int = 1) -> Path:
    """What Prometheus would have of a simulated run: series of engines that serve, and its Deployment.

    ``first``: the instances at its start.
    """
    table = pd.read_parquet(folder / "series.parquet")
    summary = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    times = sorted(table["time_s"].unique())
    step_s = times[1] - times[0]
    serving, created = _instances(summary["scale_events"], times, first)
    deployment = {
        "kube_deployment_status_replicas": [float(count) for count in created],
        "kube_deployment_status_replicas_ready": [float(len(there)) for there in serving],
    }
    answers = [answer(name, ({}, values), step_s=step_s) for name, values in deployment.items()]
    for name in [name for name in table.columns if name.startswith("vllm:")]:
        of_engine = table.pivot_table(index="time_s", columns="engine", values=name)
        series = []
        for number in of_engine.columns:
            values = of_engine[number].astype(float).tolist()
            if not name.endswith("_total"):
                values = [
                    value if number in there else float("nan")
                    for value, there in zip(values, serving, strict=True)
                ]
            series.append(({"engine": str(number)}, values))
        answers.append(answer(name, *series, step_s=step_s))
    return write(path, *answers)


def _instances(
    events: Sequence[Mapping[str, Any]], times: Sequence[float], first: int
) -> tuple[list[set[int]], list[int]]:
    """Which instances serve at each time, and how many serve or start."""
    serving, created = [], []
    for at_s in times:
        there, known = set(range(first)), set(range(first))
        for event in events:
            if event["t_s"] <= at_s and event["act"] == "load":
                known.add(event["replica"])
            elif event["t_s"] <= at_s and event["act"] == "ready":
                there.add(event["replica"])
            elif event["t_s"] <= at_s and event["act"] == "drain":
                there.discard(event["replica"])
                known.discard(event["replica"])
        serving.append(there)
        created.append(len(known))
    return serving, created
