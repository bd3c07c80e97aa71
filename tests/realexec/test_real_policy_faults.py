"""In a real run a policy's fault is told as in a simulation, and its workers are ended."""

from pathlib import Path

import pytest

from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from servetwin.cli import realexec as realexec_cli
from tests.worlds.faulty_policies import answering, raising, sentence
from tests.worlds.real_workers import own_workers

pytestmark = pytest.mark.real

WORDS = ("trace=azure_conv_like", "trace.tokens_scale=0.05", "trace.limit=3", "trace.rate_per_s=5000")


@pytest.mark.parametrize(
    ("policy", "method", "fault", "did"),
    [
        (
            LeastOutstanding,
            "dispatch",
            answering((99, "x")),
            "it returned (99, 'x'), but replica 99 accepts no",
        ),
        (ChunkedPrefill, "choose", raising(SystemExit(0)), "it raised SystemExit: 0"),
    ],
)
def test_a_real_run_ends_with_2_and_the_sentence(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    policy: type,
    method: str,
    fault: object,
    did: str,
) -> None:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    monkeypatch.setattr(policy, method, fault)
    status = realexec_cli.run(["run", "workers=2", "journal=true", f"out={tmp_path / 'out'}", *WORDS])
    told = capsys.readouterr().err
    assert status == 2 and told.startswith(f"realexec: {sentence(policy, method)}Arrived (request 0) at "), (
        told
    )
    assert did in told and "; it must return " in told
    assert list(tmp_path.iterdir()) == [] and own_workers() == {}
