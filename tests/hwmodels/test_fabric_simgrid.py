"""The fabric against SimGrid: 200 flows on a leaf-spine network, the same completion times.

Skipped unless SERVETWIN_SIMGRID_PYTHON names an interpreter whose ``import simgrid`` works.
"""

import json
import math
import os
import subprocess
from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from hwmodels.fabric.fabric import Fabric
from hwmodels.fabric.flow import FlowSpec
from tests.worlds.fabric_scenarios import LeafSpine, leaf_spine, random_flows
from tests.worlds.processes import patience_s

PYTHON = os.environ.get("SERVETWIN_SIMGRID_PYTHON")
SCRIPT = Path(__file__).resolve().parents[2] / "scripts" / "simgrid_oracle.py"

pytestmark = [
    pytest.mark.simgrid,
    pytest.mark.skipif(PYTHON is None, reason="SERVETWIN_SIMGRID_PYTHON is not set"),
]


def by_simgrid(network: LeafSpine, starts: list[float], flows: list[FlowSpec]) -> list[float]:
    scenario = {
        "capacities_bytes_per_s": network.capacities,
        "flows": [
            {
                "start_s": start_s + flow.latency_s,
                "links": flow.links,
                "size_bytes": flow.size_bytes,
                "cap_bytes_per_s": None if flow.cap_bytes_per_s == math.inf else flow.cap_bytes_per_s,
            }
            for start_s, flow in zip(starts, flows)
        ],
    }
    assert PYTHON is not None
    done = subprocess.run(
        [PYTHON, str(SCRIPT)],
        input=json.dumps(scenario),
        capture_output=True,
        text=True,
        check=True,
        timeout=patience_s(),
    )
    found: list[float] = json.loads(done.stdout.splitlines()[-1])
    return found


def by_fabric(network: LeafSpine, starts: list[float], flows: list[FlowSpec]) -> list[float]:
    fabric = Fabric(network.capacities)
    for start_s, flow in zip(starts, flows):
        fabric.start(flow, start_s)
    return [done.at_s for done in sorted(fabric.advance(1e9), key=lambda done: done.flow)]


@pytest.mark.parametrize("seed", range(4))
def test_completion_times_equal_those_of_simgrid(seed: int) -> None:
    random = Random(seed)
    network = leaf_spine(random)
    flows = [
        replace(
            flow, weight=1.0, size_bytes=float(round(flow.size_bytes)), latency_s=random.choice((0.0, 1e-3))
        )
        for flow in random_flows(random, network, 200)
    ]
    starts = sorted(random.uniform(0, 4) for _ in flows)
    found = by_fabric(network, starts, flows)
    assert found == pytest.approx(by_simgrid(network, starts, flows), rel=1e-9, abs=0)
