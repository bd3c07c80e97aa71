"""Checks whether a measured file was used to fit the step times of the run it is compared with."""

from pathlib import Path
from typing import Any, Final

from hwmodels.errors import HardwareError
from hwmodels.profiles.profile_file import load_profile
from servetwin.compare.measured import Measured
from servetwin.compare.own_result import Result
from serving.vocabulary.errors import UserError

_SHOWN: Final = 12  # hexadecimal digits of a digest


def check_provenance(result: Result, measured: Measured) -> list[str]:
    """Raise UserError for data that the step times were fitted on; return remarks on unknown cases."""
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
    """Return (name, sha256) of the profile's source files: from the summary, otherwise from the profile."""
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
    """Compare the last parts if a stamp's name has a folder, such as ``llama/attention.csv``."""
    parts = Path(name).parts
    return len(parts) > 1 and path.resolve().parts[-len(parts) :] == parts
