"""``servetwin advise`` on the record of a real run, and on that of a simulated one whose scaler is known."""

import csv
import json
from html import escape
from pathlib import Path
from shlex import split
from typing import Any

import pytest

import servetwin as st
from servetwin.advising.advise_words import SCALERS, advise_words
from servetwin.advising.answer import answer as answer_of
from servetwin.advising.columns import columns_word
from servetwin.advising.read_record import read_record
from servetwin.advising.simulated import NUMBERS
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from servetwin.config.options import option_groups
from servetwin.config.policy.policy_class import attribute
from tests.worlds.production import ANSWERS, ITS_SCALER, ITS_SERVICE, TABLE, answer, record_of_run, write

ALONE = ("processes=1",)


def advised(capsys: pytest.CaptureFixture[str], *words: str, status: int = 0) -> dict[str, Any]:
    assert cli.run(["advise", *words, *ALONE, "--json"]) == status
    found: dict[str, Any] = json.loads(capsys.readouterr().out)
    return found


@pytest.mark.parametrize("log", [ANSWERS, TABLE], ids=["prometheus", "grafana"])
def test_the_scaler_of_the_recorded_run_is_advised_what_it_did(
    log: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Asked with what Prometheus scraped, it decides what it decided on its own, but for five looks."""
    found = advised(capsys, f"log={log}", *ITS_SCALER, *ITS_SERVICE, "simulate=false")
    kpa = found["scalers"]["kpa"]
    assert kpa["lacks"] == [] and kpa["decisions"] >= 60
    assert abs(kpa["advised_mean"] - found["recorded_mean"]) < 0.1
    assert found["recorded_mean"] > 1.4, "it scaled"
    assert len(kpa["changes"]) <= 6, "the others want what was there"


def test_another_target_is_advised_another_number(capsys: pytest.CaptureFixture[str]) -> None:
    words = (f"log={ANSWERS}", "system/scaler=kpa", *ITS_SERVICE, "simulate=false")
    wide, tight = (
        advised(capsys, *words, f"system.scaler.target={target}")["scalers"]["kpa"]["advised_mean"]
        for target in (16, 1)
    )
    assert wide == 1.0 < tight


def test_everything_is_written_and_both_modes_are_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "a"
    assert cli.run(["advise", f"log={ANSWERS}", *ITS_SERVICE, *ALONE, f"out={out}"]) == 0
    text = capsys.readouterr().out
    assert "advised: from the recorded instances" in text and "simulated: a run of its own" in text
    data = json.loads((out / "advise.json").read_text(encoding="utf-8"))
    assert set(data["scalers"]) == set(SCALERS)
    with (out / "advise.csv").open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 68 and rows[0]["time"].endswith("Z")
    assert float(rows[20]["recorded"]) == 3 and float(rows[-1]["recorded"]) == 1
    for name in SCALERS:
        assert f"simulated_{name}" in rows[0]
        assert (f"advised_{name}" in rows[0]) == (data["scalers"][name]["decisions"] > 0)
        arrived = data["scalers"][name]["simulated"]["requests"]["arrived"]
        assert abs(arrived - 863) < 120, "a Poisson draw of the 863 requests of the real run"
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == len(SCALERS) + 3 and "advised" in page
    assert "dynamo_throughput decides every 180 s" in text, "the record is shorter than its period"


def test_the_recorded_instances_are_simulated_beside_what_was_measured(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Twelve times 100 requests, of which 97 took at most 0.1 s and all at most 0.2 s: P99 is 0.1667 s."""
    rows = {"0.1": 97, "0.2": 100, "+Inf": 100}
    count = range(12)
    known: list[Any] = [
        answer("kube_deployment_status_replicas", ({}, [2.0] * 12)),
        *(answer(f"vllm:num_requests_{name}", ({"pod": "a"}, [1.0] * 12)) for name in ("waiting", "running")),
        answer("vllm:request_success_total", ({"pod": "a"}, [15.0 * at for at in count])),
        answer("vllm:prompt_tokens_total", ({"pod": "a"}, [1500.0 * at for at in count])),
        answer("vllm:generation_tokens_total", ({"pod": "a"}, [150.0 * at for at in count])),
        *(
            answer(
                "vllm:time_to_first_token_seconds_bucket",
                ({"pod": "a", "le": le}, [float(own * at) for at in count]),
            )
            for le, own in rows.items()
        ),
    ]
    log = write(tmp_path / "held.json", *known)
    found = advised(capsys, f"log={log}", "system/scaler=keda", *ITS_SERVICE)
    held = found["as_recorded"]
    assert found["measured"]["ttft_p99_ms"] == pytest.approx(166.67, abs=0.01)
    assert (held["instances"], held["serving"], held["mean"]) == (2, [[0.0, 2]], 2.0)
    assert held["requests"] == found["scalers"]["keda"]["simulated"]["requests"], "the same arrivals"
    told = "\n".join(found["assumed"])
    assert "2 instances throughout, the recorded number" in told and "served well: a TTFT of at most" in told
    assert cli.run(["advise", f"log={log}", "system/scaler=keda", *ITS_SERVICE, *ALONE]) == 0
    lines = capsys.readouterr().out.splitlines()
    rows_of = {
        name: line
        for line in lines
        for name in ("recorded ", "as recorded, simulated ")
        if line.strip().startswith(name)
    }
    assert rows_of["recorded "].endswith("167 ms")
    assert "100 %" in rows_of["as recorded, simulated "]


def test_the_command_of_a_row_gives_its_numbers(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "a"
    words = (f"log={ANSWERS}", *ITS_SERVICE, "system/scaler=tokenscale", "seed=3", f"out={out}")
    assert cli.run(["advise", *words, *ALONE]) == 0
    text = capsys.readouterr().out
    told = json.loads((out / "advise.json").read_text(encoding="utf-8"))
    rows = {"row": told["scalers"]["tokenscale"]["simulated"], "held": told["as_recorded"]}
    assert f"    {rows['row']['command']}\n" in text
    page = (out / "report.html").read_text(encoding="utf-8")
    for name, row in rows.items():
        program, command, *own = split(row["command"])
        assert (program, command) == ("servetwin", "simulate") and escape(row["command"]) in page
        assert cli.run([command, *own, f"out={tmp_path / name}"]) == 0
        summary = json.loads((tmp_path / name / "summary.json").read_text(encoding="utf-8"))
        assert {key: summary[key] for key in NUMBERS if key in row} == {
            key: row[key] for key in NUMBERS if key in row
        }


@pytest.mark.parametrize(
    ("prefix", "own", "engine", "said"),
    [
        ("vllm", (), "vllm_v1", "engine: engine=vllm_v1, as the record has metrics vllm:*"),
        ("sglang", (), "vllm_v1", "engine: engine=vllm_v1 engine.software=sglang, as the record has"),
        ("vllm", ("engine=blitz_native",), "blitz_native", ""),
        (
            "vllm",
            ("system=blitzscale", "system.instances.queue=common"),
            "blitz_native",
            "engine: the system's own, though",
        ),
    ],
)
def test_the_engine_is_that_of_the_recorded_metrics(
    prefix: str, own: tuple[str, ...], engine: str, said: str, tmp_path: Path
) -> None:
    waiting = "num_requests_waiting" if prefix == "vllm" else "num_queue_reqs"
    log = write(
        tmp_path / "log.json",
        answer(f"{prefix}:{waiting}", ({"pod": "a"}, [3.0] * 9)),
        answer("requests_per_s", ({}, [1.0] * 9)),
    )
    options = advise_words([f"log={log}", "system/scaler=hpa", "trace.lengths=64x8", *own, *ALONE])
    found = answer_of(options, tmp_path / "arrivals.csv")
    (one,) = found.scalers
    config = load_config([*one.words, "out=none"], "simulate")
    assert (config.engine.name, one.run is not None and one.run.refused) == (engine, "")
    assert config.engine.software == (
        "sglang" if prefix == "sglang" else {"vllm_v1": "vllm"}.get(engine, "blitzscale")
    )
    assert [line[: len(said)] for line in found.told if line.startswith("engine: ")] == (
        [said] if said else []
    )


def test_a_target_is_kedas_threshold_too_and_others_are_named() -> None:
    words = ["log=x.csv", "system/scaler=kpa,keda,wva_v1,chiron", "system.scaler.target=60"]
    options = advise_words(words)
    assert "system.scaler.target=60" in options.words_of("kpa")
    assert options.words_of("keda")[-1] == "system.scaler.threshold=60"
    assert options.told() == [
        "target: system.scaler.target=60 is also keda's threshold, as no system.scaler.threshold= was given; "
        "system.scaler.target=60 is no parameter of wva_v1 (write system.scaler.kv_threshold= or "
        "system.scaler.queue_threshold=), chiron"
    ]
    own = advise_words([*words, "system.scaler.threshold=8"])
    assert own.words_of("keda")[-1] == "system.scaler.threshold=8"
    assert "keda" not in own.told()[0]
    alone = advise_words(["log=x.csv", "system/scaler=keda", "system.scaler.target=60"])
    assert alone.words_of("keda")[-1] == "system.scaler.threshold=60"


def test_columns_of_a_dashboard_are_read_by_the_word_that_is_told(tmp_path: Path) -> None:
    log = tmp_path / "grafana.csv"
    rows = [f"{15 * at},2,{at},3,0,7" for at in range(9)]
    names = "time,replicas,vllm waiting,vllm running,error rate,pods ready or waiting"
    log.write_text("\n".join([names, *rows]), encoding="utf-8")
    (line,) = [line for line in read_record(log, {}).told if line.startswith("not read: ")]
    word = "columns='[waiting:vllm waiting,running:vllm running]'"
    assert line.endswith(f"; to read: {word}")
    (typed,) = split(word)
    found = read_record(log, advise_words([f"log={log}", typed]).renamed)
    assert list(found.columns["waiting"]) == list(range(9)) and found.columns["running"][0] == 3
    assert columns_word(["vllm waiting", "vllm running"], ["running"]) == "columns=waiting:'vllm waiting'"
    assert columns_word(["error rate", "up"], []) == ""


def test_without_a_folder_no_row_has_a_command(capsys: pytest.CaptureFixture[str]) -> None:
    words = (f"log={ANSWERS}", *ITS_SERVICE, "system/scaler=keda")
    assert advised(capsys, *words)["as_recorded"]["command"] is None
    assert cli.run(["advise", *words, *ALONE]) == 0
    assert "out=DIR keeps the arrivals" in capsys.readouterr().out


@pytest.mark.parametrize("scaler", ["kpa", "apa"])
def test_a_record_of_a_run_gives_the_run_again(
    scaler: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Pods that take 20 s, as Prometheus would have them: a new run has the same arrivals and instances."""
    service = (
        "model=llama3_8b",
        "cluster=blitz_a_2x8",
        "engine=blitz_native",
        "system.instances.start_total_s=20",
    )
    system = ("system=serverlessllm", "system.instances.split=false", "system.instances.queue=per_instance")
    load = (
        "trace=poisson",
        "trace.rates=[4@60s,30@90s,8@150s]",
        "trace.lengths=1024x128",
        "series.period_s=2",
    )
    words = (*system, *service, *load, f"system/scaler={scaler}")
    out = tmp_path / "run"
    assert cli.run(["simulate", *words, "uncertainty=off", f"out={out}"]) == 0
    arrived = json.loads((out / "summary.json").read_text(encoding="utf-8"))["requests"]["arrived"]
    log = record_of_run(out, tmp_path / "log.json")
    capsys.readouterr()
    found = advised(capsys, f"log={log}", *service, f"system/scaler={scaler}")
    own = found["scalers"][scaler]
    assert abs(own["simulated"]["requests"]["arrived"] / arrived - 1) < 0.03
    assert abs(own["simulated"]["mean"] / found["recorded_mean"] - 1) < 0.06
    assert max(count for _, count in own["simulated"]["serving"]) >= 4, "it scaled"
    assert any("no metric counts arrivals" in line for line in found["assumed"])


def test_a_scaler_that_needs_more_than_is_recorded_is_named(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = tmp_path / "few.csv"
    rows = [f"{15 * at},{2 + at % 2},{3 * at},0.{at % 9}" for at in range(40)]
    log.write_text("\n".join(["time,replicas,waiting,kv_use", *rows]), encoding="utf-8")
    found = advised(capsys, f"log={log}")
    lacks = {name: set(one["lacks"]) for name, one in found["scalers"].items()}
    assert lacks["hpa"] == lacks["wva_v1"] == set()
    assert lacks["kpa"] == lacks["keda"] == lacks["apa"] == {"running"}
    assert lacks["token_velocity"] == {"waiting and a mean prompt length"}
    assert lacks["dynamo_load"] >= {"ttft_mean_ms", "tpot_mean_ms"}
    assert lacks["tokenscale"] == lacks["dynamo_throughput"] >= {"requests_per_s"}
    assert not any("simulated" in one for one in found["scalers"].values())
    assert any("no requests_per_s" in line for line in found["assumed"])


def test_a_record_that_answers_nobody_has_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    log = write(tmp_path / "one.json", answer("kube_deployment_status_replicas", ({}, [1, 2, 2])))
    found = advised(capsys, f"log={log}", "system/scaler=hpa,wva_v1", status=1)
    assert [one["lacks"] for one in found["scalers"].values()] == [["waiting"], ["kv_use", "waiting"]]


def test_a_scaler_of_ones_own_is_asked_too(capsys: pytest.CaptureFixture[str]) -> None:
    own = "system/scaler=tests.servetwin.test_advise:Ages,tests.servetwin.test_advise:One"
    found = advised(capsys, f"log={ANSWERS}", own, "simulate=false", *ITS_SERVICE)
    ages, one = found["scalers"].values()
    assert len(ages["lacks"]) == 1 and ages["lacks"][0].startswith("the age of the queue")
    assert one["lacks"] == [] and one["decisions"] > 5
    assert one["advised_mean"] == pytest.approx(found["recorded_mean"], rel=0.01), "it keeps what is there"


class Ages:
    """A scaler that asks what no metric has."""

    reads_signals = True

    def scale(self, view: Any) -> tuple[Any, ...]:
        """See ``Scaler``."""
        assert view.signals is None or view.signals.oldest_wait_s >= 0
        return ()


class One:
    """A scaler that never decides anything."""

    reads_signals = True

    def scale(self, view: Any) -> tuple[Any, ...]:
        """See ``Scaler``."""
        return ()


def test_all_scalers_that_read_metrics_are_asked() -> None:
    reads = []
    for name in option_groups()["system/scaler"]:
        words = ["system=serverlessllm", "cluster=blitz_a_2x8", f"system/scaler={name}", "out=none"]
        words.append("system.instances.split=false")
        policy = load_config(words, "simulate").system.scaler.policy if name != "none" else ""
        if policy and getattr(attribute(name, policy), "reads_signals", False):
            reads.append(name)
    assert sorted(reads) == sorted(SCALERS)


def test_exact_books_are_in_no_record(capsys: pytest.CaptureFixture[str]) -> None:
    found = advised(
        capsys, f"log={ANSWERS}", "system/scaler=load_monitor", *ITS_SERVICE, "simulate=false", status=1
    )
    assert found["scalers"]["load_monitor"]["lacks"] == ["a controller's exact books, which no metric has"]


def test_python_has_the_same_answer() -> None:
    found = st.advise(ANSWERS, *ITS_SERVICE, system__scaler=["kpa", "wva_v1"], processes=1)
    assert list(found.table["recorded"])[:3] == [1, 1, 1]
    assert {"advised_kpa", "simulated_kpa", "advised_wva_v1", "simulated_wva_v1"} <= set(found.table.columns)
    assert found.lacks == {} and "2 of 2 scalers" in repr(found)


@pytest.mark.parametrize(
    ("words", "named"),
    [
        (("simulate=false",), "log= has no default"),
        (("log=none.json",), "log=none.json cannot be read"),
        ((f"log={TABLE}", "trace=azure_conv"), "trace= is the record's own"),
        ((f"log={TABLE}", "seed=1,2"), "seed has several values"),
        ((f"log={TABLE}", "system/scaler=hpa", "system.scaler.stable_s=3"), "parameter of none of hpa"),
        ((f"log={TABLE}", "system.instances.split=true"), "one number of instances"),
        ((f"log={TABLE}", "cluster=blitz_a_2x8", "system.instances.both_max=2"), "has up to 3 instances"),
        ((f"log={TABLE}", "columns=[wait:x]"), "is no OURS:THEIRS"),
        ((f"log={TABLE}", "columns=[waiting:x]"), "has no column x"),
        ((f"log={ANSWERS}", "columns=[waiting:x]"), "leave it out"),
        ((f"log={TABLE}", "prefix_hits=3"), "a share from 0 to 1"),
        ((f"log={TABLE}", "models=zipf"), "models= is of single runs"),
        ((f"log={TABLE}", "system=vllm"), "system/scaler"),
        (
            (f"log={TABLE}", "model=llama3_8b", "cluster=h100_x8"),
            "advise assumed system=serverlessllm, as no",
        ),
    ],
)
def test_unusable_words_are_a_sentence(
    words: tuple[str, ...], named: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert cli.run(["advise", *words, *ALONE]) == 2
    assert named in capsys.readouterr().err
