"""Prefill on one server and decode on another, against made-up servers whose KV really travels."""

from collections.abc import Sequence
from contextlib import ExitStack
from typing import Any

import pytest

from realexec.http.driver import probe_all, probe_hand_overs
from realexec.http.handover import Roles
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Dropped, Lost, Sent
from tests.worlds.fake_openai import FakeServer, Settings
from tests.worlds.stock_runs import Run, after_tokens

KINDS = ("vllm", "sglang")


def settings(kind: str, role: str, **more: Any) -> Settings:
    own: dict[str, Any] = {"nixl": True} if kind == "vllm" else {"mode": role}
    return Settings(**{"kind": kind, "step_s": 0.003} | own | more)


def started(stack: ExitStack, kind: str, prefills: int, decodes: int) -> list[FakeServer]:
    roles = ["prefill"] * prefills + ["decode"] * decodes
    return [stack.enter_context(FakeServer(settings(kind, role))) for role in roles]


def run_on(found: Sequence[FakeServer], kind: str, prefills: int, **more: Any) -> Run:
    roles = Roles(frozenset(range(prefills)), kind == "sglang")
    return Run([one.url for one in found], roles=roles, **more)


@pytest.mark.parametrize("kind", KINDS)
def test_kv_goes_from_servers_that_prefill_to_servers_that_decode_and_no_token_changes(kind: str) -> None:
    with ExitStack() as stack:
        found = started(stack, kind, 2, 1)
        run = run_on(found, kind, 2, requests=8)
        before = found[2].connectors.received
        report = run.go()
        run.assert_exact(report)
        assert report.counts.handed_over == 8 and report.run.failed == 0
        assert found[2].connectors.received - before == 8 * 24, "the KV of every prompt came from another"
        assert all(len(one.sent) <= 1 for server in found[:2] for one in server.jobs if len(one.prompt) == 24)
        assert {replica for replica, *_ in run.recorder.done.values()} == {2}
        run.assert_replays()


def test_a_request_of_one_token_stays_where_its_prompt_is_computed() -> None:
    with ExitStack() as stack:
        run = run_on(started(stack, "vllm", 1, 1), "vllm", 1, requests=3, outputs=1)
        report = run.go()
        run.assert_exact(report)
        assert report.counts.handed_over == 0
        run.assert_replays()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("who", ["prefill", "decode"])
def test_a_server_that_is_killed_loses_no_request_and_no_token(kind: str, who: str) -> None:
    with ExitStack() as stack:
        found = started(stack, kind, 2, 2)
        run = run_on(found, kind, 2, requests=10, outputs=40, gap_ms=4)
        victim = 0 if who == "prefill" else 2
        run.journal.hook = after_tokens(found[victim].die, found[2], 2, until=Lost)
        report = run.go()
        run.assert_exact(report)
        assert [replica for replica, _ in report.run.lost] == [victim] and report.run.failed == 0
        assert who == "prefill" or report.counts.resumed >= 1
        run.assert_replays()


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("server", [0, 1])
def test_connections_that_break_are_sent_again(kind: str, server: int) -> None:
    with ExitStack() as stack:
        found = started(stack, kind, 1, 1)
        run = run_on(found, kind, 1, requests=8, outputs=30, gap_ms=3)
        run.journal.hook = after_tokens(found[server].break_connections, found[1], 1)
        report = run.go()
        run.assert_exact(report)
        assert report.run.lost == () and report.run.failed == 0
        assert server == 0 or any(isinstance(one, Dropped) for one in run.journal.events)
        run.assert_replays()


def test_kv_that_nobody_has_any_more_is_computed_again() -> None:
    """As after the time for which vLLM keeps it."""
    with ExitStack() as stack:
        found = started(stack, "vllm", 1, 1)
        run = run_on(found, "vllm", 1, requests=2)
        give, missing = found[0].connectors.give, ["once"]

        async def forgetful(name: str) -> tuple[int, str]:
            if missing:
                missing.pop()
                return 404, "{}"
            return await give(name)

        found[0].connectors.give = forgetful  # type: ignore[method-assign]
        report = run.go()
        run.assert_exact(report)
        assert [one.cause for one in run.journal.events if isinstance(one, Sent) and one.cause]
        assert any("KV load failed" in one.cause for one in run.journal.events if isinstance(one, Dropped))
        assert report.run.failed == 0 and report.counts.handed_over == 2
        run.assert_replays()


STARTED_SO = "start it with --disaggregation-mode"
NO_PARAMS = "has no kv_transfer_params: start it with --kv-transfer-config"
REFUSALS: list[tuple[list[Settings], bool, str]] = [
    (
        [Settings(nixl=True), Settings()],
        False,
        NO_PARAMS,
    ),
    (
        [Settings(), Settings(nixl=True)],
        False,
        NO_PARAMS,
    ),
    ([Settings("openai"), Settings("openai")], False, "is of kind openai, and only vllm hands KV over so"),
    ([Settings(nixl=True), Settings(nixl=True)], True, "is of kind vllm, and only sglang hands KV over so"),
    (
        [Settings("sglang"), Settings("sglang")],
        True,
        f"is to prefill: {STARTED_SO} prefill",
    ),
    (
        [settings("sglang", "prefill"), settings("sglang", "prefill")],
        True,
        f"is to decode: {STARTED_SO} decode",
    ),
]


@pytest.mark.parametrize(("both", "together", "told"), REFUSALS)
def test_servers_that_cannot_are_refused_in_one_sentence(
    both: list[Settings], together: bool, told: str
) -> None:
    with ExitStack() as stack:
        found = [stack.enter_context(FakeServer(one)) for one in both]
        servers = probe_all([one.url for one in found], None)
        with pytest.raises(UserError, match=told):
            probe_hand_overs(servers, Roles(frozenset({0}), together))


def test_a_server_that_takes_the_kv_of_nobody_is_found_out() -> None:
    """It answers as one that does, and computes the prompt again: its metrics tell."""
    with ExitStack() as stack:
        found = started(stack, "vllm", 1, 1)
        connectors = found[1].connectors

        async def alone(body: Any) -> None:
            return None

        connectors.fetch = alone  # type: ignore[method-assign, assignment]
        servers = probe_all([one.url for one in found], None)
        with pytest.raises(UserError, match="the second computed the prompt again"):
            probe_hand_overs(servers, Roles(frozenset({0})))
