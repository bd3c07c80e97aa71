"""Instances that come and go as made-up servers that wake and sleep; those that do not are refused."""

import asyncio
import json
from contextlib import ExitStack
from pathlib import Path

import pytest

from realexec.http.driver import probe_all, probe_sleeps
from realexec.http.server_state import ServerState
from realexec.http.sleep_mode import SleepMode
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from serving.vocabulary.actions import AllocateGpus, Load, StopLoad
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Event, Loaded, LoadStopped
from tests.worlds.fake_openai import FakeServer, Settings

BURSTS = ("trace.limit=40", "trace.rate_scale=4", "trace.tokens_scale=0.1")
QUICKLY = ("system.scaler.params.scale_down_ms=50", "system.instances.monitor_period_ms=20")


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_servers_wake_when_they_are_wanted_and_sleep_when_not(kind: str, tmp_path: Path) -> None:
    blocks = {"kv_blocks": 512} if kind == "vllm" else {"kv_blocks": 8192, "block_tokens": 1}
    one = Settings(**{"kind": kind, "step_s": 0.004, "sleeps": "yes"} | blocks)  # type: ignore[arg-type]
    with ExitStack() as stack:
        servers = [stack.enter_context(FakeServer(one)) for _ in range(3)]
        words = [
            "world=http",
            f"http.servers=[{','.join(found.url for found in servers)}]",
            "system=allcache",
        ]
        words += ["system.instances.split=false", "journal=true", *BURSTS, *QUICKLY]
        assert realexec_cli.run(["run", *words, f"out={tmp_path / 'run'}"]) == 0
        told = [found.told for found in servers]
        assert not any(found.asleep for found in servers), "they are left as they were found"
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    real = summary["real"]
    assert summary["requests"]["finished"] == 40 and real["tokens_different"] == 0 < real["tokens_checked"]
    assert real["woken"] >= 1 and real["slept"] >= 1
    at_first = 3 + 2  # each is tried before the run, and two sleep when it begins
    slept = [path for one in told for path in one if "sleep" in path or "release" in path]
    assert len(slept) == at_first + real["slept"]
    acts = [event["act"] for event in summary["scale_events"]]
    assert acts.count("ready") == real["woken"] and acts.count("released") == real["slept"]
    assert cli.run(["replay", str(tmp_path / "run")]) == 0
    again = [f"config={tmp_path / 'run'}", "driver.carries_out=http", f"out={tmp_path / 'sim'}"]
    assert cli.run(["simulate", *again]) == 0, "its twin is simulated under the same mask"


@pytest.mark.parametrize(
    ("settings", "told"),
    [
        (Settings(), "does not sleep"),
        (Settings("openai"), "is of kind openai, of which none sleeps"),
        (Settings(sleeps="routes"), "was started without its sleep mode: start it with VLLM_SERVER"),
        (Settings("sglang", sleeps="routes"), "reports that it sleeps and still serves"),
    ],
)
def test_a_server_that_does_not_is_found_out(settings: Settings, told: str) -> None:
    with FakeServer(settings) as server:
        servers = probe_all([server.url], None)
        with pytest.raises(UserError, match=told):
            probe_sleeps(servers)


def load(number: int) -> Load:
    return Load(number, "m", (("host", 0),), (("replica", 0),), (), False, True, "wanted", layers=(0, 4))


def played(server: FakeServer, *actions: Load | StopLoad) -> list[Event]:
    """What comes of them."""
    (found,) = probe_all([server.url], None)

    async def play() -> list[Event]:
        told = list[Event]()
        servers = SleepMode([ServerState(server=found)], 5.0, told.append)
        for action in actions:
            if isinstance(action, Load):
                servers.load(action)
            else:
                servers.stop(action)
        await asyncio.sleep(0.3)
        return told

    return asyncio.run(play())


def test_a_load_ends_with_all_layers_or_with_its_cause() -> None:
    with FakeServer(Settings(sleeps="yes")) as server:
        assert played(server, load(3)) == [Loaded(3, 0, 4, True)]
        assert played(server, load(3), StopLoad(3, "not wanted")) == [LoadStopped(3, 0, 0, "not wanted")]
        assert played(server, StopLoad(4, "over")) == []
    with FakeServer() as server:
        (told,) = played(server, load(3))
    assert isinstance(told, LoadStopped) and told.cause.startswith("/wake_up answers 404")


def test_gpus_that_are_not_the_servers_are_a_fault() -> None:
    servers = SleepMode([], 1.0, lambda fact: None)
    servers.allocate(AllocateGpus(2, "m", (4, 5), "both", False, "wanted"))
    with pytest.raises(RuntimeError, match="which belong to another server"):
        servers.allocate(AllocateGpus(2, "m", (1,), "both", False, "wanted"))
