"""Pods of a Deployment as instances: starts, which pod goes, errors of the API, what a killed run leaves."""

import asyncio
import json
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from realexec.http.instance_launcher import NotReady, start_first
from realexec.kubernetes.deployment import BEFORE
from realexec.kubernetes.kubeconfig import access_of
from realexec.kubernetes.pod import FIRST_TO_GO
from realexec.kubernetes.pod_launcher import PodLauncher, PodRules
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from serving.vocabulary.errors import UserError
from tests.worlds.fake_kubernetes import COST, DEPLOYMENT, NAME, NAMESPACE, PODS, Cluster, FakeKubernetes
from tests.worlds.processes import patience_s, started, wait_until
from tests.worlds.quick_scalers import scaler_words
from tests.worlds.started_servers import LOAD, MAIN

pytestmark = pytest.mark.skipif(
    sys.platform != "linux", reason="all of 127.0.0.0/8 is this machine's on Linux"
)
PHASES = ("asked_s", "pod_s", "scheduled_s", "container_s", "pod_ready_s", "ready_s")


def words(
    folder: Path, world: FakeKubernetes, *more: str, servers: int = 3, load: Sequence[str] = LOAD
) -> list[str]:
    """Of a run into the folder ``run``."""
    where = [f"http.deployment={NAMESPACE}/{NAME}", f"http.kubeconfig={world.kubeconfig(folder)}"]
    system = ["system=allcache", "system.instances.split=false", "journal=true", f"workers={servers}"]
    return [
        "run",
        "world=http",
        "http.launcher=kubernetes",
        *where,
        *system,
        *load,
        *more,
        f"out={folder / 'run'}",
    ]


def launcher_of(folder: Path, world: FakeKubernetes, servers: int = 4, **rules: Any) -> PodLauncher:
    given = {"deployment": NAME, "port": None, "model": None, "key": None, "timeout_s": 20.0, "kill_s": 10.0}
    return PodLauncher(PodRules(**(given | rules)), servers, access_of(str(world.kubeconfig(folder))))


def start_all(launcher: PodLauncher, numbers: Sequence[int]) -> None:
    async def started() -> None:
        await asyncio.gather(*[launcher.start(number) for number in numbers])

    asyncio.run(started())


def pods_of(world: FakeKubernetes, launcher: PodLauncher, numbers: Sequence[int]) -> list[str]:
    by_place = {pod["status"].get("podIP"): name for name, pod in world.pods.items()}
    return [by_place[launcher.address(number).host] for number in numbers]


def is_restored(world: FakeKubernetes, replicas: int) -> bool:
    annotated = world.deployment["metadata"].get("annotations", {})
    marked = [name for name, pod in world.pods.items() if COST in pod["metadata"].get("annotations", {})]
    return (world.replicas, annotated, len(world.ready), marked) == (replicas, {}, replicas, [])


def test_a_scaler_scales_the_deployment(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(replicas=2)) as world:
        wait_until(lambda: len(world.ready) == 2, "the pods of before are ready")
        assert realexec_cli.run(words(tmp_path, world, *scaler_words("hpa"))) == 0
        wait_until(lambda: is_restored(world, 2), "the replicas are those of before")
        asked = [
            body["spec"]["replicas"] for method, path, body in world.asked if path.endswith("/scale") and body
        ]
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    real, acts = summary["real"], [event["act"] for event in summary["scale_events"]]
    assert real["tokens_different"] == real["recomputed_different"] == 0 and real["workers_lost"] == []
    first, *later = real["starts"]["servers"]
    assert first["kind"] == "ran already" and len(later) == acts.count("ready") >= 1
    for start in later:
        times = [start[name] for name in PHASES]
        assert times == sorted(times) and start["node"].startswith("node-")
        says = start["cluster_says"]
        assert (
            says.pop("pull_s") == 62.5
            and set(says) <= set(PHASES)
            and all(0 <= one <= 5 for one in says.values())
        )
    assert (
        asked[0] == 1
        and max(asked) >= 2
        and sum(real["starts"]["stopped"].values()) == acts.count("released")
    )
    assert cli.run(["replay", str(tmp_path / "run")]) == 0


def test_the_pod_of_the_instance_goes_and_no_other(tmp_path: Path) -> None:
    with FakeKubernetes() as world, launcher_of(tmp_path, world) as launcher:
        start_all(launcher, [0, 1, 2])
        first, *others = pods_of(world, launcher, [0, 1, 2])
        asyncio.run(launcher.stop(0))  # the oldest: unmarked, the newest would go
        assert sorted(world.ready) == sorted(others) and first not in world.pods
        assert launcher.report()["stopped"] == {"by_sigterm": 1, "by_sigkill": 0}
        assert launcher.running == {1, 2}


def test_a_pod_that_stays_because_a_pending_one_went_serves_the_next_start(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(nodes=2)) as world, launcher_of(tmp_path, world) as launcher:
        start_all(launcher, [0, 1])
        first, second = pods_of(world, launcher, [0, 1])

        async def swapped() -> None:
            third = asyncio.create_task(launcher.start(2))
            while len(world.pods) < 3:
                await asyncio.sleep(0.01)
            await asyncio.gather(launcher.stop(0), third)

        asyncio.run(swapped())
        assert sorted(world.ready) == sorted([first, second]) == sorted(pods_of(world, launcher, [1, 2]))
        assert world.replicas == 2 and COST not in world.pods[first]["metadata"].get("annotations", {})


def test_a_start_that_is_called_off_takes_its_pod_back(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(nodes=1)) as world, launcher_of(tmp_path, world) as launcher:
        start_all(launcher, [0])

        async def called_off() -> None:
            second = asyncio.create_task(launcher.start(1))
            while world.replicas < 2:
                await asyncio.sleep(0.01)
            second.cancel()
            await asyncio.gather(second, return_exceptions=True)

        asyncio.run(called_off())
        assert world.replicas == 1 and launcher.running == {0}


def test_a_cluster_that_ignores_the_cost_loses_the_run_no_place(tmp_path: Path) -> None:
    """The annotation is best effort: the other instance is lost, and gets the pod that stayed."""
    with FakeKubernetes(Cluster(ignores_cost=True)) as world, launcher_of(tmp_path, world) as launcher:
        start_all(launcher, [0, 1])
        first, second = pods_of(world, launcher, [0, 1])
        asyncio.run(launcher.stop(0))
        assert world.ready == [first]

        async def seen() -> str:
            return await launcher.why_ended(1)

        assert asyncio.run(seen()) == f"its pod {second} was deleted"
        asyncio.run(launcher.stop(1))
        start_all(launcher, [1])
        assert len(world.ready) == world.replicas == 1


def test_a_server_that_does_not_end_is_killed_after_the_grace_period(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(stop_s=1000.0, grace_s=2000)) as world:
        with launcher_of(tmp_path, world, kill_s=0.2) as launcher:
            start_all(launcher, [0])
            asyncio.run(launcher.stop(0))
            assert launcher.report()["stopped"] == {"by_sigterm": 0, "by_sigkill": 1}
        asked = [body for method, _, body in world.asked if method == "DELETE"]
        assert [one["gracePeriodSeconds"] for one in asked] == [1]


@pytest.mark.parametrize("status", [409, 429, 500, 503])
def test_answers_that_may_be_repeated_are(status: int, tmp_path: Path) -> None:
    with FakeKubernetes() as world:
        world.faults += [("PATCH", DEPLOYMENT, status), ("PATCH", "/scale", status), ("GET", PODS, status)]
        world.faults += [("PATCH", f"{PODS}/", status)]
        with launcher_of(tmp_path, world) as launcher:
            start_all(launcher, [0, 1])
            asyncio.run(launcher.stop(0))
            assert launcher.report()["kubernetes"]["requests_repeated"] == 4 and not world.faults
        wait_until(lambda: is_restored(world, 0), "the replicas are those of before")


def test_a_conflict_is_answered_with_what_the_deployment_is_by_now(tmp_path: Path) -> None:
    """Somebody scales it between our read and our note: the note has their number."""
    with FakeKubernetes(Cluster(replicas=1)) as world:
        world.faults.append(("PATCH", DEPLOYMENT, 409))
        answer = world.answer

        def changed(method: str, path: str, query: dict[str, str], body: Any) -> Any:
            found = answer(method, path, query, body)
            if (method, path) == ("GET", DEPLOYMENT) and world.replicas == 1:
                world.touch({"spec": {"replicas": 3}})
            return found

        world.answer = changed  # type: ignore[method-assign]
        with launcher_of(tmp_path, world):
            assert world.deployment["metadata"]["annotations"] == {BEFORE: "3"}
        assert world.replicas == 3


@pytest.mark.parametrize("as_status", [False, True])
def test_a_version_that_is_gone_is_listed_anew(as_status: bool, tmp_path: Path) -> None:
    with FakeKubernetes() as world, launcher_of(tmp_path, world) as launcher:
        world.gone_as_status = as_status

        async def through() -> None:
            await launcher.start(0)
            world.faults += [("GET", "watch=true", status) for status in (429, 500, 503)]
            world.cut_watches()  # goes on from the last version
            await launcher.start(1)
            world.forget_history()
            await launcher.start(2)

        asyncio.run(through())
        assert launcher.report()["kubernetes"]["pods_listed"] == 2
        assert len(world.ready) == 3


def test_a_container_that_ends_costs_no_request(tmp_path: Path) -> None:
    """Its pod stays, and would be started again; the run gives the pod back and asks for another."""
    slow = ("trace.limit=60", "trace.rate_scale=4", "trace.tokens_scale=0.2", "http.check_tokens=200")
    with FakeKubernetes() as world:
        with started(
            MAIN, *words(tmp_path, world, *scaler_words("kpa"), servers=1, load=slow), cwd=tmp_path
        ) as run:
            wait_until(
                lambda: (
                    run.poll() is not None
                    or any(b'["streamed",' in file.read_bytes() for file in tmp_path.glob("*/journal"))
                ),
                "no token came",
            )
            (victim,) = world.ready
            world.crash(victim)
            out, err = run.communicate(timeout=patience_s())
        assert run.returncode == 0 and err == "", (out, err)
    summary = json.loads((tmp_path / "run" / "summary.json").read_text(encoding="utf-8"))
    assert summary["requests"]["finished"] == summary["requests"]["arrived"]
    ((_, cause),) = summary["real"]["workers_lost"]
    assert cause.endswith(
        f"its pod {victim} does not serve: its container server ended with exit status 137 (OOMKilled)"
    )


def test_what_a_killed_run_left_is_restored_by_the_next(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(replicas=2)) as world:
        with started(MAIN, *words(tmp_path, world, *scaler_words("kpa")), cwd=tmp_path) as run:
            wait_until(lambda: run.poll() is not None or world.replicas == 1, "it was not scaled")
            run.send_signal(signal.SIGKILL)
            run.communicate(timeout=patience_s())
        assert world.deployment["metadata"]["annotations"] == {BEFORE: "2"}
        assert world.replicas == 1, "what is left of it"
        with launcher_of(tmp_path, world) as launcher:
            start_first(launcher)
        wait_until(lambda: is_restored(world, 2), "the replicas are those of before both runs")


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_that_is_ended_restores_the_replicas(number: int, tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(replicas=2)) as world:
        with started(MAIN, *words(tmp_path, world, *scaler_words("kpa")), cwd=tmp_path) as run:
            wait_until(lambda: run.poll() is not None or world.replicas == 1, "it was not scaled")
            run.send_signal(number)
            run.communicate(timeout=patience_s())
        wait_until(lambda: is_restored(world, 2), "the replicas are those of before")


def refused(folder: Path, world: FakeKubernetes, *more: str) -> str:
    with pytest.raises(UserError) as found, launcher_of(folder, world, timeout_s=0.5) as launcher:
        start_first(launcher)
    assert BEFORE not in world.deployment["metadata"].get("annotations", {}), "nothing of ours is left"
    return str(found.value)


def test_what_starts_no_pod_is_refused(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(nodes=0)) as world:
        told = refused(tmp_path, world)
    assert "the pod of http.deployment=vllm is of no use: no pod is ready in time; vllm-" in told
    assert told.endswith(
        "it is not scheduled: Unschedulable: 0/8 nodes are available: 8 Insufficient nvidia.com/gpu."
    )
    with FakeKubernetes(Cluster(port_named=False)) as world:
        assert "the containers of Deployment llm/vllm name no port: write http.pod_port=N" in refused(
            tmp_path, world
        )
    with FakeKubernetes() as world:
        target = {"apiVersion": "apps/v1", "kind": "Deployment", "name": NAME}
        world.autoscalers.append({"metadata": {"name": "mine"}, "spec": {"scaleTargetRef": target}})
        assert "the HorizontalPodAutoscaler mine scales Deployment llm/vllm too" in refused(tmp_path, world)
        world.faults.append(("GET", "/horizontalpodautoscalers", 403))
        with launcher_of(tmp_path, world) as launcher:
            start_first(launcher)
    with FakeKubernetes() as world:
        world.faults.append(("GET", "/scale", 404))
        assert "answers 404 to GET /apis/apps/v1/namespaces/llm/deployments/vllm/scale: not now" in refused(
            tmp_path, world
        )


def test_a_replica_count_that_cannot_be_restored_is_told_with_the_command(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(replicas=2)) as world:
        told = pytest.raises(UserError, match="--namespace llm scale deployment vllm --replicas=2")
        with told, launcher_of(tmp_path, world) as launcher:
            start_first(launcher)
            world.faults.append(("PATCH", DEPLOYMENT, 403))
        assert world.deployment["metadata"]["annotations"] == {BEFORE: "2"}


def test_starts_that_fail_again_and_again_give_up(tmp_path: Path) -> None:
    with FakeKubernetes(Cluster(nodes=0)) as world, launcher_of(tmp_path, world, timeout_s=0.3) as launcher:
        for _ in range(3):
            assert not launcher.gives_up
            with pytest.raises(NotReady, match="no pod is ready in time"):
                start_all(launcher, [0])
        assert launcher.gives_up and launcher.report()["failed"] == 3 and world.replicas == 0


def test_the_cost_is_the_lowest_that_there_is() -> None:
    assert int(FIRST_TO_GO) == -(2**31)
