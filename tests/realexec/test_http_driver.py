"""The driver of stock engines against made-up servers: tokens, refusals, losses, moves, replay."""

import asyncio
from contextlib import ExitStack
from functools import partial

import pytest

from policies.llumnix.dispatch import Freeness
from realexec.http.driver import probe_all
from realexec.http.server_state import Times
from realexec.http.world import HttpWorld
from realexec.world.arrivals import prompt_ids
from realexec.world.tracking import Tracker
from serving.vocabulary.actions import Assign
from serving.vocabulary.errors import UserError
from serving.vocabulary.events import Dropped, Lost, Observed
from serving.vocabulary.request import Request
from tests.worlds.fake_openai import FakeServer, Settings
from tests.worlds.refusals import refuses
from tests.worlds.stock_rig import OnceAway
from tests.worlds.stock_runs import MS, QUICK, SEED, VOCAB, Failing, Run, after_tokens


def servers(stack: ExitStack, count: int = 2, settings: Settings | None = None) -> list[FakeServer]:
    return [stack.enter_context(FakeServer(settings or Settings(step_s=0.002))) for _ in range(count)]


def test_sglang_is_asked_to_abort_by_its_route_as_in_a_run() -> None:
    """A server that goes on when its client leaves, and ends a request that it is told to end."""
    with FakeServer(Settings("sglang", step_s=0.02, aborts=False)) as server:
        (found,) = probe_all([server.url], None)
        assert found.aborts is True


@pytest.mark.parametrize("kind", ["vllm", "sglang"])
def test_requests_are_dispatched_and_answered_token_by_token_and_the_journal_replays(kind: str) -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(kind, step_s=0.002))  # type: ignore[arg-type]
        run = Run([one.url for one in found])
        report = run.go()
        run.assert_exact(report)
        assert report.run.finished == 6 and len(run.recorder.done) == 6
        assert all(len(one.jobs) >= 3 for one in found)  # one of the probe, one aborted, and its share
        assert any(isinstance(one, Observed) and one.total_blocks for one in run.journal.events)
        run.assert_replays()


def test_what_a_server_is_and_can_do_is_asked() -> None:
    with ExitStack() as stack:
        vllm, sglang, plain = (
            stack.enter_context(FakeServer(Settings(kind)))  # type: ignore[arg-type]
            for kind in ("vllm", "sglang", "openai")
        )
        told = [one.facts() for one in probe_all([vllm.url, f"{sglang.url}/v1", plain.url], None)]
    assert [one["kind"] for one in told] == ["vllm", "sglang", "openai"]
    assert [one["token_ids"] for one in told] == [True, True, False]
    assert [one["aborts"] for one in told] == [True, True, None]
    assert [one["kv_tokens"] for one in told] == [16384, 16384, None]
    assert [one["max_model_len"] for one in told] == [4096, 4096, None]


@pytest.mark.parametrize("route", ["/server_info", "/get_server_info"])
def test_sglang_without_metrics_is_known_by_its_own_route_by_either_name(route: str) -> None:
    with FakeServer(Settings("sglang", metrics=False, info_route=route)) as server:
        (found,) = probe_all([server.url], None)
        told = found.facts()
        assert [told[key] for key in ("kind", "version", "kv_tokens", "block_tokens", "aborts")] == [
            "sglang", "0.0.fake", 16384, 1, None,
        ]  # fmt: skip
        run = Run([server.url], requests=2)
        run.assert_exact(run.go())


def test_a_server_that_serves_on_without_its_client_is_found_out() -> None:
    with FakeServer(Settings(step_s=0.02, aborts=False)) as server:
        (found,) = probe_all([server.url], None)
        assert found.aborts is False


def test_no_server_at_an_address_is_said() -> None:
    with FakeServer() as server:
        url = server.url
    refuses(UserError, r"no server answers at http://127\.0\.0\.1", probe_all, [url], None)
    refuses(UserError, "names a server twice", probe_all, [url, url], None)
    refuses(UserError, r"is no address of a server", probe_all, ["ftp://x"], None)


def test_a_server_that_is_killed_in_the_middle_of_streams_loses_no_request_and_no_token() -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(step_s=0.004))
        run = Run([one.url for one in found], outputs=100, gap_ms=2)
        run.journal.hook = after_tokens(found[0].die, found[0])
        report = run.go()
        run.assert_exact(report)
        assert [replica for replica, _ in report.run.lost] == [0]
        assert report.counts.resumed >= 1 and report.run.failed == 0
        run.assert_replays()


def test_requests_of_a_lost_server_fail_where_the_policy_says_so_and_no_others() -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(step_s=0.004))
        run = Run([one.url for one in found], outputs=100, gap_ms=2, elsewhere=False)
        run.journal.hook = after_tokens(found[0].die, found[0])
        report = run.go()
        assert run.recorder.failures.keys() and report.run.failed == len(run.recorder.failures)
        assert {0, 2, 4} >= run.recorder.failures.keys()
        run.assert_exact(report, but=list(run.recorder.failures))
        run.assert_replays()


def test_a_connection_that_breaks_is_not_a_server_that_is_lost() -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(step_s=0.004))
        run = Run([one.url for one in found], outputs=100, gap_ms=2)
        run.journal.hook = after_tokens(found[0].break_connections, found[0])
        report = run.go()
        run.assert_exact(report)
        assert report.run.lost == () and any(isinstance(one, Dropped) for one in run.journal.events)
        run.assert_replays()


def test_a_server_that_stops_to_answer_is_lost() -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(step_s=0.004))
        run = Run([one.url for one in found], outputs=100, gap_ms=2)
        run.journal.hook = after_tokens(lambda: setattr(found[0], "frozen", True), found[0], until=Lost)
        report = run.go(Times(report_s=0.01, scrape_s=0.02, timeout_s=1.0, silence_s=0.5))
        found[0].frozen = False
        run.assert_exact(report)
        assert [replica for replica, _ in report.run.lost] == [0]
        run.assert_replays()


def test_a_request_that_runs_goes_on_elsewhere_with_the_same_tokens() -> None:
    with ExitStack() as stack:
        found = servers(stack, 2, Settings(step_s=0.004))
        run = Run([one.url for one in found], requests=3, outputs=60, gap_ms=2, migrator=OnceAway)
        report = run.go()
        run.assert_exact(report)
        assert report.counts.moved == 1 and report.run.lost == ()
        moved = run.journal.moves[0]
        ended = [one.ended for one in found[0].jobs if one.rid == "" and len(one.prompt) == 24]
        assert "aborted" in ended, "the server that it left has stopped it"
        resumed = [one for one in found[1].jobs if len(one.prompt) > 24]
        assert resumed and resumed[0].prompt[:24] == list(prompt_ids(SEED, moved, 24, VOCAB))
        run.assert_replays()


def test_where_tokens_do_not_come_back_a_move_is_refused() -> None:
    with ExitStack() as stack:
        plain = [stack.enter_context(FakeServer(Settings("openai", step_s=0.004))) for _ in range(2)]
        run = Run([one.url for one in plain], requests=3, outputs=60, gap_ms=2, migrator=OnceAway)
        refuses(UserError, r"asks for Preempt .* gives no token ids back", run.go)


def test_a_plain_server_is_served_by_pieces_of_text() -> None:
    with FakeServer(Settings("openai", step_s=0.002)) as server:
        run = Run([server.url])
        report = run.go()
        assert {one[1] for one in run.recorder.done.values()} == {20} and report.counts.observed == 0
        run.assert_replays()


def test_a_request_that_is_given_to_a_server_whose_loss_is_not_told_yet_waits_for_that() -> None:
    """Else its stream there would end with nobody to tell, or go on beside the one elsewhere."""
    with FakeServer() as server:
        found = probe_all([server.url], None)
        jobs = len(server.jobs)

        async def play() -> HttpWorld:
            tracker = Tracker(Failing(), 1)
            world = HttpWorld(found, tracker=tracker, times=QUICK, clock=lambda: 0)
            tracker.arrive(Request(0, 0, 4, 4, "m"), (1, 2, 3, 4), 4)
            world.lose(0, "killed")
            world.carry_out(Assign(0, 0, "it has no requests"))
            await asyncio.sleep(0.1)
            return world

        world = asyncio.run(play())
        assert list(world.facts) == [Lost(0, "killed")] and not world.states[0].streams
        assert len(server.jobs) == jobs


def test_what_a_server_refuses_fails_with_its_words() -> None:
    with FakeServer() as server:
        run = Run([server.url], requests=2)
        server.refuses = "not today"
        run.go()
        assert run.recorder.failures == {0: "400 not today", 1: "400 not today"}
        run.assert_replays()


def test_freeness_reads_what_servers_tell_of_their_memory() -> None:
    """The second has an eighth of the memory: the first takes more, by what their metrics say."""
    with ExitStack() as stack:
        large = stack.enter_context(FakeServer(Settings(step_s=0.004, kv_blocks=256)))
        small = stack.enter_context(FakeServer(Settings(step_s=0.004, kv_blocks=32)))
        free = partial(Freeness, rule="paper", reports_at="changes")
        run = Run([large.url, small.url], requests=12, outputs=40, gap_ms=40, dispatcher=free)
        report = run.go()
        run.assert_exact(report)
        replicas = [done[0] for done in run.recorder.done.values()]
        assert replicas.count(0) > replicas.count(1)
        run.assert_replays()


def test_tokens_are_timed_as_the_server_paces_them() -> None:
    with FakeServer(Settings(step_s=0.02)) as server:
        run = Run([server.url], requests=1, outputs=20)
        run.go()
        _, tokens, first_ns, last_ns, _ = run.recorder.done[0]
        assert tokens == 20 and last_ns - first_ns >= 19 * 20 * MS, "no token is there before it is sent"
        assert len(run.recorder.all_gaps) == 19
