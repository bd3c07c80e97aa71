"""Workers on a Ray cluster of three nodes: the same tokens as on one machine, a node that dies, refusals."""

import json
import re
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from realexec.driver import driver
from realexec.world.report import RunReport
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from serving.vocabulary.errors import UserError
from tests.worlds.processes import REAL, patience_s, wait_until
from tests.worlds.ray_clusters import cluster_of, kill_node

pytestmark = pytest.mark.ray

NODES = 3
RUN = ("run", "trace=azure_conv_like", "journal=true")
LIVE = (
    "system=blitzscale", "system.instances.split=false", "system.scaler.prefill=[0.01,0.02]",
    "system.live.slo_ms=0", "trace.rate_per_s=200", "trace.tokens_scale=0.05", "trace.limit=120",
    f"workers={NODES}",
)  # fmt: skip


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    pytest.importorskip("torch")
    with cluster_of(NODES) as made:
        yield made


@pytest.fixture
def reports(monkeypatch: pytest.MonkeyPatch) -> list[RunReport]:
    """What the driver left of each run."""
    found: list[RunReport] = []
    execute = driver.execute

    def kept(*args: Any, **options: Any) -> RunReport:
        found.append(execute(*args, **options))
        return found[-1]

    monkeypatch.setattr(driver, "execute", kept)
    return found


def summary_of(folder: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((folder / "summary.json").read_text(encoding="utf-8"))
    return found


def tokens_of(report: RunReport) -> dict[int, tuple[int, ...]]:
    return {request: one.tokens for request, one in report.generations.items()}


def test_a_chain_over_three_nodes_changes_no_token(
    cluster: Any, reports: list[RunReport], tmp_path: Path
) -> None:
    on_ray = ("launcher=ray", f"ray.address={cluster.address}", f"out={tmp_path}/ray")
    assert realexec_cli.run([*RUN, *LIVE, *on_ray]) == 0
    real = summary_of(tmp_path / "ray")["real"]
    assert len(set(real["places"])) == NODES and real["transport"] == "tcp"
    assert real["loads"] >= 2 and real["units_forwarded"] > 0 and real["live_passes"] > 0
    assert (real["tokens_different"], real["workers_lost"]) == (0, []) and real["tokens_checked"] > 500
    assert cli.run(["replay", f"{tmp_path}/ray"]) == 0
    assert realexec_cli.run([*RUN, *LIVE, "transport=tcp", f"out={tmp_path}/local"]) == 0
    on_nodes, on_one_machine = map(tokens_of, reports)
    assert len(on_nodes) == 120 and on_nodes == on_one_machine


def test_a_node_that_dies_takes_its_requests_and_no_others(
    cluster: Any, reports: list[RunReport], tmp_path: Path
) -> None:
    """Three replicas that stay, requests in turn: those of the dead node's fail."""
    from realexec.launchers.ray_cluster import RayLauncher

    launched: list[RayLauncher] = []
    over = threading.Event()
    opened = RayLauncher.open
    lost_node = cluster.add_node(num_cpus=1, object_store_memory=80 << 20)

    def kept(self: RayLauncher, workers: int) -> str | None:
        launched.append(self)
        return opened(self, workers)

    def journal() -> list[bytes]:
        return [line for file in tmp_path.glob("*/journal") for line in file.read_bytes().splitlines()]

    def kill() -> None:
        wait_until(lambda: over.is_set() or sum(b'"ran"' in line for line in journal()) > 20, "no run", REAL)
        if not over.is_set():
            kill_node(cluster, lost_node.node_id)

    words = ("system=vllm", "system/dispatch=round_robin", "trace.limit=40", "trace.tokens_scale=0.3")
    on_ray = ("launcher=ray", f"ray.address={cluster.address}", "workers=4", "trace.rate_per_s=20")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(RayLauncher, "open", kept)
        killer = threading.Thread(target=kill)
        killer.start()
        status = realexec_cli.run([*RUN, *words, *on_ray, f"out={tmp_path}/run"])
        over.set()
        killer.join()
    assert status == 4
    slot = [one.node for one in launched[0]._where].index(lost_node.node_id)
    summary = summary_of(tmp_path / "run")
    requests, real = summary["requests"], summary["real"]
    ((lost, cause),) = real["workers_lost"]
    assert lost == slot and re.fullmatch(rf"Ray node {lost_node.node_id[:8]} \([\d.]+\) is gone", cause)
    assert requests["failed"] > 0 and requests["failed"] + requests["finished"] == 40
    assert real["tokens_different"] == 0
    done = [actions for _, _, actions, *_ in map(json.loads, journal()[1:-1])]
    replica_of = {action[1]: action[2] for actions in done for action in actions if action[0] == "assign"}
    failed = set(range(40)) - set(reports[0].generations)
    assert {replica_of[one] for one in failed} == {slot}
    assert cli.run(["replay", f"{tmp_path}/run"]) == 0


def test_what_a_cluster_has_not_is_refused(cluster: Any, tmp_path: Path) -> None:
    from realexec.launchers.ray_cluster import RayLauncher

    launcher = RayLauncher(cluster.address, place_s=3)
    began_s = time.monotonic()
    try:
        with pytest.raises(UserError, match=r"has 3 CPUs, 3 of them free, and workers=9 take one each"):
            launcher.open(9)
    finally:
        launcher.close()
    assert time.monotonic() - began_s < patience_s()
    with pytest.raises(UserError, match=r"no Ray cluster is reached by ray.address=127.0.0.1:1 "):
        RayLauncher("127.0.0.1:1").open(1)
