"""What decisions cost in whole worlds of Llumnix, counted: reports looked at, instances asked, entries."""

from typing import Any

import pytest

from policies.llumnix.dispatch import Freeness
from policies.llumnix.migration import Llumnix
from servetwin.config.compose.compose import load_config
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.events import Sent

WORDS = [
    "system=llumnix_base", "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144", "uncertainty=off", "out=unused",
]  # fmt: skip
PER_INSTANCE = 3
PER_REQUEST_LOOKS, PER_REQUEST_ASKED = 2, 5


class Seen:
    """What a policy sees, and how many reports it asks for."""

    def __init__(self, inner: Any) -> None:
        self.inner, self.looks = inner, 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self.inner, name)

    def report(self, replica: int) -> Any:
        self.looks += 1
        return self.inner.report(replica)


@pytest.mark.parametrize("instances", [16, 256, 1024])
def test_a_dispatch_costs_as_little_among_1024_instances(
    instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    looks, kept = list[int](), list[int]()
    plain = Freeness.dispatch

    def dispatch(self: Freeness, request: Any, fleet: Any) -> tuple[int, str]:
        seen = Seen(fleet)
        answer = plain(self, request, seen)  # type: ignore[arg-type]
        looks.append(seen.looks)
        kept.append(max(len(one._heap) for one in self._orders[request.model]))
        return answer

    monkeypatch.setattr(Freeness, "dispatch", dispatch)
    trace = (
        "trace=llumnix_ss", f"trace.requests={PER_INSTANCE * instances}", f"trace.rate_per_s={2 * instances}"
    )  # fmt: skip
    done = execute(prepare(load_config([*WORDS, f"cluster=llumnix_{instances}x1", *trace], "simulate")))
    assert done.summary["requests"]["finished"] == len(looks) == PER_INSTANCE * instances
    assert sum(looks) / len(looks) < 16, "those that have new reports, and those on top"
    assert max(kept) <= 5 * instances + 64


class Asked:
    """A journal that keeps alone of how many instances the world was asked, by kind of event."""

    def __init__(self) -> None:
        self.all = self.most_when_sent = self.sent = 0

    def write(self, now_ns: int, event: Any, actions: Any, answers: Any = ()) -> None:
        self.all += len(answers)
        if type(event) is Sent:
            self.sent += 1
            self.most_when_sent = max(self.most_when_sent, len(answers))


@pytest.mark.parametrize("instances", [16, 256, 1024])
def test_rounds_and_migrations_look_at_few_instances_among_1024(
    instances: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """M-M, seven requests per instance in half of its memory, so that in most rounds somebody is short."""
    looks, sources = list[int](), list[int]()
    plain = Llumnix.pair

    def pair(self: Llumnix, view: Any) -> Any:
        seen = Seen(view)
        answer = plain(self, seen)  # type: ignore[arg-type]
        looks.append(seen.looks)
        sources.append(len(answer))
        return answer

    monkeypatch.setattr(Llumnix, "pair", pair)
    requests, asked = 7 * instances, Asked()
    words = (
        "trace=llumnix_mm", f"trace.requests={requests}", f"trace.rate_per_s={instances}",
        f"cluster=llumnix_{instances}x1", "engine.kv_tokens=6400",
        "system.migration.migrate_out_threshold=10",
    )  # fmt: skip
    execute(prepare(load_config([*WORDS, *words], "simulate")), asked)  # type: ignore[arg-type]
    assert instances == 16 or (sum(sources) > instances / 8 and asked.sent > 8), "there are migrations"
    assert sum(looks) < PER_REQUEST_LOOKS * requests
    assert asked.all < PER_REQUEST_ASKED * requests
    assert asked.most_when_sent <= 4, "both ends, and what the next decision looks at"
