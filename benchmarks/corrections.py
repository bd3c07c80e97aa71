"""What each correction of a run's step times and engine is worth: the same run without one of them."""

from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hwmodels.catalogue import load_llm
from hwmodels.profiles.profile import Curve, Profile
from hwmodels.profiles.profile_file import save_profile
from hwmodels.step_times.all_reduce import AllReduce, RankTimes, Stretch
from servetwin.config.compose.compose import load_config
from servetwin.results.ranges import value_of
from servetwin.run.simulate import execute, prepare

METRICS: Final = ("ttft_ms.mean", "ttft_ms.p99", "tpot_ms.mean", "e2e_ms.mean")
# What was declared for all-reduces over PCIe Gen5 before a table was found: start and bus bandwidth.
DECLARED_START_S: Final = 20e-6
DECLARED_BYTES_PER_S: Final = 37.8e9


@dataclass(frozen=True, slots=True)
class Ablation:
    """``without`` takes it out of a profile (None: the profile has none of it), ``words`` out of the run."""

    name: str
    without: Callable[[Profile], Profile | None] = lambda profile: profile
    words: tuple[str, ...] = ()


def _declared_all_reduce(profile: Profile) -> Profile | None:
    measured, tp = profile.tables.all_reduce, profile.stamp.tp
    if measured is None:
        return None
    rate = 2 * (tp - 1) / tp / DECLARED_BYTES_PER_S
    ranks = {tp: RankTimes((Stretch(0, DECLARED_START_S, rate),), "declared")}
    step = AllReduce(profile.stamp.gpu, ranks).of_step(load_llm(profile.stamp.llm), tp)
    curve = Curve(measured.counts, tuple(step.seconds(count) for count in measured.counts))
    return replace(profile, tables=replace(profile.tables, all_reduce=curve))


def _without_skew(profile: Profile) -> Profile | None:
    tables = profile.tables
    return None if tables.skew is None else replace(profile, tables=replace(tables, skew=None))


def _without_mixed(profile: Profile) -> Profile | None:
    tables = profile.tables
    return replace(profile, tables=replace(tables, mixed=())) if tables.mixed else None


def _of_experts(profile: Profile) -> Profile | None:
    return profile if profile.tables.experts else None


def _without_exchange(profile: Profile) -> Profile | None:
    tables = profile.tables
    exchanges = tuple(
        replace(exchange, curve=_next_to_nothing(exchange.curve)) for exchange in tables.exchange
    )
    return replace(profile, tables=replace(tables, exchange=exchanges)) if tables.exchange else None


def _next_to_nothing(curve: Curve) -> Curve:
    return Curve(curve.counts, (1e-12,) * len(curve.counts))


CORRECTIONS: Final = (
    Ablation("all-reduce of the tables, else declared", _declared_all_reduce),
    Ablation("attention of mixed steps, else parts added", _without_mixed),
    Ablation("unequal contexts, else equal ones", _without_skew),
    Ablation(
        "engine overhead, else none", words=("engine.overhead.step_s=0", "engine.overhead.per_layer_s=0")
    ),
    Ablation("batches padded to CUDA graphs, else not", words=("engine.overhead.cuda_graphs=false",)),
    Ablation("asynchronous scheduling, else not", words=("engine.asynchronous=false",)),
    Ablation("prefix caching, else none", words=("engine.prefix_caching=false",)),
    Ablation("experts chosen alike, else by a power law", _of_experts, ("engine.expert_skew=0.7",)),
    Ablation("exchange between engines, else none", _without_exchange),
)


def worth(profile: Profile, words: list[str], folder: Path) -> Iterator[tuple[str, list[float] | None]]:
    """(correction, how far METRICS are off without it) of one run; None where the profile has none of it."""
    whole = _summary(profile, words, folder)
    for correction in CORRECTIONS:
        changed = correction.without(profile)
        if changed is None:
            yield correction.name, None
            continue
        summary = _summary(changed, [*words, *correction.words], folder)
        pairs = [(value_of(summary, metric), value_of(whole, metric)) for metric in METRICS]
        yield correction.name, [(ours or 0.0) / theirs - 1.0 if theirs else 0.0 for ours, theirs in pairs]


def _summary(profile: Profile, words: list[str], folder: Path) -> dict[str, Any]:
    path = folder / "changed.json"
    save_profile(profile, path)
    # What a profile was changed in is not what its stamp says of it.
    return execute(prepare(load_config([*words, f"engine.profile={path}", "out=none"], "simulate"))).summary


def lines(profile: Profile, words: list[str], folder: Path) -> Iterator[str]:
    """A table of one run, line by line."""
    yield f"{'without':44}{''.join(f'{metric:>14}' for metric in METRICS)}"
    for name, errors in worth(profile, words, folder):
        cells = ["none of it"] * len(METRICS) if errors is None else [f"{error:+.1%}" for error in errors]
        yield f"{name:44}{''.join(f'{cell:>14}' for cell in cells)}"
