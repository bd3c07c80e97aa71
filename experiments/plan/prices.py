"""The price of a GPU-hour, from the user: there are no defaults, as prices change and differ by contract."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import yaml

from experiments.config.overrides import Override, Wanted, parse_value
from experiments.config.read_file import yaml_in
from serving.vocabulary.errors import UserError

PREFIX: Final = "price."
LARGEST: Final = 1e12  # per GPU-hour, in whatever currency
_WRITE: Final = "write a line such as 'h100: {per_gpu_hour: 2.5, source: my contract, date: 2026-11-01}'"


@dataclass(frozen=True, slots=True)
class Price:
    """``per_gpu_hour`` in the user's currency; ``source`` and ``date`` document the price."""

    per_gpu_hour: float
    source: str
    date: str

    def __str__(self) -> str:
        return f"{self.per_gpu_hour:g} per GPU-hour ({self.source}{', ' if self.date else ''}{self.date})"


def price_of_word(key: str, text: str) -> tuple[str, Price]:
    """Parse ``price.h100=2.5``."""
    value = float(parse_value(Override(key, text), Wanted(float)))
    if value <= 0:
        raise UserError(f"{key}={text} is no price: write a number above 0, such as {key}=2.5")
    return key.removeprefix(PREFIX), Price(value, "the command line", "")


def prices_in(path: Path) -> dict[str, Price]:
    """Return hardware -> price of a YAML file. UserError naming file and line."""
    try:
        data = yaml_in(path)
    except (OSError, ValueError, yaml.YAMLError) as error:
        why = str(error).partition("\n")[0]
        raise UserError(f"prices={path} cannot be read ({why}): {_WRITE}") from error
    if not isinstance(data, dict):
        raise UserError(f"prices={path} has no prices: {_WRITE}")
    return {str(name): _price(path, str(name), value) for name, value in data.items()}


def _price(path: Path, name: str, value: Any) -> Price:
    entries = value if isinstance(value, Mapping) else {}
    amount, source, date = (entries.get(key) for key in ("per_gpu_hour", "source", "date"))
    is_price = isinstance(amount, int | float) and not isinstance(amount, bool) and 0 < amount < LARGEST
    if not (is_price and source and date):
        raise UserError(f"{name} in prices={path} lacks per_gpu_hour, source or date: {_WRITE}")
    return Price(float(amount), str(source), str(date))
