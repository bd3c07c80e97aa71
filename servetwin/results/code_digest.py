"""A digest of the sources that runs use, to detect stored runs of other code."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("serving", "policies", "hwmodels", "simcore", "traces", "experiments")
_CONTENT: Final = (".py", ".yaml", ".json")
# Packages that only display or request runs: changes in them do not change a run's results.
_SHOWING: Final = ("commands", "compare", "llumnix", "plan", "quart", "report", "reproduce", "story", "sweep")


@cache
def code_digest() -> str:
    """Return the SHA-256 over the files of the packages that a run uses."""
    top, found = Path(__file__).resolve().parents[2], hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((top / package).rglob("*")):
            place = path.relative_to(top)
            if path.suffix in _CONTENT and not _only_shows(place):
                found.update(place.as_posix().encode() + b"\0" + path.read_bytes())
    return found.hexdigest()


def _only_shows(place: Path) -> bool:
    return place.parts[0] == "experiments" and place.parts[1] in _SHOWING
