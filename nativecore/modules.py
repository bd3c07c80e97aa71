"""Which modules are compiled, and which of the same packages are not, and why."""

from pathlib import Path
from typing import Final

from nativecore import ROOT

# Whole packages; what stays interpreted is said below.
PACKAGES: Final = ("serving", "simcore", "hwmodels/fabric")
# Step times are taken from these. Policies stay as they are: people derive their own from them, and what a
# policy takes is read from its annotations, which native classes have not; it is 3 % of a static run.
SINGLE: Final = ("hwmodels/rows.py",)

INTERPRETED: Final[dict[str, str]] = {
    "serving/vocabulary/fact.py": "it makes classes at run time",
    "serving/record/invariants.py": "its error is an AssertionError, which native classes cannot be derived from",
    **dict.fromkeys(
        (
            "serving/vocabulary/actions.py",
            "serving/vocabulary/events.py",
            "serving/protocols/live.py",
            "serving/protocols/planning.py",
            "serving/protocols/provisioning.py",
            "serving/vocabulary/request.py",
            "serving/protocols/scaling.py",
        ),
        "its classes are made by ``fact``, and people build them; native ones would be slower to make",
    ),
    **dict.fromkeys(
        (
            "serving/engine/batch_answers.py",
            "serving/parameters/cache_answers.py",
            "serving/protocols/live_answers.py",
            "serving/protocols/policy_faults.py",
            "serving/protocols/provision_answers.py",
            "serving/protocols/scale_answers.py",
        ),
        "it tells a policy's wrong answer, whatever its type: native code refuses a wrong type by itself",
    ),
}


def compiled_modules(root: Path = ROOT) -> list[str]:
    """The sources that are compiled, relative to ``root``, in order of name."""
    found = [
        str(path.relative_to(root)) for package in PACKAGES for path in sorted((root / package).glob("*.py"))
    ]
    return sorted(
        name for name in {*found, *SINGLE} if not name.endswith("__init__.py") and name not in INTERPRETED
    )
