"""What a dispatch by freeness costs in whole worlds of Llumnix, counted: reports looked at, entries kept."""

from typing import Any

import pytest

from experiments.compose.compose import load_config
from experiments.run.simulate import execute, prepare
from policies.llumnix.dispatch import Freeness

WORDS = [
    "system=llumnix_base", "model=llama_7b", "engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800",
    "engine.max_model_len=12800", "engine.max_new_tokens=6144", "trace=llumnix_ss", "uncertainty=off",
    "out=unused",
]  # fmt: skip
PER_INSTANCE = 3


class Seen:
    """What a dispatcher sees, and how many reports it asks for."""

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
    trace = (f"trace.requests={PER_INSTANCE * instances}", f"trace.rate_per_s={2 * instances}")
    done = execute(prepare(load_config([*WORDS, f"cluster=llumnix_{instances}x1", *trace], "simulate")))
    assert done.summary["requests"]["finished"] == len(looks) == PER_INSTANCE * instances
    assert sum(looks) / len(looks) < 16, "those that have new reports, and those on top"
    assert max(kept) <= 5 * instances + 64
