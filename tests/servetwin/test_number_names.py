"""A number that no run has is refused before a sweep runs; every number that runs have is known."""

import pytest

from servetwin.sweeps.number_names import refuse_unknown_numbers
from servetwin.sweeps.outcome import outcome_of
from servetwin.sweeps.sweep_words import sweep_words
from serving.vocabulary.errors import UserError

DRAWN = "trace=gamma trace.rate_per_s=20 trace.gap_cv=3 trace.requests=25 trace.lengths=400x40"
RUNS = (
    f"system=vllm cluster=a100_x2 model=llama3_8b uncertainty=on {DRAWN}",
    f"system=blitzscale cluster=blitz_a_1x8 {DRAWN}",
    f"system=llumnix_autoscaled cluster=llumnix_8x1 model=llama_7b {DRAWN}",
    "system=quart cluster=quart trace=gamma trace.requests=25 trace.rate_per_s=20",
    f"system=quart cluster=quart model=opt_13b pipeline.moves=true {DRAWN}",
    f"system=vllm cluster=a100_x2 model.pp=2 {DRAWN}",
    f"models=zipf models.count=2 models.rate_per_s=9 cluster=a100_x2 {DRAWN}",
    "system=vllm cluster=a100_x2 trace=multi_turn trace.requests=20",
    f"system=vllm cluster=dgx_h100_1x2 faults=one_replica faults.at_s=1 series.period_s=1 {DRAWN}",
    "system=vllm cluster=a100_x2 trace=azure_conv_like trace.requests=20 trace.clients=3",
)


@pytest.mark.parametrize("words", RUNS)
def test_every_number_of_a_run_is_known(words: str) -> None:
    given = words.split() + ([] if "uncertainty" in words else ["uncertainty=off"])
    found = outcome_of(tuple(given))
    assert not found.refused
    refuse_unknown_numbers(found.numbers)


@pytest.mark.parametrize(
    ("name", "near"),
    [
        ("ttft_ms.p98", "ttft_ms.p9"),
        ("ttft_p99_ms", "ttft_ms.p99"),
        ("slo.atainment", "slo.attainment"),
        ("nothing", "ttft_ms.p99"),
        ("slo", "slo."),
    ],
)
def test_unknown_number_is_refused_before_a_run(name: str, near: str) -> None:
    for key in ("metrics", "search.minimize"):
        with pytest.raises(UserError) as refused:
            sweep_words([f"{key}={name}", "seed=0,1", "out=unused"])
        assert all(part in str(refused.value) for part in (name, near, "write"))


def test_sweep_takes_known_numbers() -> None:
    names = "metrics=[ttft_ms.p99,migrations.committed,throughput.req_per_s.low]"
    assert sweep_words([names, "seed=0,1", "out=unused"]).own["metrics"][1] == "migrations.committed"
