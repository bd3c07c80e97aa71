"""``cluster.nic_gbps`` and its like: a run's own rate of a link in place of the cluster file's."""

import json
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from servetwin.assemble.data_plane import spec_of
from servetwin.cli import main as cli
from servetwin.config.compose.compose import load_config
from serving.vocabulary.errors import UserError


@pytest.mark.parametrize("link", ["pcie", "nic", "ssd"])
def test_only_the_link_that_is_named_has_another_rate(link: str) -> None:
    words = ["cluster=blitz_b", "trace=azure_conv_like", "out=unused"]
    usual, other = (
        spec_of(load_config([*words, *more], "simulate")) for more in ([], [f"cluster.{link}_gbps=4"])
    )
    assert usual is not None and other is not None
    found = {key for key in ("pcie", "nic", "ssd", "remote") if getattr(usual, key) != getattr(other, key)}
    assert found == {link}
    assert getattr(other, link).bytes_per_s == 4e9 / 8


def test_loads_take_as_long_as_the_link_lets_them(tmp_path: Path) -> None:
    """Parameters of every replica over its own SSD link: half the rate, twice the time."""
    slowest = {}
    for gbps in (5, 10):
        words = ["cluster=blitz_b", "cluster.start=ssd", "trace=azure_conv_like", "trace.requests=10"]
        direct = ["engine.loader=direct", "engine.start_up=none", "uncertainty=off"]
        out = tmp_path / str(gbps)
        assert cli.run(["simulate", *words, *direct, f"cluster.ssd_gbps={gbps}", f"out={out}"]) == 0
        summary = json.loads((out / "summary.json").read_text(encoding="utf-8"))
        slowest[gbps] = summary["loads"]["seconds"]["max"]
    assert slowest[5] == pytest.approx(2 * slowest[10], rel=0.01)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["cluster=a100_x8", "cluster.nic_gbps=1"], "cluster=a100_x8 has none"),
        (["cluster=blitz_b", "cluster.nvlink_gbps=1"], "nvlink is missing"),
        (["cluster=blitz_b", "cluster.nic_gbps=1e12"], "write a rate from"),
        (["cluster=blitz_b", "cluster.nic_gbps=-1"], "write a number above 0"),
    ],
)
def test_rates_that_cannot_be(words: list[str], told: str) -> None:
    with pytest.raises((UserError, HardwareError), match=told):
        load_config([*words, "trace=azure_conv_like", "out=unused"], "simulate")
