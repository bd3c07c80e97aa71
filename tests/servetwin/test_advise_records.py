"""What is read from a record: which metric is which column, how instances make one, what is refused."""

from pathlib import Path

import numpy as np
import pytest

from servetwin.advising.columns import COLUMNS, column_of
from servetwin.advising.metric_names import METRICS
from servetwin.advising.read_record import read_record
from servetwin.advising.record import Record
from servetwin.advising.time_series import quantile
from serving.vocabulary.errors import UserError
from tests.worlds.production import ANSWERS, TABLE, answer, write
from tests.worlds.refusals import refuses
from traces.errors import TraceError

NAN = float("nan")
A, B = {"pod": "a"}, {"pod": "b"}
_HALF = '{"status": "success", "data": {"resultType": "matrix", "result": [{"metric": {}}]}}'


def read(tmp_path: Path, *answers: object) -> Record:
    return read_record(write(tmp_path / "log.json", *answers), {})


def of_table(tmp_path: Path, text: str, **renamed: str) -> Record:
    (tmp_path / "log.csv").write_text(text, encoding="utf-8")
    return read_record(tmp_path / "log.csv", renamed)


def test_both_samples_are_the_same_run() -> None:
    series, table = read_record(ANSWERS, {}), read_record(TABLE, {})
    assert (series.at_s == table.at_s).all()
    for name in ("replicas", "waiting", "running"):
        assert (series.columns[name] == table.columns[name]).all(), name
    for name in ("requests_per_s", "prompt_tokens_per_s", "output_tokens_per_s"):
        assert series.mean(name) == pytest.approx(table.mean(name), rel=0.05), name
    assert np.nanmax(series.columns["ttft_p99_ms"]) == pytest.approx(
        np.nanmax(table.columns["ttft_p99_ms"]), rel=0.2
    )
    assert series.of_instances["running"].shape == (3, 68) and not table.of_instances


def test_levels_are_added_and_shares_averaged_over_instances_that_are_there(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer("vllm:num_requests_waiting", (A, [1, 2, 3, 4]), (B, [NAN, 10, 20, NAN])),
        answer("vllm:kv_cache_usage_perc", (A, [0.2, 0.2, 0.4, 0.4]), (B, [NAN, 0.6, 0.8, NAN])),
    )
    assert found.columns["waiting"].tolist() == [1, 12, 23, 4]
    assert found.columns["kv_use"].tolist() == pytest.approx([0.2, 0.4, 0.6, 0.4])
    assert found.columns["replicas"].tolist() == [1, 2, 2, 1]
    assert any("instances that report" in line for line in found.told)


def test_counters_of_instances_begin_again_and_are_added(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer("kube_deployment_status_replicas", ({}, [2, 2, 2, 2])),
        answer("servetwin:arrived_total", (A, [100, 130, 15, 30]), (B, [0, 15, 30, 45])),
    )
    # 30 + 15, then a restart: 15 + 15, then 15 + 15 in 15 s each.
    assert found.columns["requests_per_s"].tolist() == pytest.approx([3, 3, 2, 2])


def test_arrivals_are_what_finished_and_what_more_is_inside(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer("vllm:num_requests_waiting", (A, [0, 30, 30, 0])),
        answer("vllm:num_requests_running", (A, [0, 15, 15, 0])),
        answer("vllm:request_success_total", (A, [0, 0, 15, 75])),
    )
    assert found.columns["requests_per_s"].tolist() == pytest.approx([3, 3, 1, 1])
    assert found.columns["finished_per_s"].tolist() == pytest.approx([0, 0, 1, 4])


def test_sglang_and_a_deployment_that_starts(tmp_path: Path) -> None:
    found = read(
        tmp_path,
        answer("kube_deployment_status_replicas", ({"deployment": "d"}, [1, 3, 3])),
        answer("kube_deployment_status_replicas_ready", ({"deployment": "d"}, [1, 1, 3])),
        answer("sglang:num_queue_reqs", (A, [5, 6, 7])),
        answer("sglang:token_usage", (A, [0.1, 0.2, 0.3])),
        answer("sglang:cache_hit_rate", (A, [0.5, 0.5, 0.5])),
        answer("sglang:num_used_tokens", (A, [1, 2, 3])),
    )
    assert found.columns["replicas"].tolist() == [1, 3, 3]
    assert found.serving.tolist() == [1, 1, 3]
    assert found.mean("prefix_hit_share") == 0.5 and found.mean("waiting") == 6
    assert "not read: sglang:num_used_tokens" in found.told


@pytest.mark.parametrize("mine_first", [True, False])
def test_replicas_of_other_deployments_are_refused(tmp_path: Path, mine_first: bool) -> None:
    """kube-state-metrics tells those of the whole cluster: neither added nor the first one taken."""
    mine, others = ({"deployment": "vllm", "namespace": "llm"}, [4, 4]), ({"deployment": "grafana"}, [1, 1])
    series = (mine, others) if mine_first else (others, mine)
    with pytest.raises(UserError, match="has replicas of 2 deployments") as refused:
        read(
            tmp_path,
            answer("kube_deployment_status_replicas", *series),
            answer("sglang:token_usage", (A, [1, 1])),
        )
    first = 'deployment="vllm",namespace="llm"' if mine_first else 'deployment="grafana"'
    assert f"{{{first}}} in the query of kube_deployment_status_replicas" in str(refused.value)


def test_a_histogram_gives_means_and_prometheus_own_quantiles(tmp_path: Path) -> None:
    name, buckets = "vllm:time_to_first_token_seconds", {"0.1": 10, "0.5": 60, "+Inf": 80}
    found = read(
        tmp_path,
        answer("kube_deployment_status_replicas", ({}, [1, 1, 1])),
        *(answer(f"{name}_bucket", ({"le": le}, [0, count, 2 * count])) for le, count in buckets.items()),
        answer(f"{name}_sum", ({}, [0, 40, 80])),
        answer(f"{name}_count", ({}, [0, 80, 160])),
    )
    assert found.columns["ttft_mean_ms"].tolist()[1:] == [500, 500]
    # Half of 80 is the 30th of the 50 between 0.1 and 0.5 s; the highest share is at the last finite limit.
    assert found.columns["ttft_p50_ms"].tolist()[1:] == pytest.approx([340, 340])
    assert found.columns["ttft_p99_ms"].tolist()[1:] == [500, 500]
    assert np.isnan(found.columns["ttft_mean_ms"][0]), "nothing was measured yet"


def test_quantiles_of_many_equal_buckets_are_those_of_the_values() -> None:
    values = np.sort(np.random.default_rng(0).uniform(0, 1, 4000))
    limits = np.append(np.linspace(0.01, 1, 100), np.inf)
    counts = np.array([[float((values <= limit).sum())] for limit in limits])
    for share in (0.5, 0.9, 0.99):
        assert quantile(share, limits, counts)[0] == pytest.approx(np.quantile(values, share), abs=0.01)


def test_answers_have_names_of_columns_or_of_metrics(tmp_path: Path) -> None:
    import json

    panel = answer("x", ({}, [1, 2, 3]))
    del panel["data"]["result"][0]["metric"]["__name__"]
    named = {"replicas": panel, "Requests/s": panel, "vllm:num_requests_waiting": panel}
    (tmp_path / "log.json").write_text(json.dumps(named), encoding="utf-8")
    found = read_record(tmp_path / "log.json", {})
    assert {name: values.tolist() for name, values in found.columns.items()} == {
        "replicas": [1, 2, 3], "requests_per_s": [1, 2, 3], "waiting": [1, 2, 3],
    }  # fmt: skip


def test_grafanas_table_with_legends_units_and_dates(tmp_path: Path) -> None:
    found = of_table(
        tmp_path,
        'sep=,\n"Time","vllm:num_requests_running{instance=""a:1"", job=""x""}",'
        '"vllm:num_requests_running{instance=""b:1"", job=""x""}","KV cache %","TTFT p99 (s)",Pods,Colour\n'
        "2026-03-02 09:00:00,1,2,50,0.5,2,red\n2026-03-02 09:00:15,3,,60,,2,blue\n",
    )
    assert found.since_s.tolist() == [0, 15] and found.at_s[0] == 1772442000
    assert found.columns["running"].tolist() == [3, 3]
    assert found.columns["kv_use"].tolist() == [0.5, 0.6]
    assert found.columns["ttft_p99_ms"].tolist()[0] == 500
    assert found.columns["replicas"].tolist() == [2, 2]
    assert "not read: Colour" in found.told


def test_columns_may_be_renamed(tmp_path: Path) -> None:
    found = of_table(tmp_path, "t,Count,Backlog\n0,1,4\n15,1,5\n", Count="replicas", Backlog="waiting")
    assert found.columns["waiting"].tolist() == [4, 5]


def test_every_name_is_of_a_known_column() -> None:
    known = {*COLUMNS, "ttft", "tpot", "prefix_found_per_s", "prefix_looked_up_per_s"}
    assert {metric.column for metric in METRICS.values()} <= known
    assert all(column_of(name) == (name, 1.0) for name in COLUMNS)
    assert column_of("itl_mean_s") == ("tpot_mean_ms", 1000.0)
    assert column_of("waiting %") is None and column_of("cpu") is None


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("", "is empty"),
        ("{", "is no JSON"),
        ('{"a": 1}', "holds no answers of Prometheus"),
        ('{"status": "error", "error": "parse"}', r"is an error of Prometheus \(parse\)"),
        ('{"status": "success", "data": {"resultType": "vector", "result": []}}', "must be a matrix"),
        (f"[{_HALF}]", "answer #1, result 0"),
        ('{"status": "success", "data": {"resultType": "matrix", "result": []}}', "has no series"),
        ("time,replicas\n0,1\n", "fewer than two rows"),
        ("time,replicas\n0,1\n15,many\n", "line 3, column replicas: 'many' is no number"),
        ("time,replicas\n0,1\n15\n", "line 3: 1 cells"),
        ("time,replicas\n15,1\n0,1\n", "line 3, column time: the time is not later"),
        ("when,replicas\n0,1\n15,1\n", "no column of times"),
        ("time,replicas,kv_use\n0,1,40\n15,1,50\n", "kv_use has 50, and is a share"),
        ("time,replicas,waiting\n0,1,-1\n15,1,0\n", "waiting has -1"),
        ("time,waiting\n0,1\n15,1\n", "no number of instances"),
        ("time,a,b\n0,1,1\n15,1,1\n", "no metric that is known"),
    ],
)  # fmt: skip
def test_what_is_no_record_is_a_sentence_that_names_the_place(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "log").write_text(text, encoding="utf-8")
    with pytest.raises((UserError, TraceError), match=named) as caught:
        read_record(tmp_path / "log", {})
    assert "\n" not in str(caught.value) and str(tmp_path / "log") in str(caught.value)


def test_series_of_two_models_are_refused(tmp_path: Path) -> None:
    both = [({"pod": name, "model_name": name}, [1, 1]) for name in "ab"]
    path = write(tmp_path / "log.json", answer("vllm:num_requests_waiting", *both))
    refuses(UserError, "series of the models a, b", read_record, path, {})


def test_two_series_of_one_panel_are_refused(tmp_path: Path) -> None:
    path = write(tmp_path / "log.json", answer("replicas", ({}, [1, 1]), (A, [1, 1])))
    refuses(UserError, r"write sum\(...\)", read_record, path, {})
