"""Columns of text for the console."""

from collections.abc import Sequence


def text_table(rows: Sequence[Sequence[str]], numbers: bool = False) -> list[str]:
    """Return one indented line per row; with ``numbers`` all columns but the first are right-aligned."""
    wide = [max(len(row[place]) for row in rows) for place in range(len(rows[0]))]

    def cell(place: int, text: str) -> str:
        return text.rjust(wide[place]) if numbers and place else text.ljust(wide[place])

    return ["  " + "  ".join(cell(place, text) for place, text in enumerate(row)).rstrip() for row in rows]
