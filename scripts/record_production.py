"""Records a real run as production would: a Prometheus server scrapes its metrics, and answers are kept.

``python -m scripts.record_production tests/data/production`` needs the program prometheus (Debian's package
of that name) and takes five minutes. It writes the samples of docs/how-to/ADVISE.md: the answers of
/api/v1/query_range in ``prometheus.json`` and a table such as Grafana exports in ``grafana.csv``.
"""

import csv
import json
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final
from urllib.error import URLError
from urllib.parse import urlencode
from urllib.request import urlopen

METRICS_PORT: Final = 9127
SERVER: Final = "127.0.0.1:9128"
STEP_S: Final = 2.0
BUCKET_STEP_S: Final = 20.0
RUN: Final = (
    "system=blitzscale", "system/live=none", "system.instances.split=false",
    "system.instances.queue=per_instance", "workers=3", "trace=azure_conv_like", "trace.limit=null",
    "trace.rates=[2@30s,16@40s,3@60s]", "system/scaler=kpa", "system.scaler.target=2",
    "system.scaler.stable_s=10", "system.scaler.panic_s=4", f"metrics.port={METRICS_PORT}",
)  # fmt: skip
MAIN: Final = "from servetwin.cli.realexec import main\nif __name__ == '__main__': main()"
CONFIG: Final = f"""global: {{scrape_interval: 1s}}
scrape_configs:
  - job_name: llm
    static_configs: [{{targets: ["127.0.0.1:{METRICS_PORT}"]}}]
"""
SERIES: Final = (
    "vllm:num_requests_waiting", "vllm:num_requests_running", "vllm:kv_cache_usage_perc",
    "servetwin:arrived_total", "vllm:prompt_tokens_total", "vllm:generation_tokens_total",
    "vllm:request_success_total", "vllm:time_to_first_token_seconds_sum",
    "vllm:time_to_first_token_seconds_count", "vllm:inter_token_latency_seconds_sum",
    "vllm:inter_token_latency_seconds_count",
)  # fmt: skip
BUCKETS: Final = ("vllm:time_to_first_token_seconds_bucket", "vllm:inter_token_latency_seconds_bucket")
_TTFT: Final = "sum by (le) (rate(vllm:time_to_first_token_seconds_bucket[20s]))"
PANELS: Final = {
    "replicas": "count(vllm:num_requests_running)",
    "waiting": "sum(vllm:num_requests_waiting)",
    "running": "sum(vllm:num_requests_running)",
    "kv_use": "avg(vllm:kv_cache_usage_perc)",
    "requests_per_s": "sum(rate(servetwin:arrived_total[10s]))",
    "prompt_tokens_per_s": "sum(rate(vllm:prompt_tokens_total[10s]))",
    "output_tokens_per_s": "sum(rate(vllm:generation_tokens_total[10s]))",
    "ttft_p50_ms": f"1000 * histogram_quantile(0.5, {_TTFT})",
    "ttft_p99_ms": f"1000 * histogram_quantile(0.99, {_TTFT})",
    "tpot_mean_ms": "1000 * sum(rate(vllm:inter_token_latency_seconds_sum[20s])) "
    "/ sum(rate(vllm:inter_token_latency_seconds_count[20s]))",
}  # fmt: skip


def main(words: Sequence[str]) -> int:
    """Run, scrape, and write the files into the folder named."""
    program = shutil.which("prometheus")
    if len(words) != 1 or program is None:
        print(__doc__, file=sys.stderr)
        return 2
    folder = Path(words[0])
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch, _prometheus(program, Path(scratch)):
        run = [sys.executable, "-c", MAIN, "run", *RUN, f"out={scratch}/run"]
        subprocess.run(run, check=True)
        begun_s, ended_s = _span(time.time())
        _keep_answers(folder / "prometheus.json", begun_s, ended_s)
        _keep_table(folder / "grafana.csv", begun_s, ended_s)
    return 0


@contextmanager
def _prometheus(program: str, scratch: Path) -> Iterator[None]:
    """Scrape until the block ends."""
    (scratch / "prometheus.yml").write_text(CONFIG, encoding="utf-8")
    words = [program, f"--config.file={scratch}/prometheus.yml", f"--storage.tsdb.path={scratch}/data"]
    with subprocess.Popen([*words, f"--web.listen-address={SERVER}"], stderr=subprocess.DEVNULL) as server:
        try:
            for _ in range(100):
                try:
                    urlopen(f"http://{SERVER}/-/ready").close()
                    break
                except URLError:
                    time.sleep(0.1)
            yield
        finally:
            server.terminate()


def _ask(query: str, begun_s: float, ended_s: float, step_s: float) -> Any:
    asked = urlencode({"query": query, "start": begun_s, "end": ended_s, "step": step_s})
    with urlopen(f"http://{SERVER}/api/v1/query_range?{asked}") as answer:
        return json.load(answer)


def _span(now_s: float) -> tuple[float, float]:
    """When the run's metrics were there: from the first scrape that found them to the last."""
    answer = _ask("servetwin:arrived_total", now_s - 600, now_s, 1.0)
    times = [at_s for series in answer["data"]["result"] for at_s, _ in series["values"]]
    up = _ask("up", now_s - 600, now_s, 1.0)["data"]["result"][0]["values"]
    alive = [at_s for at_s, value in up if value == "1"]
    return round(max(min(times), min(alive))), round(max(alive))


def _keep_answers(path: Path, begun_s: float, ended_s: float) -> None:
    answers = [_ask(name, begun_s, ended_s, STEP_S) for name in SERIES]
    answers += [_ask(name, begun_s, ended_s, BUCKET_STEP_S) for name in BUCKETS]
    lines = ",\n".join(json.dumps(answer, separators=(",", ":")) for answer in answers)
    path.write_text(f"[{lines}]\n", encoding="utf-8")


def _keep_table(path: Path, begun_s: float, ended_s: float) -> None:
    columns = {name: _ask(query, begun_s, ended_s, STEP_S) for name, query in PANELS.items()}
    values = {
        name: dict(answer["data"]["result"][0]["values"]) if answer["data"]["result"] else {}
        for name, answer in columns.items()
    }
    times = sorted({at_s for of_name in values.values() for at_s in of_name})
    with path.open("w", encoding="utf-8", newline="") as file:
        rows = csv.writer(file, lineterminator="\n")
        rows.writerow(["Time", *PANELS])
        for at_s in times:
            clock = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at_s))
            rows.writerow([clock, *(_short(of_name.get(at_s, "")) for of_name in values.values())])


def _short(text: str) -> str:
    return f"{float(text):.5g}" if text not in ("", "NaN") else ""


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
