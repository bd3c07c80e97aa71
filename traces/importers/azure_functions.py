"""Names of Azure functions: short, and as long as it takes to keep two apart."""

from typing import Final

from traces.errors import TraceError

_SHORT_DIGITS: Final = 8


def short_names(functions: list[tuple[str, str]]) -> tuple[str, ...]:
    """APP/FUNC with the first 8 digits of each; those that would then be equal get twice as many, and so on.

    functions: different pairs. Raises TraceError when even whole names are equal, which only a / in one does.
    """
    names = ["/".join(part[:_SHORT_DIGITS] for part in pair) for pair in functions]
    digits = _SHORT_DIGITS
    longest = max((len(part) for pair in functions for part in pair), default=0)
    while len(set(names)) < len(names):
        if digits >= longest:
            raise TraceError("two functions would get the same name: write app and func without /")
        digits *= 2
        rows_of: dict[str, int] = {}
        for name in names:
            rows_of[name] = rows_of.get(name, 0) + 1
        names = [
            name if rows_of[name] == 1 else "/".join(part[:digits] for part in pair)
            for name, pair in zip(names, functions, strict=True)
        ]
    return tuple(names)
