"""The part of a Hugging Face ``config.json`` that describes the language model, each key checked."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError

Fields = dict[str, Any]
"""Fields of ``LlmShape`` by name."""
Notes = tuple[str, ...]
"""What is treated in another way than the file says."""
MOST: Final = 1 << 30
_LONGEST_ECHO: Final = 60


@dataclass(frozen=True, slots=True)
class Section:
    """The part of a config.json that describes the language model; ``prefix`` precedes its keys."""

    path: Path
    prefix: str
    data: Mapping[str, Any]

    def having(self, defaults: Mapping[str, Any]) -> "Section":
        """The same, with values for keys that it leaves out."""
        given = {key: value for key, value in self.data.items() if value is not None}
        return Section(self.path, self.prefix, {**defaults, **given})

    def count(self, key: str, default: int | None = None, most: int = MOST) -> int:
        """A whole number from 1 to ``most``; without ``default`` it must be there."""
        value = self.data.get(key)
        if value is None and default is not None:
            return default
        if value == default == 0 and type(value) is int:
            return 0  # if none is a possible answer, so is 0
        if type(value) is not int or not 1 <= value <= most:
            above = type(value) is int and value > most
            raise self.refusal(key, f"a whole number of at {f'most {most}' if above else 'least 1'}")
        return value

    def flag(self, key: str, default: bool) -> bool:
        """True or false."""
        value = self.data.get(key, default)
        if type(value) is not bool:
            raise self.refusal(key, "true or false")
        return value

    def refusal(self, key: str, wanted: str) -> HardwareError:
        """The error for ``key``: wrong or missing."""
        name = f'"{self.prefix}{key}"'
        if self.data.get(key) is None:
            return HardwareError(f"{self.path} has no {name}: write it with {wanted}")
        return HardwareError(f"{name} in {self.path} is {echo(self.data[key])}: write {wanted}")


def echo(value: Any) -> str:
    """The value as short JSON."""
    shown = json.dumps(value)
    return shown if len(shown) <= _LONGEST_ECHO else shown[: _LONGEST_ECHO - 3] + "..."
