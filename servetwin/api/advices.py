"""What scalers would have decided on a production record."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servetwin.api.words import words_of

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True, kw_only=True)
class Advice:
    """``table``: a row per recorded instant, with instances as recorded, advised and simulated.

    ``data``: everything, as in ``advise.json``; ``lacks``: what each scaler that could not be asked needs.
    """

    sentence: str
    table: pd.DataFrame
    lacks: dict[str, list[str]]
    data: dict[str, Any]

    def __repr__(self) -> str:
        return f"<Advice: {self.sentence}>"


def advise(log: str | Path, *words: str, **values: Any) -> Advice:
    """``servetwin advise``: ``st.advise("metrics.json", system__scaler=["hpa", "keda"])``."""
    from servetwin.advising.advise_words import advise_words
    from servetwin.advising.text import as_csv, as_data
    from servetwin.cli.advise import asked

    all_words = [f"log={log}", *words_of(words, values)]
    result, _ = asked(advise_words(all_words), " ".join(["servetwin", "advise", *all_words]))
    return advice_of(as_data(result), as_csv(result))


def advice_of(data: dict[str, Any], table: str) -> Advice:
    """Return the advice whose advise.json and advise.csv these are."""
    from io import StringIO

    import pandas as pd

    return Advice(
        sentence=data["sentence"],
        table=pd.read_csv(StringIO(table)),
        lacks={name: one["lacks"] for name, one in data["scalers"].items() if one["lacks"]},
        data=data,
    )
