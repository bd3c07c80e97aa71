"""``realexec fidelity``: what it refuses, what its page claims, and two cases on real workers."""

import json
from pathlib import Path
from typing import Any

import pytest

from servetwin.cli import realexec as realexec_cli
from servetwin.cli.fidelity_page import as_page, claim
from servetwin.cli.fidelity_runs import BOUNDS, CASES, LOADS, SCALING, FidelityOptions, holds, words_of
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.report.number_text import NOTHING
from servetwin.run.real_folder import simulated_folder
from servetwin.run.write_results import write_config
from tests.worlds.calibrations import law_us, profile

NOISY = "workers waited for a core"
APART = "the real runs differ too much among themselves: the mean ttft_ms by 40%"


def case(name: str, ratio: float = 0.9, refused: tuple[str, ...] = ()) -> dict[str, Any]:
    """As fidelity.json has it: a D_sim / D_repeat of so much in both metrics."""
    statistics = {"mean": 1.02, "p50": 1.0, "p90": 1.1, "p99": None}
    one: dict[str, Any] = {
        "requests": 20, "ratio": statistics, "d_sim_over_d_repeat": ratio, "real_means_apart": 0.1,
        "verdict": "agrees" if ratio <= 1 else "differs", "decides": not refused,
        "interval": [ratio - 0.1, ratio + 0.1], "unusual_run": 1.21,
    }  # fmt: skip
    one["with_all"] = one | {"d_sim_over_d_repeat": 9.87}
    agreement = {
        "timing": {"ttft_ms": one, "e2e_ms": one}, "refused": list(refused), "decisions": [],
        "repeated_decisions": [], "agrees": ratio <= 1 and not refused, "disturbed": None,
    }  # fmt: skip
    moved = {key: [1, 2] for key in ("loads", "live_passes", "migrations", "handoffs")} | {
        "transport": ["tcp"] * 2
    }
    return {
        "keys": dict(CASES[name]), "agreement": agreement, "tokens": {"checked": 1234, "different": 0},
        "moved": moved, "requests": {"finished": [20, 20, 20], "failed": [0, 0, 0]},
        "quiet": [{"quiet": True, "busy_share": 0.02}] * 2,
    }  # fmt: skip


def found(noisy: tuple[str, ...] = (), **cases: Any) -> dict[str, Any]:
    machine = dict.fromkeys(("python", "torch", "transformers"), "2") | {"system": "Linux-6-x", "cores": 2}
    steps = {"wall_over_cpu": 1.1, "date": "2026", "workers_busy": 2, "steps": 9, "noisy": list(noisy)}
    return {
        "title": None, "command": "realexec fidelity out=DIR", "repeats": 2, "date": "2026-01-02",
        "cut_down": False,
        "code": ["1"], "keys": {}, "profile": steps, "cases": cases, "holds": holds(cases),
        "machine": machine | {"processor": "CPU", "memory_bytes": 8e9, "cuda_devices": []},
        "rates": {"raw": {"memory to memory": 5e9}, "ways": {"link by tcp": 1e9, "link by nixl": None}},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("ratios", "upto"),
    [((0.9, 0.8, 0.7), 2.5), ((0.9, 0.8, 1.7), 0.6), ((0.9, 1.2, 0.7), 0.3), ((1.2, 0.8, 0.7), None)],
)
def test_the_range_ends_at_the_first_load_that_does_not_agree(
    ratios: tuple[float, ...], upto: float | None
) -> None:
    cases = {name: case(name, ratio) for name, ratio in zip(LOADS, ratios, strict=True)}
    assert holds(cases) == {"ttft_ms": upto, "e2e_ms": upto}
    told = "nowhere" if upto is None else f"{upto:g}"
    assert f"| TTFT | {told} |" in as_page(found(**cases))
    refused = cases | {"light": case("light", refused=(APART,))}
    assert holds(refused) == {"ttft_ms": None, "e2e_ms": None}
    assert holds({"scaling": case("scaling")}) == {}


def test_a_page_claims_only_what_may_be_claimed() -> None:
    agreeing, apart = case("light"), case("knee", refused=(APART,))
    told = "the simulation cannot be told from a rerun"
    assert claim(found(light=agreeing)) == f"**2 of 2 rows decide; in 2 of them {told}, in light in all.**"
    assert claim(found(light=case("light", 1.4))) == f"**2 of 2 rows decide; in 0 of them {told}.**"
    mixed = found(light=agreeing, knee=apart)
    assert claim(mixed) == f"**2 of 4 rows decide; in 2 of them {told}, in light in all.**"
    assert as_page(mixed).count("| not claimed |") == 2 and f"* knee: {APART}" in as_page(mixed)
    some = case("knee", 1.4)
    some["agreement"]["timing"]["e2e_ms"] = agreeing["agreement"]["timing"]["e2e_ms"]
    assert claim(found(knee=some)) == f"**2 of 2 rows decide; in 1 of them {told} (knee).**"
    noisy = found((NOISY,), light=case("light", refused=(NOISY,)), knee=case("knee", refused=(NOISY, APART)))
    assert claim(noisy).startswith("**Nothing is claimed: the machine was not quiet")
    page = as_page(noisy)
    assert f"* light, knee: {NOISY}" in page and f"* knee: {APART}" in page and NOISY in claim(noisy)
    assert "| agrees |" not in page and page.count("| not claimed |") == 4


def test_a_short_try_and_a_busy_machine_claim_nothing() -> None:
    short = found(light=case("light")) | {"cut_down": True}
    assert claim(short).startswith("**Nothing is claimed: this was a shorter try")
    assert "| agrees |" not in as_page(short)
    busy = case("light")
    busy["quiet"] = [{"quiet": False, "busy_share": 0.5}, {"quiet": True, "busy_share": 0.1}]
    assert claim(found(light=busy)).startswith("**2 of 2 rows decide"), "one of them may be disturbed"
    busy["quiet"] = [busy["quiet"][0]] * 2
    assert claim(found(light=busy)).endswith("used the cores before several runs of light.**")


def test_a_disturbed_run_is_named_with_its_numbers() -> None:
    assert "No run was disturbed" in as_page(found(light=case("light")))
    one = case("light")
    one["agreement"]["disturbed"] = "real-2"
    assert "| light | TTFT | real-2 | 9.87 | 10% | agrees |" in as_page(found(light=one))


def test_a_scaling_case_that_loaded_nothing_says_so_at_the_head_of_its_page() -> None:
    scaling = case("scaling")
    assert "loaded nothing" not in as_page(found(scaling=scaling))
    scaling["moved"]["loads"] = [1, 0]
    said = "1 of 2 real runs of the case `scaling` loaded nothing: its rows are not of a system that scales."
    assert claim(found(scaling=scaling)).endswith(f"** **{said}**")
    noisy = claim(found((NOISY,), scaling=case("scaling", refused=(NOISY,)) | {"moved": scaling["moved"]}))
    assert noisy.startswith("**Nothing is claimed") and "loaded nothing" in noisy
    scaling["moved"]["loads"] = [1, 1]
    assert "loaded nothing" not in claim(found(light=case("light"), scaling=scaling))


@pytest.mark.parametrize("faster", [1, 30])
def test_the_scaling_case_loads_on_machines_of_any_speed(faster: float, tmp_path: Path) -> None:
    """Simulated with a made-up profile, of a machine so many times as fast: nothing is typed in seconds."""
    profile(tmp_path / "profile", lambda *step: law_us(*step) / faster)
    asked = FidelityOptions(tmp_path, 2, True, (SCALING,), {"trace.limit": "48"})
    words, keys = words_of(asked, SCALING, tmp_path / "profile")
    real = tmp_path / "real"
    real.mkdir()
    write_config(real, resolved_yaml(load_config(words, "realexec")))
    twin = load_config([f"config={real}", f"out={tmp_path}/twin", "overwrite=true"], "simulate")
    summary, _ = simulated_folder(twin)
    link_s = 15_803_392 / 1e9  # over the link of the made-up profile
    upper_s = max(json.loads(keys[BOUNDS])[1], link_s)
    assert summary["loads"]["count"] >= 1
    assert summary["loads"]["seconds"]["mean"] == pytest.approx(upper_s, rel=0.02)


def test_a_page_has_every_number() -> None:
    page = as_page(found(scaling=case("scaling", 2.5)))
    for row in (
        f"| scaling | 3 | TTFT | 20 | 1.02 | 1.00 | 1.10 | {NOTHING} | 2.50 | 2.40 to 2.60 | 1.21 | 10% |",
        "| scaling | 1, 2 | 1, 2 | 1, 2 | 1, 2 | tcp | 1,234 | 0 | 0 |",
        "| raw: memory to memory | 5,000 |", f"| link by nixl | {NOTHING} |",
        "| machine | CPU, 2 cores, 8 GB |",
        "| noisy | no |", "# Fidelity: CPU, 2 cores", "    $ realexec fidelity out=DIR",
    ):  # fmt: skip
        assert row in page, page


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["out=OUT", "repeat=1"], "repeat=1 is out of range: write a number from 2 to 100"),
        (["repeat=2"], "out= is missing"),
        (["out=OUT", "system=vllm"], "system=vllm is said by each case: leave it out"),
        (["out=OUT", "trace.utilization=2"], "is said by each case"),
        (["out=OUT", "cases=[light,none]"], "there is no case 'none': write cases= with some of light, knee"),
        (["out=OUT", "workers=none"], "workers"),
        (
            ["out=OUT", "engine.profile=OUT"],
            "has no calibration.json",
        ),
    ],
)
def test_words_that_do_not_fit_are_refused(
    words: list[str], said: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    status = realexec_cli.run(["fidelity", *(word.replace("OUT", f"{tmp_path}/out") for word in words)])
    assert not (tmp_path / "out").exists()
    assert status == 2 and said in capsys.readouterr().err


def test_a_folder_of_other_words_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out"
    out.mkdir()
    (out / "mine.txt").touch()
    assert realexec_cli.run(["fidelity", f"out={out}"]) == 2
    assert "has something else in it" in capsys.readouterr().err
    assert [path.name for path in out.iterdir()] == ["mine.txt"]


@pytest.mark.real
def test_cases_on_real_workers_and_their_twins(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a made-up profile. The same command again runs nothing anew; nothing depends on how fast it is."""
    pytest.importorskip("torch")
    pytest.importorskip("transformers")
    profile(tmp_path / "profile")
    small = ("trace.limit=6", "trace.tokens_scale=0.03", f"engine.profile={tmp_path}/profile")
    words = ["fidelity", *small, "quick=true", "repeat=2", "cases=[light,scaling]", f"out={tmp_path}/out"]
    assert realexec_cli.run(words) == 0
    assert "light: real run 2 of 2" in capsys.readouterr().err
    told = json.loads((tmp_path / "out" / "fidelity.json").read_text())
    assert list(told["cases"]) == ["light", "scaling"] and set(told["holds"]) == {
        "ttft_ms",
        "tpot_ms",
        "e2e_ms",
    }
    for one in told["cases"].values():
        assert one["tokens"]["checked"] > 0 == one["tokens"]["different"]
        assert set(one["agreement"]["timing"]) >= {"ttft_ms", "e2e_ms"}
        assert len(one["agreement"]["decisions"]) == 2 and len(one["agreement"]["repeated_decisions"]) == 1
        assert one["requests"]["finished"] == [6, 6, 6]
    assert told["rates"]["raw"]["memory to memory"] > 0 < told["rates"]["ways"]["link by tcp"]
    assert "host" not in told["machine"] and str(tmp_path) not in (tmp_path / "out" / "page.md").read_text()
    assert realexec_cli.run([*words, "title=a title"]) == 0
    assert "real run" not in capsys.readouterr().err
    assert (tmp_path / "out" / "page.md").read_text().startswith("# Fidelity: a title\n")
