"""The words of ``servetwin plan``: the objective, the layouts to try, prices, and words of every run."""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from servetwin.config.compose.checked_words import check_words
from servetwin.config.compose.option_tree import option_tree
from servetwin.config.compose.unread_in_many import refuse_unread_in_plan
from servetwin.config.config import MAX_GPUS, RunConfig
from servetwin.config.options import option_groups
from servetwin.config.overrides import Override, Wanted, leaves, parse_value
from servetwin.config.unknown_key import unknown_key
from servetwin.planning.layout import DoesNotFit, Layout, hardware_of_cluster, layout_of
from servetwin.planning.objective import (
    AT_LEAST,
    EXAMPLE,
    Limit,
    Objective,
    is_limit,
    limit_of,
    nearest_limit,
    no_objective,
    not_an_objective,
)
from servetwin.planning.prices import (
    CURRENCY,
    PREFIX,
    Price,
    currency_of_word,
    price_of_word,
    prices_in,
    prices_of,
)
from servetwin.sweeps.axes import SweepAxis, axes_of, refuse_twice
from serving.vocabulary.errors import UserError

# Whether a system prefills and decodes on separate instances, known before a run.

SPLIT_KEY = "system.instances.split"
_SYSTEM = "system"


def splits_roles(words: Sequence[str]) -> bool:
    """Return the choice in the words of a run; False for an unknown system, which its run refuses."""
    values = {key: text for key, _, text in (word.partition("=") for word in words)}
    if SPLIT_KEY in values:
        return bool(parse_value(Override(SPLIT_KEY, values[SPLIT_KEY]), Wanted(bool)))
    name = values.get(_SYSTEM)
    if name is not None and name not in option_groups()[_SYSTEM]:
        return False
    choices = [] if name is None else [Override(_SYSTEM, name)]
    return bool(option_tree("simulate", choices)[_SYSTEM]["instances"]["split"])


GPUS, RATE, CHEAPEST = "gpus", "rate", "cheapest"
OWN: Final = {
    "find": Wanted(str, choices=(GPUS, RATE, CHEAPEST)), "max_gpus": Wanted(int), "processes": Wanted(int),
    "headroom": Wanted(bool), "halving": Wanted(bool), "window_s": Wanted(float), "json": Wanted(bool),
    "all": Wanted(bool), "gpus": Wanted(int), "overwrite": Wanted(bool), CURRENCY: Wanted(str),
}  # fmt: skip
_TP: Final = ("1", "2", "4", "8")
_SPLIT: Final = "split"
_MOST_LAYOUTS: Final = 256


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanWords:
    """The parsed words of a plan. ``words``: the words that apply to every run.

    ``prices``: name of a layout's ``hardware`` -> its price; empty without prices.
    """

    objective: Objective
    layouts: tuple[Layout, ...]
    words: tuple[str, ...]
    prices: Mapping[str, Price]
    own: Mapping[str, Any]
    out: Path | None

    @property
    def find(self) -> str:
        """The kind of answer."""
        return str(self.own.get("find", GPUS))

    @property
    def runs_whole(self) -> bool:
        """Whether every layout is searched and every run goes on to its last request."""
        return bool(self.own.get("all", False))

    @property
    def currency(self) -> str:
        """The currency that the user named, "" without one."""
        return next((price.currency for price in self.prices.values()), "")


def plan_words(words: Sequence[str]) -> PlanWords:
    """Parse the words. UserError naming the word that cannot be used, or what is missing."""
    limits, prices, own, out, runs = list[Limit](), dict[str, Price](), dict[str, Any](), "", list[str]()
    refuse_twice(words)
    for word in words:
        key, equals, text = word.partition("=")
        if not equals or not text:
            raise UserError(f"'{word}' has no value: write key=value, such as {EXAMPLE}")
        if is_limit(key):
            limits.append(limit_of(key, text))
        elif key.startswith(PREFIX):
            prices |= dict([price_of_word(key, text)])
        elif key == "prices":
            prices = prices_in(Path(text).expanduser()) | prices
        elif key == "out":
            out = text
        elif key in OWN:
            own[key] = _parse_own_key(key, text)
        else:
            _refuse_unknown(key, text)
            runs.append(word)
    if not limits:
        raise no_objective(words)
    plain, layouts = _layouts(runs)
    prices = _checked_prices(prices, layouts, own)
    check_words(plain, (), OWN, "a plan")
    if own.get("find") == RATE and "gpus" not in own:
        raise UserError("find=rate needs a size: write gpus=8")
    _refuse_moving_rate(runs)
    keys = [key for word in runs if (key := word.partition("=")[0]) not in ("gpu", _SPLIT)]
    every = ((*plain, "uncertainty=off", *layout.words_of(layout.least)) for layout in layouts)
    refuse_unread_in_plan(keys, every, any(limit.metric in AT_LEAST for limit in limits))
    folder = Path(out).expanduser().resolve() if out else None
    return PlanWords(
        objective=Objective(tuple(limits)),
        layouts=layouts,
        words=(*plain, "uncertainty=off"),
        prices=prices,
        own=own,
        out=folder,
    )


def _checked_prices(
    prices: Mapping[str, Price], layouts: Sequence[Layout], own: Mapping[str, Any]
) -> dict[str, Price]:
    """Return the price of every layout's GPUs, before anything runs; none if none was given."""
    hardware = dict.fromkeys(layout.hardware for layout in layouts)
    if not prices and own.get("find") == CHEAPEST:
        names = ", ".join(f"{PREFIX}{name}=NUMBER" for name in hardware)
        raise UserError(
            f"find=cheapest needs prices: write {names} (per GPU-hour, with the currency: 2.5EUR), or "
            "prices=FILE.yaml"
        )
    currency = currency_of_word(own[CURRENCY]) if CURRENCY in own else ""
    if not prices:
        if currency:
            raise UserError(f"{CURRENCY}={currency} is of prices: add price.h100=2.5, or leave it out")
        return {}
    if own.get("find") == RATE:
        raise UserError(
            f"find=rate tells no money: leave {PREFIX}{next(iter(prices))} and prices= out, or write "
            f"find={CHEAPEST}"
        )
    return prices_of(prices, hardware, currency)


def _refuse_unknown(key: str, text: str) -> None:
    """Raise UserError for an unknown key; otherwise the run of every layout would be refused for it."""
    known = [*leaves(RunConfig), *option_groups(), *OWN, "gpu", _SPLIT]
    if key not in known and (key.startswith("slo.") or nearest_limit(key)):
        raise not_an_objective(key, text)
    if key not in known and not key.startswith(("system.", "trace.")):
        raise unknown_key(key, known, "a plan", text)
    if key == "uncertainty":
        raise UserError(f"{key}= is of single runs: leave it out, for every plan runs both ends")


def _parse_own_key(key: str, text: str) -> Any:
    value = parse_value(Override(key, text), OWN[key])
    if OWN[key].type is int and not 1 <= value <= MAX_GPUS:
        raise UserError(f"{key}={value} is out of range: write an integer from 1 to {MAX_GPUS}")
    if OWN[key].type is float and value <= 0:
        raise UserError(f"{key}={value:g} is out of range: write a number above 0")
    return value


def _layouts(runs: Sequence[str]) -> tuple[list[str], tuple[Layout, ...]]:
    """Return the words of every run, and the layouts."""
    for word in runs:
        if word.startswith("cluster="):
            gpu = hardware_of_cluster(word.partition("=")[2])
            raise UserError(f"{word}: a plan sizes the cluster; write gpu={gpu}")
    plain, axes, intervals = axes_of(runs)
    if intervals:
        raise UserError(f"{intervals[0].key}=interval(...) is for searches: write values, such as A,B")
    for axis in axes:
        if axis.key == "seed":
            raise UserError("a plan runs one seed: write seed=0, and ask again with the others")
    hardware = _pop_values("gpu", plain, axes) or ("a100",)
    tps, pps = _pop_values("model.tp", plain, axes), _pop_values("model.pp", plain, axes) or ("1",)
    splits = _pop_values(_SPLIT, plain, axes) or ("",)
    rest = [[f"{axis.key}={text}" for text in axis.texts] for axis in axes]
    ways = list(itertools.product(hardware, tps or _TP, pps, splits, *rest))
    if len(ways) > _MOST_LAYOUTS:
        raise UserError(f"{len(ways)} layouts are too many: write fewer values, at most {_MOST_LAYOUTS}")
    layouts = [_layout(plain, *way, must_fit=bool(tps)) for way in ways]
    fitting = tuple(dict.fromkeys(layout for layout in layouts if layout is not None))
    if splits != ("",) and not any(layout.split for layout in fitting):
        raise UserError(
            f"{_SPLIT}={splits[0]} is for systems that prefill and decode on instances of their own: write "
            "system=distserve_full, or leave it out"
        )
    return plain, fitting


def _layout(
    plain: Sequence[str], hardware: str, tp: str, pp: str, split: str, *words: str, must_fit: bool
) -> Layout | None:
    """Return the layout; None if it does not fit. A split is only for systems with separate roles."""
    apart = splits_roles((*plain, *words))
    try:
        share = float(parse_value(Override(_SPLIT, split), Wanted(float))) if split else 0.0
        own = share if apart or not 0 <= share < 1 else 0.0
        tps, pps = _parse_count("model.tp", tp), _parse_count("model.pp", pp)
        return layout_of(
            hardware=hardware, tp=tps, pp=pps, words=words, split=own, instances=2 if apart else 1
        )
    except DoesNotFit:
        if must_fit:
            raise
        return None  # a default tp does not fit the hosts


def _parse_count(key: str, text: str) -> int:
    return int(parse_value(Override(key, text), Wanted(int)))


def _pop_values(key: str, plain: list[str], axes: list[SweepAxis]) -> tuple[str, ...]:
    """Remove a key from the words and return its values; () if it was not given."""
    for axis in axes:
        if axis.key == key:
            axes.remove(axis)
            return axis.texts
    for word in plain:
        if word.startswith(f"{key}="):
            plain.remove(word)
            return (word.partition("=")[2],)
    return ()


def _refuse_moving_rate(words: Sequence[str]) -> None:
    """Refuse a rate that depends on the cluster or its load: every size would answer another question."""
    if any(word.startswith("trace.clients=") for word in words):
        raise UserError(
            "trace.clients lets the rate follow how fast requests are served, and a plan is for a trace's "
            "own rate: leave it out, or write servetwin sweep with trace.clients and cluster"
        )
    for key in ("trace.utilization", "trace.prefill_share", "trace.peak_share"):
        if any(word.startswith(f"{key}=") for word in words):
            raise UserError(
                f"{key} follows the cluster, which a plan sizes: write trace.rate_per_s or rate_scale"
            )
