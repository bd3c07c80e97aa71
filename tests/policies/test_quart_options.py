"""Stage scalers from plain values: what is unknown is refused, each model has a scaler of its own."""

from dataclasses import replace
from typing import Any

import pytest

from policies.quart.options import PerModel, cocktail, inferline, infless, quart
from policies.quart.pid import Gains
from policies.quart.quart import Quart
from policies.quart.settings import RELEASED
from serving.protocols.stages import StartReplicas
from tests.worlds.pipeline_views import pipeline, stage


def made(**values: Any) -> Quart:
    scaler = quart(**values)
    assert isinstance(scaler, PerModel)
    scaler.scale(pipeline([stage(0)]))
    found = scaler.of["m"]
    assert isinstance(found, Quart)
    return found


def test_all_parts_are_on_unless_told_otherwise() -> None:
    whole = made()
    assert None not in (whole.smoother, whole.compensator, whole.keys, whole.placement)
    bare = made(smoother="none", compensator=False, keys=False, placement=False, corrector="rate")
    assert (bare.smoother, bare.compensator, bare.keys, bare.placement) == (None,) * 4
    assert bare.corrector.settings.control == "rate"


def test_the_released_defaults_by_name_and_one_of_them_changed() -> None:
    assert made(defaults="released").corrector.settings == RELEASED
    changed = made(defaults="released", proportional=5.0, period_s=1.0).corrector.settings
    assert changed == replace(RELEASED, gains=Gains(5.0, 0.3, 0.1), period_s=1.0)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("defaults", "ours"),
        ("delay", "m_m_1"),
        ("corrector", "none"),
        ("sign", "-"),
        ("smoother", "gat"),
    ],
)
def test_unknown_words_are_refused(key: str, value: str) -> None:
    with pytest.raises(ValueError, match=f"{key}={value} is unknown: write one of"):
        quart(**{key: value})  # type: ignore[arg-type]


def test_shares_out_of_range_are_refused() -> None:
    for make in (infless, inferline, cocktail):
        with pytest.raises(ValueError, match=r"utilization=1\.5 is not a share"):
            make(utilization=1.5)  # type: ignore[operator]
    with pytest.raises(ValueError, match="most_used=0 is not a share"):
        quart(most_used=0)
    with pytest.raises(ValueError, match="drain_s=0 is not a duration"):
        quart(drain_s=0)


def test_without_end_to_drain_a_queue_is_not_counted_as_arrivals() -> None:
    assert made().corrector.settings.drain_s == 2.0
    view = pipeline([stage(0, queued=40), stage(1)])
    for drain_s, rates in ((2.0, [25.0, 5.0]), (1e12, [5.0, 5.0])):
        assert made(drain_s=drain_s).corrector.arrivals_per_s(view) == pytest.approx(rates)


def test_models_do_not_mix() -> None:
    """The second model's rate is not the first one's plan."""
    scaler = inferline()
    loud, quiet = pipeline([stage(0, arrival_per_s=60.0)]), pipeline([stage(0, arrival_per_s=1.0)])
    assert [one.count for one in scaler.scale(loud) if isinstance(one, StartReplicas)] == [7]
    assert scaler.scale(replace(quiet, model="n")) == ()
