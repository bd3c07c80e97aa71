"""Worlds in which things are lost: system, workload, cluster and losses drawn from one seed.

After every event all invariants are checked; at the end every request has ended, every one that failed has a
reason, and a fresh controller gives the same answers to the same events.
"""

import json
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from random import Random
from typing import Any

from experiments.build import build
from experiments.build.data_plane import data_plane_of
from experiments.build.faults import fault_plan_of
from experiments.build.groups import group_plans
from experiments.build.stages import stage_plan
from experiments.build.world_rows import world_rows
from experiments.compose.compose import load_config
from experiments.run.simulate import Prepared, prepare
from hwmodels.topology.cables import cables_of
from hwmodels.topology.cluster_file import load_cluster
from hwmodels.topology.topology import build as topology_of
from serving.controller import Controller
from serving.record.invariants import check
from serving.record.journal import complete_journal, line
from serving.record.replay import replay
from serving.vocabulary.actions import Action
from serving.vocabulary.events import Event
from serving.vocabulary.request import Request
from serving.vocabulary.units import NS_PER_S
from simcore.faults.plan import Loss
from simcore.simulation import Simulation

SYSTEMS = (
    "vllm", "vllm system/dispatch=least_kv system.instances.queue=per_instance", "vllm_half",
    "distserve_full", "distserve_half", "serverlessllm", "allcache", "pipeswitch", "blitz_network",
    "blitz_multicast", "blitzscale", "lambdascale", "blitzscale system/live=best_effort",
    "blitzscale system.instances.split=false", "blitzscale system/live=ilp",
    "serverlessllm system.instances.split=false system.instances.queue=per_instance",
    "blitzscale system.instances.split=false system/live=best_effort",
)  # fmt: skip
TRACES = (
    "trace=azure_code_like trace.rate_scale=4", "trace=burstgpt_like trace.rate_scale=4",
    "trace=azure_conv_like trace.rate_scale=3", "trace=gamma trace.rate_per_s=12",
)  # fmt: skip
CLUSTERS = (
    "blitz_a_2x4", "blitz_b_2x4", "blitz_b_4x2", "blitz_a_3x4", "blitz_b_2x8", "p4d_24xlarge_2x8",
    "dgx_h100_2x4", "llumnix_4x4", "blitz_a_4x2",
)  # fmt: skip


MOST_EVENTS = 60_000


@dataclass
class Ends:
    """A recorder that keeps how every request ended."""

    finished_ids: dict[int, int] = field(default_factory=dict)
    rejected: dict[int, str] = field(default_factory=dict)
    lost: dict[int, str] = field(default_factory=dict)

    def finished(
        self, request: Request, output_tokens: int, first_ns: int, end_ns: int, replica: int, preemptions: int
    ) -> None:
        assert request.id not in self.finished_ids and 0 <= first_ns <= end_ns
        self.finished_ids[request.id] = output_tokens

    def refused(self, request: Request, now_ns: int, reason: str) -> None:
        self.rejected[request.id] = reason

    def failed(self, request: Request, now_ns: int, reason: str) -> None:
        self.lost[request.id] = reason

    def gaps(self, first_fixed: int, slope_fixed: int, steps: int, sequences: int) -> None:
        assert first_fixed >= 0

    def busy(self, replica: int, busy_ns: int) -> None:
        assert busy_ns >= 0


class Checked:
    """A controller whose invariants are checked after every event, and whose journal is kept."""

    def __init__(self, controller: Controller) -> None:
        self.controller = controller
        self.elastic = controller.elastic  # a standing world is told by it
        self.lines: list[str] = []
        self.step_counts = controller.step_counts
        self.step_counts.told = []
        self.actions = 0
        self.events: Counter[str] = Counter()

    def handle(self, now_ns: int, event: Event) -> Sequence[Action]:
        actions = self.controller.handle(now_ns, event)
        check(self.controller)
        self.lines.append(line(now_ns, event, actions, self.step_counts.take()))
        self.actions += len(actions)
        self.events[type(event).__name__] += 1
        assert len(self.lines) < MOST_EVENTS, "the world does not come to its end"
        return actions


@dataclass(frozen=True)
class Played:
    """What became of a world."""

    words: list[str]
    arrived: int
    ends: Ends
    losses: list[Loss]
    checked: Checked


def world_words(seed: int) -> list[str]:
    """The words of a run, without its losses."""
    random = Random(f"faulted world {seed}")
    words = f"system={random.choice(SYSTEMS)} {random.choice(TRACES)} cluster={random.choice(CLUSTERS)}"
    words += f" trace.limit={random.choice([20, 60, 120])} seed={random.randrange(1000)}"
    return words.split()


def with_losses(seed: int, words: list[str]) -> list[str]:
    """The words, with losses at times from the first request to a while after the last."""
    random = Random(f"losses of {seed}")
    prepared = prepare(load_config([*words, "out=OUT"], "simulate"))
    config, last_s = prepared.config, int(prepared.workload.arrival_ns[-1]) / NS_PER_S
    topology = topology_of(load_cluster(str(config.cluster.topology)))
    most = len(prepared.replicas) + (len(topology.gpus) // config.model.tp if config.system.elastic else 0)
    cables = [cable.name for cable in cables_of(topology)]
    events = []
    for _ in range(random.choice([1, 1, 2, 3, 5, 8])):
        at_s = f"{random.uniform(0, last_s * 1.3):.6f}"
        what = random.choice(["replica", "replica", "host", "link", "link", "ssd"])
        if what == "ssd" and topology.spec.ssd is None:
            what = "host"
        number = random.randrange(most if what == "replica" else len(topology.hosts))
        events.append(f"{at_s}:{what}:{random.choice(cables) if what == 'link' else number}")
    return [*words, "faults=listed", f"faults.events={'+'.join(events)}"]


def play(words: list[str]) -> Played:
    """Run it, with all checks."""
    prepared = prepare(load_config([*words, "out=OUT"], "simulate"))
    checked, ends = Checked(_controller(prepared)), Ends()
    stages = stage_plan(prepared.config, prepared.workload, prepared.hardware_of_model)
    rows = stages.times if stages is not None and stages.times else world_rows(prepared.hardware_of_model)
    simulation = Simulation(
        checked,
        build.arrivals_of(prepared.config, prepared.workload),
        [rows[replica.model] for replica in prepared.replicas],
        ends,
        None,
        data_plane_of(prepared.config, prepared.replicas),
        rows,
        faults=fault_plan_of(prepared.config, prepared.replicas),
        groups=group_plans(prepared.config, prepared.replicas, prepared.hardware_of_model),
        stages=stages,
    )
    simulation.run()
    assert simulation.losses is not None
    played = Played(words, len(prepared.workload), ends, simulation.losses.records, checked)
    _conserved(played, prepared)
    _replays(played, prepared)
    return played


def _controller(prepared: Prepared) -> Controller:
    return build.controller_of(
        prepared.config, prepared.hardware_of_model, prepared.replicas, prepared.estimates
    )


def _conserved(played: Played, prepared: Prepared) -> None:
    ends, controller = played.ends, played.checked.controller
    ways = [*ends.finished_ids, *ends.rejected, *ends.lost]
    assert sorted(ways) == list(range(played.arrived)), "every request ends once"
    assert all([*ends.rejected.values(), *ends.lost.values()]), "who has no answer has a reason"
    counts = controller.arrived, controller.finished, controller.rejected, controller.failed
    assert counts == (played.arrived, len(ends.finished_ids), len(ends.rejected), len(ends.lost))
    wanted = {one.id: min(tokens, one.max_new_tokens) for one, tokens in _arrivals(prepared)}
    assert all(wanted[request] == tokens for request, tokens in ends.finished_ids.items())
    if any(not loss.nothing for loss in played.losses):
        return
    assert not ends.lost, "nothing was lost, so nothing fails"


def _arrivals(prepared: Prepared) -> list[tuple[Request, int]]:
    return list(build.arrivals_of(prepared.config, prepared.workload))


def _replays(played: Played, prepared: Prepared) -> None:
    header: dict[str, Any] = {"source": "test", "carries_out": []}
    checked = played.checked
    text = [f"{one}\n" for one in complete_journal(header, checked.lines, checked.actions)]
    report = replay(text, _controller(replace(prepared)))
    assert (report.different, report.cut) == (0, None), report.first_difference
    json.loads(checked.lines[-1])


def command_of(words: Sequence[str]) -> str:
    """What repeats the run by hand."""
    return f"servetwin simulate {' '.join(words)} journal=true out=out/faulted overwrite=true"
