"""A sentence instead of a traceback where a command of the tests lacks a package."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def needed_packages(command: str) -> Iterator[None]:
    """Around imports: where one is missing, the process ends with status 2 and says how to install it."""
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "a package").partition(".")[0]
        told = f"{command} needs {package}: write make .venv/.test and then .venv/bin/{command}"
        print(f"{told}, or pip install {package}", file=sys.stderr)
        sys.exit(2)
