"""Rates that change from stage to stage, as people write them: ``[15@60s,2@60s,10@60s]``.

A stage is RATE@LENGTH, which follows the stage before it, or RATE@START-END. RATE is in requests per second,
or with ``/min`` or ``/h`` behind it; ``2..15`` rises straight from 2 to 15 (or falls). Times are in seconds,
or with ``ms``, ``min`` or ``h`` behind them. Between two stages that do not meet nothing arrives.
"""

import re
from pathlib import Path
from typing import Final

from traces.checks import short_number
from traces.errors import TraceError
from traces.synthetic.arrivals import LONGEST_S
from traces.synthetic.rate_stages import EXAMPLE, KEY, MOST_PER_S, Stages, stages_of_pieces

_NUMBER: Final = r"[0-9]{1,18}(?:\.[0-9]{0,18})?|\.[0-9]{1,18}"
_SECONDS: Final = {"": 1.0, "s": 1.0, "sec": 1.0, "ms": 1e-3, "m": 60.0, "min": 60.0, "h": 3600.0}
_PER: Final = {
    "": 1.0,
    "/s": 1.0,
    "rps": 1.0,
    "qps": 1.0,
    "/min": 60.0,
    "/m": 60.0,
    "rpm": 60.0,
    "/h": 3600.0,
}
_STAGE: Final = re.compile(
    rf"({_NUMBER})(?:\.\.({_NUMBER}))?([a-z/]*)@(?:({_NUMBER})([a-z]*)-)?({_NUMBER})([a-z]*)", re.ASCII
)


def stages_of(text: str) -> Stages:
    """The stages that ``trace.rates`` says, in words or as the path of a CSV file. Raises TraceError."""
    words = str(text).strip()
    if words.startswith("[") or "@" in words:
        return _stages_in_words(words.removeprefix("[").removesuffix("]"))
    from traces.synthetic.rate_file import stages_in_file

    return stages_in_file(Path(words))


def _stages_in_words(words: str) -> Stages:
    pieces = list[tuple[float, float, float, float]]()
    for word in (part.strip().strip("'\"") for part in words.split(",")):
        pieces.append(_piece_of(word, pieces[-1][1] if pieces else 0.0))
    return stages_of_pieces(pieces)


def _piece_of(word: str, before_s: float) -> tuple[float, float, float, float]:
    """Start, end and both rates of one stage. before_s: the end of the stage before it."""
    match = _STAGE.fullmatch(word)
    if match is None:
        length = f" (it has no length: {word}@60s)" if re.fullmatch(_NUMBER, word) else ""
        raise TraceError(
            f"{KEY}: {word[:40]!r} is no stage{length}: write RATE@LENGTH, such as {EXAMPLE}, RATE@START-END,"
            " such as 15@0-60s, or the path of a CSV file with columns time and rate"
        )
    first, last, per, start, start_unit, end, end_unit = match.groups()
    for unit, known, what in (
        (per, _PER, "rate"),
        (start_unit or "", _SECONDS, "time"),
        (end_unit, _SECONDS, "time"),
    ):
        if unit not in known:
            units = ", ".join(filter(None, known))
            raise TraceError(f"{KEY}: {word[:40]!r} has a {what} in {unit!r}: write one of {units}")
    rates = [float(rate) / _PER[per] for rate in (first, last or first)]
    end_s = float(end) * _SECONDS[end_unit]
    start_s = before_s if start is None else float(start) * _SECONDS[start_unit or end_unit]
    if start is None:
        end_s += before_s
    elif start_s < before_s:
        raise TraceError(
            f"{KEY}: the stage {word[:40]} begins before the end of the stage before it,"
            f" {short_number(before_s)} s: write stages one after the other"
        )
    if not start_s < end_s <= LONGEST_S or not max(rates) <= MOST_PER_S:
        raise TraceError(
            f"{KEY}: the stage {word[:40]} is out of range: write a length above 0, up to 31 years, and at"
            " most a billion requests per second"
        )
    return start_s, end_s, rates[0], rates[1]
