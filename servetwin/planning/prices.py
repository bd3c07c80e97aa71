"""The price of a GPU-hour, from the user: there are no defaults, as prices change and differ by contract."""

import re
import unicodedata
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final, TypeGuard

import yaml

from hwmodels.gpus.gpu_file import is_gpu_file
from hwmodels.topology.cluster_file import load_cluster
from servetwin.config.compose.clusters import CLUSTER_FAMILIES, hardware_named, near_family, topology_names
from servetwin.config.overrides import Override, Wanted, closest, parse_value
from servetwin.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

PREFIX: Final = "price."
CURRENCY: Final = "currency"
_ENTRY: Final = ("per_gpu_hour", "source", "date", CURRENCY)
LARGEST: Final = 1e12  # per GPU-hour, in whatever currency
_WRITE: Final = "write a line such as 'h100: {per_gpu_hour: 2.5, source: my contract, date: 2026-11-01}'"
_COMMAND: Final = "the command line"
_NAME: Final = r"[A-Za-z]{2,4}|[^\w\s.,+-]"  # EUR, or a sign if _is_currency
_SIGN: Final = "Sc"  # the Unicode category of currency signs
_AMOUNT: Final = re.compile(
    rf"({_NAME})?\s*([+-]?(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)\s*({_NAME})?"
)


@dataclass(frozen=True, slots=True)
class Price:
    """``per_gpu_hour`` in ``currency``, "" if the user named none; ``source``, ``date``: where it is from."""

    per_gpu_hour: float
    source: str
    date: str
    currency: str = ""

    def __str__(self) -> str:
        unit = f" {self.currency}" if self.currency else ""
        when = f"{', ' if self.date else ''}{self.date}"
        return f"{self.per_gpu_hour:g}{unit} per GPU-hour ({self.source}{when})"


def price_of_word(key: str, text: str) -> tuple[str, Price]:
    """Parse ``price.h100=2.5`` or ``price.h100=2.5EUR``. UserError for another name or number."""
    name = hardware_named(key.removeprefix(PREFIX))
    if not is_gpu_file(name) and name not in CLUSTER_FAMILIES and name not in topology_names():
        near = near_family(name) or closest(name, [*CLUSTER_FAMILIES, *topology_names()])
        hint = f"write {PREFIX}{near}={text} if that is meant, or " if near else "write "
        raise UserError(f"{key} is of no GPU or cluster that is known: {hint}{PREFIX}NAME with one of gpu=")
    return name, _price_of_text(key, text)


def _price_of_text(key: str, text: str) -> Price:
    amount = _AMOUNT.fullmatch(text.strip())
    if amount is not None and not all(_is_currency(name) for name in (amount[1], amount[3]) if name):
        amount = None  # a percent sign, a bracket
    if amount is not None and amount[1] and amount[3]:
        raise UserError(f"{key}={text} names two currencies: write one of them")
    value = float(parse_value(Override(key, amount[2] if amount else text), Wanted(float)))
    if not 0 < value < LARGEST:
        raise UserError(
            f"{key}={text} is no price: write a number above 0 and below {LARGEST:g}, such as {key}=2.5"
        )
    return Price(value, _COMMAND, "", (amount[1] or amount[3] or "") if amount else "")


def currency_of_word(text: str) -> str:
    """Parse ``currency=EUR``."""
    if not _is_currency(text):
        raise UserError(f"{CURRENCY}={text} is no currency: write its sign or short name, such as EUR")
    return text


def _is_currency(text: str) -> bool:
    named = re.fullmatch(_NAME, text) is not None
    return named and (len(text) > 1 or unicodedata.category(text) == _SIGN)


def prices_in(path: Path) -> dict[str, Price]:
    """Return hardware -> price of a YAML file. UserError naming file and line."""
    try:
        data = yaml_in(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"prices={path} cannot be read ({why}): {_WRITE}") from error
    if not isinstance(data, dict):
        raise UserError(f"prices={path} has no prices: {_WRITE}")
    return {hardware_named(str(name)): _price(path, str(name), value) for name, value in data.items()}


def _price(path: Path, name: str, value: Any) -> Price:
    entries = value if isinstance(value, Mapping) else {}
    amount, source, date, currency = (entries.get(key) for key in _ENTRY)
    if not _is_price(amount) or not (source and date):
        raise UserError(f"{name} in prices={path} lacks per_gpu_hour, source or date: {_WRITE}")
    if unknown := [str(key) for key in entries if key not in _ENTRY]:
        raise UserError(
            f"{name} in prices={path} has the unknown key {unknown[0]}: known are {', '.join(_ENTRY)}"
        )
    named = currency_of_word(str(currency)) if currency is not None else ""
    return Price(float(amount), str(source), str(date), named)


def _is_price(amount: object) -> TypeGuard[float]:
    return isinstance(amount, int | float) and not isinstance(amount, bool) and 0 < amount < LARGEST


def prices_of(prices: Mapping[str, Price], hardware: Iterable[str], currency: str = "") -> dict[str, Price]:
    """Return the price of each ``hardware`` of a plan, all in one currency.

    ``prices``: name of a GPU or of a cluster -> price. A GPU's price applies to every cluster of such GPUs
    that has no price of its own. UserError for hardware without a price, for a price that the user wrote for
    hardware that no layout has, and for two currencies.
    """
    names, gpus, used = list(dict.fromkeys(hardware)), dict[str, Price](), set[str]()
    for name in names:
        same = [name] if name in prices else _of_same_gpu(prices, name)
        if not same:
            gpu = _family(name)
            raise UserError(
                f"{name} has no price: write {PREFIX}{gpu}=NUMBER (per GPU-hour), or add {gpu} to prices="
            )
        gpus[name] = prices[same[0]]
        used.update(same)
    for key, price in prices.items():
        if price.source == _COMMAND and key not in used:
            raise UserError(
                f"{PREFIX}{key} is of no GPU in this plan, which has {', '.join(names)}: leave it out, or "
                f"add it to gpu="
            )
    return _in_one_currency(gpus, currency)


def _of_same_gpu(prices: Mapping[str, Price], name: str) -> list[str]:
    """Return the names with a price of the GPU that ``name`` has. UserError for two prices of one GPU."""
    same = [key for key in prices if key in CLUSTER_FAMILIES and _gpu(key) == _gpu(name)]
    if len({prices[key].per_gpu_hour for key in same}) > 1:
        raise UserError(f"{' and '.join(same)} are one GPU with two prices: write one of them")
    return same


def _gpu(name: str) -> str:
    return name if is_gpu_file(name) else CLUSTER_FAMILIES.get(name) or load_cluster(name).gpu


def _family(name: str) -> str:
    """Return the first name of the GPU, or the cluster's if its GPU has none."""
    return next((family for family, gpu in CLUSTER_FAMILIES.items() if gpu == _gpu(name)), name)


def _in_one_currency(prices: Mapping[str, Price], currency: str) -> dict[str, Price]:
    named = {price.currency for price in prices.values() if price.currency} | ({currency} - {""})
    if len(named) > 1:
        raise UserError(f"prices in {' and '.join(sorted(named))} cannot be added: write all in one currency")
    bare = [name for name, price in prices.items() if not price.currency]
    if named and bare and not currency:
        (name,) = named
        raise UserError(
            f"the price of {bare[0]} names no currency and others are in {name}: write {CURRENCY}={name}, or "
            "the currency behind each price"
        )
    return {name: replace(price, currency=next(iter(named), "")) for name, price in prices.items()}
