"""Live scaling drawn by chance, played in virtual time on links."""

from dataclasses import dataclass, replace
from random import Random
from typing import Any

from hwmodels.loading.startup import load_start_up
from hwmodels.models.llm_shape import LlmShape
from policies.live.live_scaling import LiveScaling
from policies.live.zigzag import BestEffort, Ilp, IlpFree
from serving.protocols.live import LivePolicy, LiveScheduler
from serving.vocabulary.kv_bytes import KvBytes
from simcore.data_plane.data_plane import DataPlane, DataPlaneSetup
from simcore.sim_report import SimReport
from simcore.simulation import Simulation
from tests.worlds.drawn_elastic import ROWS, SHAPE, Drawn, draw_requests, draw_setting, topology
from tests.worlds.elastic_world import MS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected

# Width of the feed-forward layers: a layer is then loaded in about 0.3, 4 and 40 ms over one NIC.
WIDTHS = (688, 14_000, 140_000)


@dataclass(frozen=True)
class LiveCase:
    """A case, and the shape whose parameters it moves."""

    drawn: Drawn
    shape: LlmShape


def policy(random: Random) -> LivePolicy:
    """A policy by chance, mostly one that is live whenever requests wait."""
    solver = Ilp(ahead=random.choice([2, 4]), solve_ns=random.choice([0, 5 * MS, 50 * MS]))
    kinds: list[LiveScheduler] = [IlpFree(), IlpFree(), BestEffort(), solver]
    return LiveScaling(
        random.choice(kinds),
        random.choice([0, 0, 20]),
        tails_only=random.random() < 0.3,
        targets_per_partner=random.choice([1, 3]),
        embedding=random.choice(["target", "source"]),
    )


def live_case(random: Random) -> LiveCase:
    """Split systems with loads long enough, and few enough instances at first, that new ones are live."""
    shape, seed = replace(SHAPE, intermediate=random.choice(WIDTHS)), random.getrandbits(32)
    start: Any = {"prefill": int(random.random() < 0.7), "decode": 1}
    setting = replace(
        draw_setting(random),
        start=start,
        bounds={role: (count, 6) for role, count in start.items()},
        provision=random.choice(["multicast", "naive", "one_to_one"]),
        copies="pool",
        prefill_tokens_per_s=random.choice([20.0, 100.0]),
        live=lambda: policy(Random(seed)),
        queue=None,
        topology=topology(),
        size_bytes=shape.weight_bytes,
        kv_bytes=KvBytes(shape.kv_bytes_per_token),
    )
    return LiveCase(Drawn(setting, draw_requests(random, setting)), shape)


def simulate(
    case: LiveCase, coalesce: bool = True, rows: ToyRows = ROWS
) -> tuple[Collected, SimReport, Checked]:
    """One run; the invariants are checked after every event of it."""
    setting = replace(case.drawn.setting, coalesce=coalesce)
    checked, recorder = Checked(setting.controller()), Collected()
    placed = setting.placed()
    shapes = dict.fromkeys(setting.models, case.shape)
    data_plane = DataPlane(
        DataPlaneSetup(
            topology=setting.topology or topology(), shapes=shapes, model_of=[one.model for one in placed],
            gpus_of=[one.gpus for one in placed], loader="direct", start_up=load_start_up("none"),
        )
    )  # fmt: skip
    driven: Any = checked
    simulation = Simulation(
        driven, case.drawn.requests, [rows] * len(placed), recorder, journal=None, data_plane=data_plane,
        rows_of=dict.fromkeys(setting.models, rows),
    )  # fmt: skip
    return recorder, simulation.run(), checked


def counts_of(checked: Checked) -> list[Any]:
    """What the live parts of all models counted."""
    return [one.live.counts for one in checked.controller.services.values() if one.live.enabled]
