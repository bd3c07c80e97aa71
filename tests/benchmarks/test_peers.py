"""What other simulators are given and how their answers are read, against stand-ins that check words."""

import csv
import json
import os
import sys
from pathlib import Path
from textwrap import dedent

import numpy as np
import pytest

from benchmarks.peers import __main__ as peers
from benchmarks.peers import dynosim, ours, splitwise
from benchmarks.peers.dynosim import DynoSim
from benchmarks.peers.ours import Ours
from benchmarks.peers.runs import Command, Summary, ToolReport, ToolRun, run, summary
from benchmarks.peers.splitwise import SplitwiseSim
from benchmarks.peers.work import PeerWork
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import prepare
from serving.vocabulary.errors import UserError

TINY = ("system=vllm", "model=llama3_8b", "trace=azure_conv_like", "trace.requests=3", "cluster=a100_x8")


@pytest.fixture(scope="module")
def work() -> PeerWork:
    return PeerWork(prepare(load_config([*TINY, "out=unused"], "simulate")))


def written(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(dedent(text), encoding="utf-8")


class Fake:
    """A tool whose process is a line of Python."""

    name, version = "fake", "1"

    def __init__(self, line: str) -> None:
        self.line = line

    def command(self, out: Path) -> Command:
        return Command([sys.executable, "-c", self.line], out, os.environ)

    def report(self, out: Path) -> ToolReport:
        return ToolReport(*json.loads((out / "told.json").read_text()))


def test_ours_is_what_a_user_runs(work: PeerWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ours, "WORDS", TINY)
    done = run(Ours("interpreted"), tmp_path / "out")
    assert done.report.requests == 3 and 0 < done.report.ttft_s < done.report.e2e_s
    assert 0 < done.report.loop_cpu_s < done.process_cpu_s


def test_the_process_is_counted_whole_with_what_it_starts_and_waits_for(tmp_path: Path) -> None:
    burn = "sum(range(10_000_000))"
    line = (
        f"import json, subprocess, sys; subprocess.run([sys.executable, '-c', '{burn}']); "
        "json.dump([0.0, 1.0, 2.0, 3], open('told.json', 'w'))"
    )
    alone = run(Fake("import json; json.dump([0.0, 1.0, 2.0, 3], open('told.json', 'w'))"), tmp_path / "a")
    both = run(Fake(line), tmp_path / "b")
    assert both.report == alone.report == ToolReport(0.0, 1.0, 2.0, 3)
    assert both.process_cpu_s > alone.process_cpu_s > 0


def test_a_simulator_that_fails_is_told_with_its_last_line(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="fake ended with exit status 3: no such trace"):
        run(Fake("import sys; print('no such trace'); sys.exit(3)"), tmp_path / "out")


def test_the_least_of_each_number_counts_and_ours_is_the_measure() -> None:
    tool, told = Fake(""), ToolReport(2.0, 0.1, 3.0, 100)
    runs = [ToolRun(told, 9.0), ToolRun(ToolReport(1.0, 0.1, 3.0, 100), 9.5)]
    row = summary(tool, runs)
    assert (row.loop_cpu_s, row.process_cpu_s, row.requests_per_cpu_s) == (1.0, 9.0, 100)
    mine = Summary("ours", "0", 0.25, 3.0, told)
    line = peers.line(row, mine)
    assert line == "| fake | 1 | 1.000 | 9.00 | 100 | 4.00 | 3.00 | 0.100 | 3.000 |"
    assert line.count("|") == peers.HEAD.splitlines()[0].count("|") == peers.HEAD.splitlines()[1].count("|")


def test_tools_run_in_turn(tmp_path: Path) -> None:
    """Each writes its name behind the others': a, b, a, b."""
    note = tmp_path / "note"
    lines = [
        f"open({str(note)!r}, 'a').write('{name}'); open('told.json', 'w').write('[1, 1, 1, 1]')"
        for name in "ab"
    ]
    done = peers.in_turn([Fake(line) for line in lines], 2, tmp_path / "runs")
    assert note.read_text() == "abab" and [len(runs) for _, runs in done] == [2, 2]


def test_what_is_not_there_is_left_out_with_what_to_do(
    work: PeerWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(dynosim.VARIABLE, raising=False)
    monkeypatch.delenv(splitwise.VARIABLE, raising=False)
    tools, left_out = peers.installed_tools(work, tmp_path)
    assert {tool.name.split(",")[0] for tool in tools} == {"ServeTwin"}
    assert dict(left_out)["DynoSim"].startswith("SERVETWIN_DYNAMO_PYTHON names no")
    assert dict(left_out)["splitwise-sim"].startswith("SERVETWIN_SPLITWISE_SIM names no")
    monkeypatch.setenv(dynosim.VARIABLE, sys.executable)
    answer = dynosim.find(work, tmp_path)
    assert isinstance(answer, str) and "cannot import dynamo.replay: ModuleNotFoundError" in answer
    monkeypatch.setenv(dynosim.VARIABLE, str(tmp_path / "python"))
    monkeypatch.setenv(splitwise.VARIABLE, str(tmp_path))
    for find, variable in ((dynosim.find, dynosim.VARIABLE), (splitwise.find, splitwise.VARIABLE)):
        with pytest.raises(UserError, match=f"^{variable}={tmp_path}"):
            find(work, tmp_path)


DYNAMO = """
    import argparse, json
    from pathlib import Path

    def run_trace_replay(files, **given):
        (trace,) = files
        engine = json.loads(given["extra_engine_args"])
        assert Path(engine["planner_profile_data"]).is_file()
        assert (given["num_workers"], given["trace_block_size"]) == (8, 512)
        assert given["replay_mode"] == "offline" and given["trace_format"] == "mooncake"
        lines = [json.loads(line) for line in open(trace)]
        return {"wall_time_ms": 0.0, "mean_ttft_ms": 100.0, "mean_e2e_latency_ms": 3000.0,
                "completed_requests": len(lines)}

    def main(words):
        parser = argparse.ArgumentParser()
        for name in ("replay-mode", "router-mode", "trace-format", "report-json", "extra-engine-args"):
            parser.add_argument("--" + name)
        for name in ("num-workers", "trace-block-size"):
            parser.add_argument("--" + name, type=int)
        parser.add_argument("trace_files", nargs="*")
        given = vars(parser.parse_args(words))
        report = run_trace_replay(given.pop("trace_files"), **given)
        Path(given["report_json"]).write_text(json.dumps(report))
        return 0
"""


def test_dynosim_is_given_our_requests_and_step_times(
    work: PeerWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stand_in = tmp_path / "stand_in"
    written(stand_in, "dynamo/replay/__init__.py", "")
    written(stand_in, "dynamo/replay/main.py", DYNAMO)
    written(stand_in, "ai_dynamo-9.8.dist-info/METADATA", "Name: ai-dynamo\nVersion: 9.8\n")
    monkeypatch.setenv("PYTHONPATH", str(stand_in))
    monkeypatch.setenv(dynosim.VARIABLE, sys.executable)
    tool = dynosim.find(work, tmp_path)
    assert isinstance(tool, DynoSim) and tool.version == "9.8"
    done = run(tool, tmp_path / "out")
    assert done.report == ToolReport(0.0, 0.1, 3.0, 3), "no loop: the report has 0 of the call's time"
    lines = [json.loads(line) for line in tool.trace.read_text().splitlines()]
    assert [(line["input_length"], line["output_length"]) for line in lines] == [
        (prompt, output) for _, prompt, output in work.requests
    ]
    assert [line["timestamp"] for line in lines] == [arrival / 1e6 for arrival, _, _ in work.requests]
    hashes = [one for line in lines for one in line["hash_ids"]]
    assert len(set(hashes)) == len(hashes) == sum(-(-line["input_length"] // 512) for line in lines)


def test_the_tables_of_dynosim_hold_our_step_times(work: PeerWork, tmp_path: Path) -> None:
    dynosim.write_tables(work, tmp_path / "steps.npz")
    with np.load(tmp_path / "steps.npz") as tables:
        assert tables["prefill_isl"][-1] == work.max_num_batched_tokens
        assert tables["prefill_ttft_ms"][-1] == work.prefill_ms(work.max_num_batched_tokens)
        total, each = tables["decode_active_kv_tokens"], tables["decode_context_length"]
        assert tables["decode_itl"].shape == (len(total), len(each))
        assert tables["decode_itl"][50, 70] == work.decode_ms(total[50] / each[70], total[50])
        assert np.all(np.diff(tables["prefill_ttft_ms"]) > 0)
        assert np.all(np.diff(tables["decode_itl"][:, -1]) >= 0), "a longer context takes no less"


SPLITWISE = {
    "configs/config.yaml": """
        defaults:
          - cluster: half_half
          - performance_model: constant
          - applications: solo
          - trace: test_trace
          - start_state: orca
          - _self_
        seed: 0
        output_dir: results/${trace.filename}
        hydra:
          run:
            dir: ${output_dir}
          job:
            chdir: true
        """,
    "configs/cluster/half_half.yaml": """
        servers:
          - {sku: dgx-a100, count: 1}
          - {sku: dgx-h100, count: 1}
        """,
    "configs/performance_model/constant.yaml": "{}",
    "configs/performance_model/db.yaml": "db_path: data/perf_model.csv",
    "configs/applications/solo.yaml": """
        - application_id: 0
          model_architecture: bloom-176b
          model_size: bloom-176b-fp16
          scheduler: round_robin
        """,
    "configs/trace/test_trace.yaml": """
        dir: traces/
        filename: test_trace
        path: ${trace.dir}/${trace.filename}.csv
        """,
    "configs/start_state/orca.yaml": "state_type: orca",
    "configs/start_state/baseline.yaml": """
        state_type: baseline
        instance: {instance_type: Splitwise, max_batch_size: 512, max_batch_tokens: 2048}
        """,
    "router.py": "",
    "simulator.py": """
        class Simulator:
            def run(self):
                sum(range(100_000))

        class TraceSimulator(Simulator):
            def run(self):
                super().run()
                self.save()
        """,
    "run.py": """
        import csv, importlib, os
        import hydra
        from hydra.utils import get_original_cwd
        from simulator import TraceSimulator

        @hydra.main(config_path="configs", config_name="config", version_base=None)
        def run(cfg):
            importlib.import_module("router")  # as Hydra does with a _target_, now in another folder
            assert [server.count for server in cfg.cluster.servers] == [8, 0]
            (application,) = cfg.applications
            assert application.model_architecture == "llama2-70b" and application.scheduler == "token_jsq"
            assert application.model_size == "llama2-70b-fp16"
            assert cfg.start_state.state_type == "baseline"
            assert cfg.start_state.instance.max_batch_size == 256
            assert cfg.start_state.instance.max_batch_tokens == 2048
            with open(os.path.join(get_original_cwd(), cfg.performance_model.db_path)) as file:
                keys = {tuple(row.values())[:3] for row in csv.DictReader(file)}
            assert keys == {("llama2-70b", "a100-80gb", "8")}
            with open(os.path.join(get_original_cwd(), cfg.trace.path)) as file:
                count = len(list(csv.DictReader(file)))
            simulator = TraceSimulator()

            def save():
                os.makedirs("detailed")
                with open("detailed/0.csv", "w") as file:
                    file.write("request_ids,response_times,ttft_times\\n")
                    file.writelines(f"{number},{3 + number},{number}\\n" for number in range(count))

            simulator.save = save
            simulator.run()

        if __name__ == "__main__":
            run()
        """,
}


def test_splitwise_sim_is_started_with_overrides_that_hydra_takes(
    work: PeerWork, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The stand-in has the keys of its configs/; Hydra refuses a key that is not there."""
    for name, text in SPLITWISE.items():
        written(tmp_path / "checkout", name, text)
    monkeypatch.setenv(splitwise.VARIABLE, str(tmp_path / "checkout"))
    tool = splitwise.find(work, tmp_path)
    assert isinstance(tool, SplitwiseSim)
    done = run(tool, tmp_path / "out")
    assert (done.report.ttft_s, done.report.e2e_s, done.report.requests) == (1.0, 4.0, 3)
    assert 0 < done.report.loop_cpu_s < done.process_cpu_s
    assert not list((tmp_path / "checkout").glob("results")), "nothing is written into the checkout"
    with tool.trace.open(newline="") as file:
        rows = list(csv.DictReader(file))
    assert [(int(row["prompt_size"]), int(row["token_size"])) for row in rows] == [
        (prompt, output) for _, prompt, output in work.requests
    ]
    assert all(float(row["arrival_timestamp"]) > 0 and row["request_type"] == "2" for row in rows)
    with tool.table.open(newline="") as file:
        table = {int(row["prompt_size"]): row for row in csv.DictReader(file)}
    assert float(table[2048]["prompt_time"]) == work.prefill_ms(2048)
    assert float(table[1]["token_time"]) == work.decode_ms(1, work.mean_context)
