"""The terms of starting an engine: the arithmetic of their values, and how far off published starts are."""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import pytest

from hwmodels.catalogue import load_llm
from hwmodels.errors import HardwareError
from hwmodels.loading.start_terms import load_start_terms
from hwmodels.loading.starting import (
    Starting,
    after_weights,
    before_weights,
    seconds_of,
    serves_while_loading,
)
from hwmodels.loading.startup import start_up_names

VERSIONS = ("0.6.0", "0.9.1", "0.10.1.1", "0.19.0")


def best(least: float, most: float) -> float:
    """The value whose largest relative error against both is smallest."""
    return 2 * least * most / (least + most)


def test_every_term_has_a_value_and_a_source() -> None:
    for name in start_up_names():
        for version in VERSIONS if name == "vllm" else (None,):
            terms = load_start_terms(name, version)
            assert all(terms.sources.values()) and len(terms.sources) == 13
            assert all(math.isfinite(value) and value >= 0 for value in terms.of(80, 8).__getstate__())  # type: ignore[attr-defined]


def test_the_version_chooses_the_entry() -> None:
    checks = {version: load_start_terms("vllm", version).of(80, 8).p2p_check for version in VERSIONS}
    assert [round(check) for check in checks.values()] == [30, 60, 0, 0]
    assert load_start_terms("vllm") == load_start_terms("vllm", "0.19.0") == load_start_terms("vllm", "main")
    with pytest.raises(HardwareError, match=r"has vllm only from 0\.6 on, not 0\.5\.4: write a later engine"):
        load_start_terms("vllm", "0.5.4")
    with pytest.raises(HardwareError, match="unknown start-up 'triton'"):
        load_start_terms("triton")


def test_values_are_those_of_the_measurements_they_name() -> None:
    terms = load_start_terms("vllm", "0.10.1.1")
    per_layer = [19.37 / 32, 61 / 80, 28.77 / 32, 85 / 80, 111 / 94]
    assert terms.compile_s_per_layer == pytest.approx(best(min(per_layer), max(per_layer)), rel=2e-3)
    cached = [16 / 80, 23 / 94, (5.03 + 4.19) / 32]
    assert terms.compile_cached_s_per_layer == pytest.approx(best(min(cached), max(cached)), rel=2e-3)
    assert terms.process_s + terms.context_s == 10 + 7.5
    assert terms.profiling_s == pytest.approx(34.26 - 28.77, abs=0.02)
    graph_s = (7.6 - 0.35) / 130
    assert terms.graph_s_per_layer == pytest.approx(graph_s / 32, rel=1e-3)
    assert terms.graphs_s == pytest.approx(0.35 - graph_s, abs=1e-3)
    slept = [16.06e9 / 5.7, 6.43e9 / 3.57]
    assert terms.sleep_bytes_per_s == pytest.approx(sum(slept) / 2, rel=3e-3)
    old, older = load_start_terms("vllm", "0.9.1"), load_start_terms("vllm", "0.6.0")
    assert old.graph_s_per_layer == pytest.approx(best(17 / 67 / 28, 60 / 67 / 80), rel=1e-2)
    assert older.graph_s_per_layer == pytest.approx(best(10 / 35 / 32, 15 / 35 / 32), rel=2e-3)


def test_graphs_are_counted_as_the_engines_capture_them() -> None:
    counts = {version: load_start_terms("vllm", version).graphs.count(1024) for version in VERSIONS}
    assert list(counts.values()) == [35, 67, 67, 2 * 51]
    assert (
        load_start_terms("vllm").graphs.count(128) == 35 + 19
    )  # piecewise to 256, whole decode steps to 128
    assert load_start_terms("blitzscale").graphs.count(1024) == 0


@dataclass(frozen=True)
class Told:
    """A measurement of others beside what the catalogue gives for it."""

    what: str
    measured_s: float
    given_s: float


def told() -> list[Told]:
    """Published starts whose engine and size the catalogue has; none of them is fitted to alone."""
    a100, h100 = load_start_terms("vllm", "0.10.1.1"), load_start_terms("vllm", "0.11.0")
    seven, llama70, qwen = a100.of(32, 1), h100.of(80, 4, 1024), h100.of(94, 8, 1024)
    fp8 = load_start_terms("vllm", "0.9.1").of(80, 8, 1024)
    most_graphs = a100.graphs_s + a100.graph_s_per_layer * 32 * 131
    rest = seven.compile_cached + seven.profiling
    before = seconds_of(before_weights("cold", seven, True))
    return [
        Told("A100 7B engine init, 1 graph", 18, rest + 0.35),
        Told("A100 7B engine init, 131 graphs", 26, rest + most_graphs),
        Told("A100 7B wall, 1 graph", 43, before + 7.5 + rest + 0.35),
        Told("A100 7B wall, 131 graphs", 51, before + 7.5 + rest + most_graphs),
        Told("H100 70B tp4 compile", 61, llama70.compile_whole),
        Told("H100 70B tp4 compile, cached", 16, llama70.compile_cached),
        Told("H100 70B tp4 graphs", 16.5, llama70.graphs),
        Told("H100 235B tp8 compile", 111, qwen.compile_whole),
        Told("H100 235B tp8 compile, cached", 23, qwen.compile_cached),
        Told("H100 235B tp8 graphs", 44, qwen.graphs),
        Told("H100 70B FP8 tp8 P2P check", 60, fp8.p2p_check),
        Told("H100 70B FP8 tp8 compile", 85, fp8.compile_whole),
        Told("H100 70B FP8 tp8 graphs", 60, fp8.graphs),
    ]


# What is off by more than a quarter, and by how much: found out, not tuned away
# (docs/explanation/STARTUP.md).
FAR: Mapping[str, float] = {
    "A100 7B engine init, 1 graph": -0.26,
    "H100 235B tp8 compile": -0.32,
    "H100 235B tp8 graphs": -0.61,
}


@pytest.mark.parametrize("one", told(), ids=lambda one: one.what)
def test_published_starts_are_within_a_quarter_but_for_those_named(one: Told) -> None:
    error = one.given_s / one.measured_s - 1
    if one.what in FAR:
        assert error == pytest.approx(FAR[one.what], abs=0.01)
    else:
        assert abs(error) <= 0.25, f"{one.given_s:.2f} s for {one.measured_s} s"


def test_a_wake_is_its_bytes_over_pcie_and_little_more() -> None:
    """0.33 s of an 8B and about 3 s of 64 GiB; neither source tells its GPU."""
    wake_s = load_start_terms("vllm").wake_s
    h100, a100 = 0.86 * 64e9, 0.75 * 32e9
    assert load_llm("llama3_8b").weight_bytes / h100 + wake_s == pytest.approx(0.33, rel=0.05)
    assert 64 * 2**30 / a100 + wake_s == pytest.approx(3.0, rel=0.05)


def test_a_kind_of_start_skips_what_is_there() -> None:
    seconds = load_start_terms("vllm").of(32, 2)
    names = {
        kind: [name for name, _ in before_weights(kind, seconds, False)]
        for kind in ("cold", "warm", "hot", "pooled")
    }
    assert names == {
        "cold": ["process", "context", "distributed"],
        "warm": ["context", "distributed"],
        "hot": ["wake"],
        "pooled": [],
    }
    after = ["compile", "profiling", "graphs", "first_request"]
    for kind, expected in {"cold": after, "warm": after, "hot": [], "pooled": []}.items():
        assert [name for name, _ in after_weights(kind, seconds, True)] == expected
    compiled, cached = (seconds_of(after_weights("cold", seconds, kept)) for kept in (False, True))
    assert compiled - cached == pytest.approx(seconds.compile_whole - seconds.compile_cached)


def test_only_an_engine_without_preparations_serves_while_it_loads() -> None:
    vllm, blitz = load_start_terms("vllm"), load_start_terms("blitzscale")
    assert serves_while_loading(None) and serves_while_loading(
        Starting(kind="cold", compile_cache="host", terms=blitz, max_num_seqs=256)
    )
    assert serves_while_loading(Starting(kind="pooled", compile_cache="host", terms=vllm, max_num_seqs=256))
    assert not serves_while_loading(Starting(kind="warm", compile_cache="host", terms=vllm, max_num_seqs=256))
