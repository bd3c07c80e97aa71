"""realexec observe beside a client that shares no code with it, on a server that states its times."""

import json
import threading
import time
from http.client import HTTPConnection
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest

from realexec.http import driver
from realexec.world.tracking import Tracker
from servetwin.cli import realexec as realexec_cli
from tests.worlds.stated_server import MODEL, StatedClock, StatedServer

# By the length of the prompt: no two tokens of all requests at the same time, and no gap like another.
STATED = {
    20 + place: [1_000_003 * (token + 1) ** 2 + 777 * place for token in range(3 + place)]
    for place in range(6)
}


def independent_client(server: StatedServer) -> dict[int, list[int]]:
    """A thread for each request: when it has read each token, by the stated clock."""
    found: dict[int, list[int]] = {prompt: [] for prompt in STATED}

    def ask(prompt: int) -> None:
        wish = {"model": MODEL, "prompt": [1] * prompt, "max_tokens": len(STATED[prompt]), "stream": True}
        connection = HTTPConnection("127.0.0.1", int(server.url.rpartition(":")[2]), timeout=60)
        connection.request("POST", "/v1/completions", json.dumps(wish))
        for line in connection.getresponse():
            if line.startswith(b'data: {"choices"'):
                found[prompt].append(server.clock())
                server.read()

    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in STATED]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return found


def test_observe_measures_what_another_client_measures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """First tokens, ends and the gaps between tokens are the stated ones, to the nanosecond, in both."""
    trace = tmp_path / "trace.csv"
    rows = "".join(f"0,{prompt},{len(ats)}\n" for prompt, ats in STATED.items())
    trace.write_text(f"arrival_s,prompt_tokens,output_tokens\n{rows}")
    with StatedServer(StatedClock(), STATED) as other:
        theirs = independent_client(other)
    clock = StatedClock()
    with StatedServer(clock, STATED) as server:
        got = Tracker.got

        def read(self: Tracker, *words: object) -> None:
            got(self, *words)  # type: ignore[arg-type]
            server.read()

        monkeypatch.setattr(Tracker, "got", read)
        clocks = {"perf_counter_ns": time.perf_counter_ns, "process_time_ns": time.process_time_ns}
        monkeypatch.setattr(driver, "time", SimpleNamespace(monotonic_ns=clock, **clocks))
        words = [
            "trace=file",
            f"trace.path={trace}",
            "trace.tokens_scale=1",
            "http.check_tokens=0",
            f"out={tmp_path / 'out'}",
        ]
        assert realexec_cli.run(["observe", server.url, *words]) == 0
    seen = pd.read_parquet(tmp_path / "out" / "requests.parquet").sort_values("prompt_tokens")
    assert seen.prompt_tokens.tolist() == list(STATED) and (seen.arrival_ns == 0).all()
    assert theirs == STATED
    assert seen.first_token_ns.tolist() == [ats[0] for ats in theirs.values()]
    assert seen.finish_ns.tolist() == [ats[-1] for ats in theirs.values()]
    gaps = [later - ats[at] for ats in theirs.values() for at, later in enumerate(ats[1:])]
    itl_ms = json.loads((tmp_path / "out" / "summary.json").read_text())["itl_ms"]
    assert itl_ms["mean"] == pytest.approx(sum(gaps) / len(gaps) / 1e6, rel=1e-9)
