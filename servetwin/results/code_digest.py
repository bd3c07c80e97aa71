"""A digest of the sources that runs use, to detect stored runs of other code."""

import hashlib
from functools import cache
from pathlib import Path
from typing import Final

_PACKAGES: Final = ("serving", "policies", "hwmodels", "simcore", "traces", "servetwin", "experiments")
_CONTENT: Final = (".py", ".yaml", ".json")
# Packages that only display or request runs: changes in them do not change a run's results.
_SHOWING: Final = ("advising", "cli", "compare", "planning", "report", "story", "support", "sweeps")
_OPTIONS: Final = "conf"  # all that runs read of experiments


@cache
def code_digest() -> str:
    """Return the SHA-256 over the files of the packages that a run uses."""
    top, digest = Path(__file__).resolve().parents[2], hashlib.sha256()
    for package in _PACKAGES:
        for path in sorted((top / package).rglob("*")):
            relative = path.relative_to(top)
            if path.suffix in _CONTENT and not _only_shows(relative):
                digest.update(relative.as_posix().encode() + b"\0" + path.read_bytes())
    return digest.hexdigest()


def _only_shows(place: Path) -> bool:
    package, room = place.parts[:2]
    return (package == "servetwin" and room in _SHOWING) or (package == "experiments" and room != _OPTIONS)
