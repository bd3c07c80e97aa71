"""Which modules are compiled, and which of the same packages are not, and why."""

from pathlib import Path
from typing import Final

from nativecore import ROOT

# Whole packages; what stays interpreted is said below.
PACKAGES: Final = ("serving", "simcore", "hwmodels/fabric")
# Step times are taken from rows, the chunks of a load from a chain. Classes of policies stay as they are:
# people derive their own from them, and what a policy takes is read from its annotations, which native
# classes have not. What the most frequent ones do at each event is in modules of its own.
SINGLE: Final = (
    "hwmodels/loading/chain.py", "hwmodels/step_times/rows.py", "hwmodels/step_times/stage_rows.py",
    "policies/llumnix/freeness.py", "policies/llumnix/freest_first.py", "policies/llumnix/pairing.py",
    "policies/passes.py",
)  # fmt: skip

_ANSWERS: Final = "it tells a policy's wrong answer of any type: native code refuses a wrong type by itself"
_FACTS: Final = "its classes are made by ``fact``, and people build them; native ones would be slower to make"
INTERPRETED: Final[dict[str, str]] = {
    "serving/vocabulary/fact.py": "it makes classes at run time",
    "serving/vocabulary/actions.py": _FACTS,
    "serving/vocabulary/events.py": _FACTS,
    "serving/vocabulary/measured.py": _FACTS,
    "serving/vocabulary/request.py": _FACTS,
    "serving/protocols/live.py": _FACTS,
    "serving/protocols/planning.py": _FACTS,
    "serving/protocols/provisioning.py": _FACTS,
    "serving/protocols/scaling.py": _FACTS,
    "serving/protocols/signals.py": _FACTS,
    "serving/protocols/stages.py": _FACTS,
    "serving/elastic/offered_slots.py": "its class is a Sequence, from which no native class is derived",
    "serving/engine/batch_answers.py": _ANSWERS,
    "serving/parameters/cache_answers.py": _ANSWERS,
    "serving/protocols/live_answers.py": _ANSWERS,
    "serving/protocols/policy_faults.py": _ANSWERS,
    "serving/protocols/provision_answers.py": _ANSWERS,
    "serving/protocols/scale_answers.py": _ANSWERS,
    "serving/protocols/stage_answers.py": _ANSWERS,
    "serving/record/invariants.py": "its error is an AssertionError, from which no native class is derived",
}


def compiled_modules(root: Path = ROOT) -> list[str]:
    """The sources that are compiled, relative to ``root``, in order of name."""
    found = [
        str(path.relative_to(root)) for package in PACKAGES for path in sorted((root / package).rglob("*.py"))
    ]
    return sorted(
        name for name in {*found, *SINGLE} if not name.endswith("__init__.py") and name not in INTERPRETED
    )
