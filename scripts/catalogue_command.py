"""The command line of scripts that print a file of the catalogue from a folder of measured tables."""

import sys
from collections.abc import Callable, Sequence
from pathlib import Path

from hwmodels.errors import HardwareError


def print_catalogue(name: str, printed: Callable[[Path], str], arguments: Sequence[str]) -> int:
    """Print what ``printed`` makes of the one FOLDER. Exit status 2 when the call or a table is wrong."""
    if len(arguments) != 1:
        print(f"usage: python -m scripts.{name} FOLDER", file=sys.stderr)
        return 2
    try:
        print(printed(Path(arguments[0])), end="")
    except HardwareError as error:
        print(error, file=sys.stderr)
        return 2
    return 0
