"""Finds a user's module with the name of one of this project's packages, where Python takes it for ours."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

PACKAGES: Final = ("serving", "policies", "hwmodels", "simcore", "realexec", "traces", "experiments")


def namesake() -> str | None:
    """Return the sentence about the first one; None if every package is ours.

    Ours lie in one folder. Python looks first in the folder of a script, or in the current one with ``-m``.
    """
    home = Path(__file__).resolve().parents[1]
    for name in PACKAGES:
        spec = find_spec(name)
        if spec is None or spec.origin is None:
            continue  # the installation is incomplete, which the import of the package reports
        path = Path(spec.origin).resolve()
        if path.parent != home / name:
            return (
                f"{path} has the name of ServeTwin's package {name} and is found before it: give it another "
                "name, or start in another folder"
            )
    return None
