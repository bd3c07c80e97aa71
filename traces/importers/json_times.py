"""Times in JSON lines: numbers of some unit, exact, or dates."""

from decimal import ROUND_HALF_EVEN, Context, Decimal
from typing import Any, Final

from traces.csv.stamp import Stamp
from traces.importers.json_lines import Spot, shown
from traces.times import DIGITS, ISO, OTHER_UNIT, WORDS
from traces.workload import INT64_MAX

_EXACT: Final = Context(prec=40, rounding=ROUND_HALF_EVEN)  # no caller's own context may round for us
_EXAMPLES: Final = {"s": "1.5"}


class JsonTimes:
    """The times under one key of all rows, in ``unit`` (one of ``traces.times.UNITS``)."""

    def __init__(self, key: str, unit: str) -> None:
        self.key = key
        self._unit = unit
        self._zoned: bool | None = None

    def ns(self, row: dict[str, Any], spot: Spot, key: str | None = None) -> int:
        """The row's time in ns, a date since 1970: exact, or the nearest (ties to even).

        key: another than the usual one. Raises TraceError for anything else that is no time.
        """
        value, key = row.get(key or self.key), key or self.key
        if self._unit == ISO:
            return self._date_ns(value, key, spot)
        if type(value) is int:
            value = Decimal(value)
        if not isinstance(value, Decimal):
            problem = "the value is missing" if value is None else f"{shown(value)} is not a number"
            example = _EXAMPLES.get(self._unit, "1500")
            remedy = f"write the arrival in {self._unit}, such as {example}"
            raise spot.error(problem, remedy if value is None else f"{remedy}, {OTHER_UNIT}", key)
        digits = DIGITS[self._unit]
        if not 0 <= value <= Decimal(INT64_MAX).scaleb(-digits, _EXACT):
            problem = f"{shown(value)} {self._unit} is negative or too late"
            raise spot.error(problem, f"write the time since the trace's start, {OTHER_UNIT}", key)
        return int(value.quantize(Decimal((0, (1,), -digits)), context=_EXACT).scaleb(digits, _EXACT))

    def _date_ns(self, value: Any, key: str, spot: Spot) -> int:
        if not isinstance(value, str):
            problem = "the value is missing" if value is None else f"{shown(value)} is not a date"
            raise spot.error(problem, f'write {WORDS[ISO]} in quotes, such as "2023-11-16T18:15:46.68Z"', key)
        stamp_ns, zoned = Stamp().judge(value, lambda problem, remedy: spot.error(problem, remedy, key))
        if self._zoned is not None and zoned != self._zoned:
            has, had = ("no time zone", "has one") if self._zoned else ("a time zone", "has none")
            problem = f"the date has {has} and the first row's {had}"
            raise spot.error(problem, "write all with +00:00 or all without", key)
        self._zoned = zoned
        return stamp_ns
