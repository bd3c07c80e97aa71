"""Which modules are compiled, and which of the same packages are not, and why."""

from pathlib import Path
from typing import Final

from nativecore import ROOT

# Whole packages; what stays interpreted is said below.
PACKAGES: Final = ("serving", "simcore", "hwmodels/fabric")
# Policies that are asked for every request or step or look, and the rows that step times are taken from.
SINGLE: Final = ("hwmodels/rows.py", "policies/batching.py", "policies/dispatch.py")

INTERPRETED: Final[dict[str, str]] = {
    "serving/fact.py": "it makes classes at run time",
    "serving/invariants.py": "its error is an AssertionError, which native classes cannot be derived from",
}


def compiled_modules(root: Path = ROOT) -> list[str]:
    """The sources that are compiled, relative to ``root``, in order of name."""
    found = [
        str(path.relative_to(root)) for package in PACKAGES for path in sorted((root / package).glob("*.py"))
    ]
    return sorted(
        name for name in {*found, *SINGLE} if not name.endswith("__init__.py") and name not in INTERPRETED
    )
