"""What Llumnix's figures are run with and how they are read, after its artefact."""

from dataclasses import replace

import numpy as np
import pytest

from experiments.common.outcomes import RunOutcome
from experiments.llumnix import fig11, fig13
from experiments.llumnix.judge import cases_of
from experiments.llumnix.metrics import INSTANCES
from experiments.llumnix.set_ups import KV_BLOCKS
from servetwin.cli.main import run


def test_kv_memory_is_what_a_pass_of_so_many_tokens_leaves() -> None:
    """From the artefact's 792 blocks with 12,000 tokens a pass: 800 more hold a layer's widest vectors."""
    hidden, intermediate, block_bytes = 4096, 11008, 16 * 2 * 32 * 4096 * 2
    per_token_bytes = 2 * (3 * intermediate + 3 * hidden)
    assert KV_BLOCKS[12_800] == KV_BLOCKS[12_000] - -(-800 * per_token_bytes // block_bytes)
    words = {
        fig: {word for case in cases_of(fig.curves)(100) for word in case.set_up.words}
        for fig in (fig11, fig13)
    }
    assert {"engine.kv_tokens=12528", "engine.max_num_batched_tokens=12800"} < words[fig11]
    assert {"engine.kv_tokens=12672", "engine.max_num_batched_tokens=12000"} < words[fig13]


def test_mean_instances_are_by_step_reports_as_the_artefact_averages_them() -> None:
    """Ten seconds with four instances and ten with one: 50 reports, 40 of them beside three others."""
    running = np.array([4.0] * 10 + [1.0] * 10)
    nothing = np.zeros(0)
    one = RunOutcome(
        words=(),
        summary={"instances": {"mean": 2.5}},
        arrival_s=nothing,
        ttft_ms=nothing,
        tpot_ms=nothing,
        inputs="",
        timelines={"instances": (np.arange(20.0), running)},
    )
    assert INSTANCES["instances_mean"].of([one]) == [pytest.approx((40 * 4 + 10 * 1) / 50)]
    assert INSTANCES["instances_time_mean"].of([one]) == [2.5]
    assert INSTANCES["instances_mean"].of([replace(one, timelines={})]) is None


@pytest.mark.parametrize(
    ("words", "wrong"),
    [
        (
            ("system=vllm", "system.instances.queue=common"),
            "before_last is the order of queues that instances have",
        ),
        (("system=distserve_full",), "before_last is the order of queues that instances have"),
        (
            ("system=vllm", "model.pp=2", "engine=vllm_v1"),
            "does not fit system.instances.scheduling_policy=before_l",
        ),
    ],
)
def test_the_artefacts_queue_is_refused_where_an_instance_has_none_of_its_own(
    words: tuple[str, ...], wrong: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert (
        run(["simulate", *words, "system.instances.scheduling_policy=before_last", "trace=poisson", "out=x"])
        == 2
    )
    assert wrong in " ".join(capsys.readouterr().err.split())
