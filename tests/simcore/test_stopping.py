"""A run that a rule ends: at the end of a request, with the recorder's facts until then and nothing after."""

from collections.abc import Sequence
from dataclasses import replace

import pytest

from servetwin.config.compose.compose import load_config
from servetwin.results.metrics import RunMetrics
from servetwin.run.simulate import execute, prepare
from serving.vocabulary.request import Request
from simcore.stopping import GO_ON, RunStopped, StoppingRecorder

REQUEST = Request(0, 0, 10, 5, "m")
WORDS = ("cluster=a100_x2", "trace=azure_conv_like", "trace.requests=60", "uncertainty=off", "out=none")


class AfterSome:
    """Stops after so many requests have ended, in whatever way; keeps what it was told."""

    def __init__(self, most: int) -> None:
        self.most, self.told = most, list[tuple[str, int, int]]()

    def _of(self, way: str, request: Request, finish_ns: int) -> str:
        self.told.append((way, request.id, finish_ns))
        return GO_ON if len(self.told) < self.most else f"{self.most} have ended"

    def finished(self, request: Request, output_tokens: int, first_token_ns: int, finish_ns: int) -> str:
        assert output_tokens > 0 and request.arrival_ns < first_token_ns <= finish_ns
        return self._of("finished", request, finish_ns)

    def refused(self, request: Request, reason: str) -> str:
        return self._of("refused", request, 0)

    def failed(self, request: Request, reason: str) -> str:
        return self._of("failed", request, 0)


@pytest.mark.parametrize(
    "words", [(), ("engine.max_model_len=900",), ("cluster=blitz_b", "system=blitzscale")]
)
def test_a_run_ends_at_the_request_that_the_rule_names(words: Sequence[str]) -> None:
    prepared = prepare(load_config([*WORDS, *words][len(words) > 1 :], "simulate"))
    whole, every = AfterSome(10**9), AfterSome(20)
    unstopped = execute(replace(prepared, stops=lambda *_: whole))
    stopped = execute(replace(prepared, stops=lambda *_: every))
    assert len(whole.told) == 60 and every.told == whole.told[:20]
    assert (unstopped.stopped, stopped.stopped) == ("", "20 have ended")
    assert unstopped.summary["ttft_ms"] == execute(prepared).summary["ttft_ms"]
    assert stopped.summary == {} and 0 < stopped.events < unstopped.events


@pytest.mark.parametrize("way", ["finished", "refused", "failed"])
def test_the_end_is_recorded_before_the_rule_is_asked(way: str) -> None:
    metrics, rule = RunMetrics(), AfterSome(1)
    recorder = StoppingRecorder(metrics, rule)
    with pytest.raises(RunStopped, match="1 have ended"):
        if way == "finished":
            recorder.finished(REQUEST, 5, 10, 20, 0, 0)
        else:
            getattr(recorder, way)(REQUEST, 20, "why")
    assert len(metrics.columns()["request"]) + len(metrics.unserved) == 1
    assert recorder.gaps == metrics.gaps, "the many calls between ends are the recorder's own"
    recorder.busy(0, 7)
    assert metrics.busy_ns == {0: 7}
