"""docs/contributing/LICENCES.md names every package asked for; the wheel brings its data files."""

import re
import subprocess
import tomllib

import yaml

from scripts.licences_page import PAGE, ROOT, rows, wanted


def test_every_package_has_a_licence() -> None:
    found = dict(re.findall(r"^\| ([\w.-]+) \| [^|]+ \| (.+) \|$", PAGE.read_text("utf-8"), re.MULTILINE))
    assert set(found) - {"package"} == set(wanted()), "write python -m scripts.licences_page"
    assert len(wanted()) > 15 and not any("not installed" in text for text in found.values())


def test_a_package_that_is_not_here_keeps_its_row() -> None:
    assert (
        "| nixl | nixl | known |" in list(rows({"nixl": "| nixl | nixl | known |"})) or "nixl" in _installed()
    )


def _installed() -> set[str]:
    from importlib.metadata import distributions

    return {str(one.metadata["Name"]).lower() for one in distributions()}


def test_data_files_of_packages_are_in_the_wheel() -> None:
    """Every file beside Python sources that git knows in a package matches a pattern of pyproject.toml."""
    patterns = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["tool"]["setuptools"][
        "package-data"
    ]
    packages = (
        "servetwin",
        "experiments",
        "hwmodels",
        "nativecore",
        "traces",
        "serving",
        "policies",
        "simcore",
    )
    names = subprocess.run(
        ["git", "ls-files", *packages], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    if not names:
        return  # a source tree without git
    matched = {
        path.relative_to(ROOT).as_posix()
        for package, globs in patterns.items()
        for pattern in globs
        for path in (ROOT / package).glob(pattern)
    }
    left = [name for name in names if not name.endswith((".py", ".md", ".pyi")) and name not in matched]
    assert left == []


def test_the_workflow_runs_scripts_that_are_there() -> None:
    workflow = yaml.safe_load((ROOT / ".github" / "workflows" / "wheels.yml").read_text("utf-8"))
    lines = [step["run"] for job in workflow["jobs"].values() for step in job["steps"] if "run" in step]
    scripts = re.findall(r"sh (\S+\.sh)", "\n".join(lines))
    assert len(scripts) == 2 and all((ROOT / name).is_file() for name in scripts)
    pythons = re.findall(r"cp3(\d+)-cp3\1|python3\.(\d+)", "\n".join(lines))
    assert {one or other for one, other in pythons} == {"11", "12", "13"}
