"""Whether a measured file went into the step times of the run it is held against."""

from pathlib import Path
from typing import Any, Final

from experiments.compare.measured import Measured
from experiments.compare.own_result import Result
from hwmodels.errors import HardwareError
from hwmodels.profile_file import load_profile
from serving.vocabulary.errors import UserError

_SHOWN: Final = 12  # hexadecimal digits of a digest


def check_provenance(result: Result, measured: Measured) -> list[str]:
    """UserError for data that the run's step times were fitted on; what could not be told, as remarks."""
    step_time = result.summary.get("step_time")
    step_time = step_time if isinstance(step_time, dict) else {}
    use = step_time.get("profile")
    if measured.sha256[:_SHOWN] in str(step_time.get("source", "")):
        _refuse(result, measured, "the step times")
    if not isinstance(use, dict):
        return []
    files, remarks = _files_of(use)
    for name, digest in files:
        if digest == measured.sha256 or _is_same_place(name, measured.path):
            _refuse(result, measured, f"the profile {use.get('path')} (as {name})")
    return remarks


def _refuse(result: Result, measured: Measured, of: str) -> None:
    raise UserError(
        f"{measured.path} went into {of} that {result.folder} was simulated with, so it cannot judge them: "
        "compare with data that was kept aside"
    )


def _files_of(use: dict[str, Any]) -> tuple[list[tuple[str, str]], list[str]]:
    """(name, sha256) of what the profile was made of: the summary has them, else the profile itself."""
    files = use.get("files")
    if isinstance(files, list):
        return [(str(one["name"]), str(one["sha256"])) for one in files], []
    path = use.get("path")
    try:
        loaded = load_profile(Path(str(path)), force=True)
    except HardwareError:
        return [], [
            f"the profile {path} is not there any more, so whether it was fitted on this data was not checked"
        ]
    if loaded.digest != use.get("sha256"):
        return [], [
            f"the profile {path} was changed since, so whether it was fitted on this data was not checked"
        ]
    return list(loaded.profile.stamp.files), []


def _is_same_place(name: str, path: Path) -> bool:
    """A stamp's name with a folder in it, such as ``llama/attention.csv``, is told by its last parts."""
    parts = Path(name).parts
    return len(parts) > 1 and path.resolve().parts[-len(parts) :] == parts
