"""realexec calibrate of a stock server: what a made-up server takes is found again, and a run uses it."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from realexec.http.calibration import FrontEndFit, front_end_fit
from servetwin.cli import main as cli
from servetwin.cli import realexec as realexec_cli
from servetwin.run.calibrated_server import steps_of
from tests.worlds.fake_openai import FakeServer, Settings

STEP_S, PREFILL_S, WAY_S = 0.06, 0.0004, 0.02
LIMITS = {"engine.max_num_seqs": "4", "engine.max_num_batched_tokens": "512"}


@pytest.fixture
def server() -> Iterator[FakeServer]:
    made = Settings(step_s=STEP_S, prefill_s_per_token=PREFILL_S, way_in_s=WAY_S, max_num_seqs=4)
    with FakeServer(made) as running:
        yield running


def calibrated(server: FakeServer, out: Path, *more: str) -> int:
    words = LIMITS | {"model": "tiny_llama", "quick": "true", "out": f"{out}"}
    words |= dict(word.split("=", 1) for word in more)
    return realexec_cli.run(["calibrate", server.url, *(f"{key}={value}" for key, value in words.items())])


def test_steps_and_front_end_of_a_server_are_measured_and_a_simulation_uses_them(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    out = tmp_path / "profile"
    assert calibrated(server, out, "repeats=3") == 0
    said = capsys.readouterr().out
    assert f"engine.profile={out} engine.front_end={out}/front_end.yaml" in said and "engine=vllm_v1" in said
    record = json.loads((out / "calibration.json").read_text(encoding="utf-8"))
    rows = {
        (
            row["prefill_tokens"],
            row["decode_sequences"],
            row["context_tokens"] // max(1, row["decode_sequences"]),
        ): row
        for row in record["steps"]
    }
    # A step sleeps at least so long; on a busy machine it takes longer, and so does everything below.
    for (tokens, sequences, _), row in rows.items():
        assert row["p10_s"] >= (STEP_S if sequences else STEP_S + PREFILL_S * tokens) * 0.98
    assert {sequences for tokens, sequences, _ in rows if not tokens} == {1, 4}
    mixed = {(tokens, sequences) for tokens, sequences, _ in rows if tokens and sequences}
    assert mixed == {(16, 3), (128, 3)}  # with quick=true: beside all but one of the batch
    front = yaml.safe_load((out / "front_end.yaml").read_text(encoding="utf-8"))
    assert front["way_in_s"] >= WAY_S * 0.9 and front["prompt_token_s"] < PREFILL_S
    words = (
        "model=tiny_llama", "cluster=local_1x1", "engine=vllm_v1",
        f"engine.version={record['server']['version']}",
        f"engine.profile={out}", f"engine.front_end={out}/front_end.yaml", "engine.max_num_seqs=4",
        "engine.max_num_batched_tokens=512", "engine.kv_tokens=4096", "trace=poisson", "trace.rate_per_s=2",
        "trace.lengths=64x8", "trace.requests=20",
    )  # fmt: skip
    assert cli.run(["simulate", *words, f"out={tmp_path / 'twin'}"]) == 0
    summary = json.loads((tmp_path / "twin" / "summary.json").read_text(encoding="utf-8"))
    assert summary["tpot_ms"]["p50"] >= STEP_S * 1e3 * 0.98
    assert summary["ttft_ms"]["p50"] >= summary["ttft_engine_ms"]["p50"] + 0.9 * WAY_S * 1e3


def test_a_calibration_that_was_stopped_goes_on(
    server: FakeServer, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    out = tmp_path / "profile"
    server.refuses = "not now"
    assert calibrated(server, out) == 2 and "not now" in capsys.readouterr().err
    server.refuses = ""
    assert calibrated(server, out, "repeats=1") == 0
    capsys.readouterr()
    assert calibrated(server, out) == 2
    assert "exists" in capsys.readouterr().err
    assert calibrated(server, out, "repeats=1", "overwrite=true") == 0


@pytest.mark.parametrize(
    ("words", "parts"),
    [
        (
            ("engine.max_num_seqs=2000", "engine.max_num_batched_tokens=2048"),
            ["engine.max_num_seqs=2000", "room for 16,384 tokens"],
        ),
        (("system=vllm",), ["system=vllm", "realexec calibrate"]),
        (("http.servers=[http://127.0.0.1:1]",), ["http.servers"]),
    ],
)
def test_what_cannot_be_measured_is_said(
    server: FakeServer,
    tmp_path: Path,
    words: tuple[str, ...],
    parts: list[str],
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert calibrated(server, tmp_path / "profile", *words) == 2
    said = capsys.readouterr().err
    assert all(part in said for part in parts), said
    assert not (tmp_path / "profile").exists()


def entry(client_s: float, engine_s: float | None, **more: Any) -> dict[str, Any]:
    return {"client_s": client_s, "engine_s": engine_s, **more}


def test_a_front_end_is_fitted_to_what_lies_around_the_engine() -> None:
    """4 ms alone, of which a process is busy for 2, and 2 us per token; 0.5 ms for each that decodes.

    One slow repeat of three does not count.
    """
    entries = {
        f"prompt {tokens} #{repeat}": entry(0.1 + 0.004 + 2e-6 * tokens + (repeat == 2) * 0.5, 0.1)
        for tokens in (16, 256, 1024)
        for repeat in range(3)
    }
    entries |= {  # sent at once: half of the others' 2 + 0.5 ms each
        f"decode {count} 16 #0": entry(0.1 + 0.004 + 0.00125 * (count - 1), 0.1) for count in (1, 2, 4)
    }
    wait_s = 0.02 / 2 + 0.05  # half of a step, and the one that is shared
    entries |= {
        f"mixed {tokens} {count} #0": {
            "client_s": 0.004 + tokens * 2e-6 + wait_s + 0.0005 * count, "step_s": 0.02, "mixed_s": 0.05,
        }
        for count in (1, 4)
        for tokens in (16, 128)
    }  # fmt: skip
    entries["mixed 16 2 #0"] = {}  # the others were done too soon
    later = {
        name: {**one, "client_s": one["client_s"] + 0.02} if name.startswith("mixed") and one else one
        for name, one in entries.items()
    }
    found, again = front_end_fit(entries), front_end_fit(later, asynchronous=True)
    assert found is not None and again is not None  # one step more is scheduled before
    assert again.running_s == pytest.approx(found.running_s)
    assert found.way_in_s == pytest.approx(0.002) and found.request_s == pytest.approx(0.002)
    assert found.prompt_token_s == pytest.approx(2e-6)
    assert found.running_s == pytest.approx(0.0005) and found.error_s == pytest.approx(0, abs=1e-9)
    without = {name: {**one, "engine_s": None} for name, one in entries.items()}
    assert front_end_fit(without) is None
    quicker = {f"prompt {tokens} #0": entry(0.1, 0.2) for tokens in (16, 32)}
    assert front_end_fit(quicker) == FrontEndFit(
        way_in_s=0, request_s=0, prompt_token_s=0, running_s=0, error_s=0
    )


def test_a_step_is_the_median_of_its_repeats_and_short_windows_do_not_count() -> None:
    entries = {
        "prompt 16 #0": entry(0.05, 0.03), "prompt 16 #1": entry(0.06, 0.05),
        "prompt 16 #2": entry(0.06, 0.04),
        "batch 32 2 #0": {"engine_s": 0.09}, "batch 32 2 #1": {"engine_s": None},
        "decode 2 16 #0": entry(0.1, 0.1, steps=6, step_s=0.01, context_tokens=40),
        "decode 2 16 #1": entry(0.1, 0.1, steps=2),
        "decode 4 16 #0": entry(0.1, 0.1, steps=1),
    }  # fmt: skip
    steps = steps_of(entries)
    assert {step: spread.median for step, spread in steps.items()} == {
        (16, 1, 0, 0, 0): 0.04,
        (64, 2, 0, 0, 0): 0.09,
        (0, 0, 0, 2, 40): 0.01,
    }
    entries |= {
        "mixed 16 2 #0": {"client_s": 0.1, "step_s": 0.02, "mixed_s": 0.05, "context_tokens": 60},
        "mixed 16 2 #1": {"client_s": 0.1, "step_s": 0.02, "mixed_s": 0.03, "context_tokens": 64},
        "mixed 128 2 #0": {},
    }
    mixed = {step: spread.median for step, spread in steps_of(entries).items() if step[0] and step[3]}
    assert mixed == {(16, 1, 0, 2, 62): 0.04}
    entries["prompt 16 #1"]["engine_s"] = None
    assert steps_of(entries)[16, 1, 0, 0, 0].median == 0.06  # the client's, for all
