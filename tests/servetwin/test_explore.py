"""servetwin explore: controls become words of a run; the server answers its own page alone."""

import http.client
import json
import os
import re
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlencode

import pytest

from scripts import browser
from servetwin.cli import main as cli
from servetwin.explore import runs as explored_runs
from servetwin.explore.controls import controls, state_of
from servetwin.explore.runs import Ended, Runs
from servetwin.explore.server import Explorer, Server
from servetwin.explore.view import cost, mean_gpus, sentence
from servetwin.report.number_text import NOTHING
from serving.vocabulary.errors import UserError

SMALL = {"requests": "40", "gpus": "2"}


def words(**given: str) -> list[str]:
    return state_of(given).words()


def test_a_state_is_the_words_of_a_run() -> None:
    assert words() == [
        "model=llama3_8b", "trace=azure_conv_like", "trace.rate_per_s=20", "trace.requests=1000",
        "system=vllm", "slo.ttft_ms=450", "slo.tpot_ms=150", "cluster=h100_x8", "model.tp=1",
    ]  # fmt: skip
    scaled = words(gpu="blitz_b", gpus="16", system="blitzscale", scaler="hpa", start="cold", lengths="9x8")
    assert scaled[1:] == [
        "trace=azure_conv_like", "trace.rate_per_s=20", "trace.lengths=9x8", "trace.requests=1000",
        "system=blitzscale", "system/scaler=hpa", "system.instances.start=cold", "slo.ttft_ms=450",
        "slo.tpot_ms=150", "cluster=blitz_b_2x8", "model.tp=1",
    ]  # fmt: skip


def test_an_autoscaler_of_a_static_system_loads_from_its_hosts(server: Server) -> None:
    """vLLM with an HPA on a cluster with links, whose pods take a minute to serve."""
    given = {
        "system": "vllm",
        "scaler": "hpa",
        "gpu": "dgx_h100",
        "gpus": "8",
        "ready": "60",
        "requests": "40",
    }
    assert "system/provision=host_or_ssd" in words(**given) and "system/cache=ttl" in words(**given)
    assert "system/provision=host_or_ssd" not in words(**{**given, "system": "serverlessllm"})
    assert "system/provision=host_or_ssd" not in words(**{**given, "scaler": ""})
    answer = json.loads(ask(server, "POST", f"/{server.token}/run", given)[1])
    assert answer["how"] == "done", answer
    assert "system.instances.start_total_s=60" in answer["command"]


@pytest.mark.parametrize(
    ("given", "sentence"),
    [
        ({"modl": "llama3_8b"}, "there is no control 'modl': write model"),
        ({"model": "llama3_8"}, "model=llama3_8 is unknown: write model=llama3_8b"),
        ({"rate": "fast"}, "rate=fast is no number: write a number from 0.01 to 10000"),
        ({"rate": ""}, "rate= is no number: write a number from 0.01 to 10000"),
        ({"requests": "1.5"}, "requests=1.5 is out of range: write a whole number from 1 to 20000"),
        ({"price": "-1"}, "price=-1 is out of range: write a number from 0 to 10000"),
        ({"price": "nan"}, "price=nan is out of range: write a number from 0 to 10000"),
        ({"gpus": "6", "tp": "4"}, "gpus=6 does not fill h100 with 4 per replica: write gpus=4 or gpus=8"),
        (
            {"gpu": "blitz_b", "gpus": "12"},
            "does not fill blitz_b with 1 per replica: write gpus=8 or gpus=16",
        ),
    ],
)
def test_what_cannot_be_is_refused(given: dict[str, str], sentence: str) -> None:
    with pytest.raises(UserError, match=re.escape(sentence)):
        words(**given)


def test_words_of_the_command_are_checked_before_the_page(capsys: pytest.CaptureFixture[str]) -> None:
    assert cli.run(["explore", "gpu=h1000"]) == 2
    assert capsys.readouterr().err == "servetwin: gpu=h1000 is unknown: write gpu=h100\n"
    assert cli.run(["explore", "port=70000"]) == 2
    assert "port is out of range: write a number from 0 to 65535" in capsys.readouterr().err


def test_cost_follows_from_the_gpus_held() -> None:
    summary = {
        "gpu_seconds": 7200.0, "duration_s": 3600.0,
        "requests": {"finished": 9, "arrived": 10},
        "slo": {"attainment": 0.5, "goodput_req_per_s": 2.0, "ttft_ms": 450, "tpot_ms": 150},
    }  # fmt: skip
    assert mean_gpus(summary) == 2
    assert cost(summary, 2.5)[1:] == ("0.694", "5.00 per hour")
    assert cost(summary, None)[2] == "write a price of a GPU-hour"
    assert cost({**summary, "slo": {"goodput_req_per_s": 0.0}}, 2.5)[1] == NOTHING
    assert sentence(summary) == "9 of 10 requests finished; 50 % within TTFT 450 ms and TPOT 150 ms."


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    runs = Runs(tmp_path_factory.mktemp("explored"))
    with Server(Explorer(runs, SMALL), 0) as made:
        answering = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.05})
        answering.start()
        yield made
        made.shutdown()
        answering.join()
        runs.stop()


def ask(
    server: Server, method: str, path: str, form: dict[str, str] | None = None, host: str = ""
) -> tuple[int, str]:
    port = server.server_address[1]
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=60)
    connection.putrequest(method, path, skip_host=True)
    connection.putheader("Host", host or f"127.0.0.1:{port}")
    body = urlencode(form or {}).encode()
    connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, text


def test_only_the_address_with_the_token_is_answered(server: Server) -> None:
    own = f"/{server.token}/"
    assert ask(server, "GET", own)[0] == 200
    for path in ("/", "/nothing/", f"/{server.token[:-1]}x/", own.upper()):
        assert ask(server, "GET", path)[0] == 403, path
        assert ask(server, "POST", f"{path}run")[0] in (403, 404), path
    port = server.server_address[1]
    assert ask(server, "GET", own, host=f"localhost:{port}")[0] == 200
    assert ask(server, "GET", own, host=f"elsewhere.example:{port}")[0] == 403
    assert server.server_address[0] == "127.0.0.1"


def test_paths_lead_to_no_other_file(server: Server) -> None:
    for path in ("../controls.py", "explore.html", "report/../1", "report/1/../../x", "report/99", "run"):
        assert ask(server, "GET", f"/{server.token}/{path}")[0] == 404, path


def test_a_state_is_answered_with_its_command_and_report(server: Server, tmp_path: Path) -> None:
    """The command gives the numbers that the page shows."""
    status, text = ask(server, "POST", f"/{server.token}/run", {"rate": "30", "price": "2"})
    answer = json.loads(text)
    assert status == 200 and answer["how"] == "done" and answer["sentence"].startswith("40 of 40 requests")
    assert ask(server, "GET", f"/{server.token}/report/{answer['number']}")[1].startswith("<!doctype html>")
    command = shlex.split(answer["command"])
    assert command[:2] == ["servetwin", "simulate"] and "trace.rate_per_s=30" in command
    assert cli.run([*command[1:], f"out={tmp_path / 'run'}"]) == 0
    page = (tmp_path / "run" / "report.html").read_text("utf-8")
    for name in ("TTFT P99", "TPOT P99"):
        assert f"<strong>{answer['numbers'][name]}</strong>" in page, name


def test_refusals_of_a_run_are_told_on_the_page(server: Server) -> None:
    for form, told in (
        ({"system": "blitzscale"}, "has none: write a cluster that has"),
        ({"model": "llama3_70b"}, "llama3_70b"),
        ({"lengths": "long"}, "lengths='long' is unknown"),
        ({"rate": "x"}, "rate=x is no number"),
    ):
        answer = json.loads(ask(server, "POST", f"/{server.token}/run", form)[1])
        assert answer["how"] == "refused" and told in answer["text"], form


def test_a_newer_state_replaces_the_run_that_goes_on(tmp_path: Path) -> None:
    runs = Runs(tmp_path)
    ended: list[Ended] = []
    long = state_of({"requests": "20000", "rate": "500", "gpus": "64"}).words()
    first = threading.Thread(target=lambda: ended.append(runs.simulate(long)[1]))
    first.start()
    while runs._current is None:
        time.sleep(0.01)
    assert runs.simulate(state_of(SMALL).words())[1] == Ended("done")
    first.join(30)
    assert ended == [Ended("replaced")]


def test_old_results_are_deleted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(explored_runs, "MOST_KEPT", 1)
    runs = Runs(tmp_path)
    first, _ = runs.simulate(state_of(SMALL).words())
    second, _ = runs.simulate(state_of({**SMALL, "rate": "5"}).words())
    assert runs.folder_of(first) is None and runs.folder_of(second) is not None
    assert [path.name for path in tmp_path.iterdir()] == [str(second)]


def test_the_command_ends_at_ctrl_c_and_leaves_nothing(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [sys.executable, "-m", "servetwin", "explore", "requests=20", "--json"],
        stdout=subprocess.PIPE, text=True, env={**os.environ, "TMPDIR": str(tmp_path)},
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.default_int_handler),
    )  # fmt: skip
    assert process.stdout is not None
    address = json.loads(process.stdout.readline())["address"]
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/[\w-]{22}/", address)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 0
    assert not list(tmp_path.glob("servetwin-explore-*"))


def until(shown: browser.Browser, condition: str) -> None:
    ends = time.monotonic() + 40
    while not shown.evaluate(condition):
        assert time.monotonic() < ends, (condition, shown.evaluate("document.body.innerText"))
        time.sleep(0.05)


DONE = "result.getAttribute('aria-busy') === 'false'"


@pytest.mark.parametrize("width", [390, 1300])
@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_page_shows_a_run_at_desk_and_phone_width(
    server: Server, shown: browser.Browser, width: int, dark: bool
) -> None:
    shown.open(server.address, width, dark)
    until(shown, DONE)
    assert shown.evaluate("document.getElementById('status').textContent").startswith("40 of 40 requests")
    assert shown.evaluate("document.documentElement.scrollWidth") <= width
    assert shown.evaluate("result.querySelectorAll('figure svg').length") >= 3
    assert "trace.requests=40" in shown.evaluate("command.textContent")


def test_a_control_is_changed_by_the_keyboard_and_the_state_is_the_address(
    server: Server, shown: browser.Browser
) -> None:
    shown.open(server.address, 1300)
    until(shown, DONE)
    order = "[...form.elements].map(one => [one.name, one.tabIndex])"
    assert [name for name, _ in shown.evaluate(order)] == [control.name for control in controls()]
    assert all(index == 0 for _, index in shown.evaluate(order))
    assert shown.evaluate("[...form.elements].every(one => one.labels.length === 1)")
    shown.evaluate("rate.focus(), rate.select()")
    shown.type("35")
    until(shown, f"command.textContent.includes('trace.rate_per_s=35') && {DONE}")
    assert "rate=35" in shown.evaluate("location.hash")
    assert shown.evaluate("states.tBodies[0].rows[0].cells[0].textContent") == "Requests per second: 35"
    shown.evaluate("history.back()")
    until(shown, f"command.textContent.includes('trace.rate_per_s=20') && {DONE}")
    assert shown.evaluate("rate.value") == "20"
    shown.evaluate("gpus.focus(), gpus.select()")
    shown.type("0")
    until(shown, "document.getElementById('status').className === 'refused'")
    assert "gpus=0 is out of range" in shown.evaluate("document.getElementById('status').textContent")
