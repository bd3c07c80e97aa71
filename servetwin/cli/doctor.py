"""``servetwin doctor``: reports installed packages, data found, and how to get what is missing."""

import importlib.metadata
import json
import os
import platform
import shutil
from collections.abc import Sequence
from typing import Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import telling
from serving.vocabulary.errors import UserError

_NEEDED: Final = (
    "simpy",
    "numpy",
    "pandas",
    "pyarrow",
    "networkx",
    "matplotlib",
    "hydra-core",
    "rich",
    "joblib",
)
# Package -> features that need it, and how to install it.
_EXTRAS: Final = {
    "ortools": ("live scaling by the solver (system/live=ilp)", "plan"),
    "optuna": ("searches (servetwin sweep search.minimize=...)", "search"),
    "ray": ("servetwin sweep launcher=ray, realexec run launcher=ray", "ray"),
    "submitit": ("servetwin sweep launcher=slurm", "slurm"),
    "aiconfigurator-core": ("engine.step_time=aiconfigurator", "silicon"),
    "torch": ("real workers (realexec run)", "real"),
    "transformers": ("real workers (realexec run)", "real"),
    "safetensors": ("real workers (realexec run)", "real"),
    "msgspec": ("real workers (realexec run)", "real"),
    "nixl": ("KV and parameters between real workers by NIXL (realexec run transport=nixl)", "nixl"),
}
# Purpose -> names of the program, and how to get it.
BROWSERS: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_PROGRAMS: Final = {
    "compiling the core (make fast)": (("cc",), "install a C compiler, such as gcc"),
    "tests of pages in a browser": (BROWSERS, "install chromium"),
}
_PLACES: Final = {
    "SERVETWIN_TRACES": "recorded traces lie in data/ otherwise",
    "SERVETWIN_PROFILES": "measured tables of others, where a page names them",
    "SERVETWIN_REAL_RUNS": "measured runs of real servers, which python -m benchmarks.accuracy simulates",
    "SERVETWIN_FIGURES": "points of published figures, beside which servetwin reproduce llumnix puts ours",
}


def doctor(words: Sequence[str]) -> int:
    """Exit status 0, or 1 if a requirement of every run is missing."""
    rest, as_json = asked_for_json(words)
    whole = rest == ["all=true"]
    if rest and not whole:
        raise UserError(f"{rest[0]} is unknown to servetwin doctor: write all=true for everything, or --json")
    installed = examined()
    with telling():
        text = "\n".join(lines_of(installed) if whole else short_lines_of(installed))
        print(json.dumps(installed, indent=1) if as_json else text)
    return 1 if installed["missing"] else 0


def examined() -> dict[str, Any]:
    """Return facts by kind, and ``missing``: sentences about requirements of every run."""
    import nativecore
    from servetwin.config.compose.content_cache import cache_folder
    from servetwin.config.version import code_version
    from traces.find import FILE_NAMES

    needed = {name: _version(name) for name in _NEEDED}
    return {
        "servetwin": code_version(),
        "python": platform.python_version(),
        "core": nativecore.section(),
        "packages": needed,
        "extras": {name: _version(name) for name in _EXTRAS},
        "traces": {name: _trace(name) for name in FILE_NAMES},
        "programs": {name: shutil.which(name) for name in programs()},
        "places": {name: os.environ.get(name) for name in _PLACES},
        "cache": str(cache_folder()) if cache_folder() else None,
        "missing": [f"{name}: pip install servetwin" for name, version in needed.items() if version is None],
    }


def short_lines_of(installed: dict[str, Any]) -> list[str]:
    """Return what runs here, what is missing with its remedy, and where traces lie."""
    traces = installed["traces"]
    here = [name for name, path in traces.items() if path]
    lacking: dict[str, list[str]] = {}
    for name, (use, extra) in _EXTRAS.items():
        if installed["extras"][name] is None and use not in lacking.setdefault(extra, []):
            lacking[extra].append(use)
    missing = [
        *installed["missing"],
        *(f"{'; '.join(uses)}: pip install 'servetwin[{extra}]'" for extra, uses in lacking.items() if uses),
        *(
            f"{use}: {_PROGRAMS[use][1]}"
            for use, names in _by_use().items()
            if not any(installed["programs"][name] for name in names)
        ),
    ]
    return [
        *_head(installed),
        f"recorded traces: {len(here)} of {len(traces)} are here (servetwin traces list); others are drawn",
        "missing:" if missing else "nothing is missing",
        *(f"  {line}" for line in missing),
        "everything that was looked at: servetwin doctor all=true",
    ]


def _head(installed: dict[str, Any]) -> list[str]:
    code, core = installed["servetwin"], installed["core"].get("core", "unknown")
    commit = (code["commit"] or "unknown")[:12]
    faster = "" if core == "compiled" else " (make fast compiles it: twice as fast)"
    return [
        f"servetwin {code['version']}, commit {commit}, Python {installed['python']}",
        f"core: {core}{faster}",
    ]


def lines_of(installed: dict[str, Any]) -> list[str]:
    """Return everything as readable lines: one fact a line, with a remedy for missing parts."""
    lines = _head(installed)
    lines += _block("packages", installed["packages"], "pip install servetwin")
    lines += ["extras:"]
    for name, version in installed["extras"].items():
        use, extra = _EXTRAS[name]
        state = version or f"not installed: pip install 'servetwin[{extra}]'"
        lines.append(f"  {name:<21}{state:<48}{use}")
    lines += ["recorded traces:"]
    for name, path in installed["traces"].items():
        lines.append(f"  {name:<28}{path or _remedy(name)}")
    lines += ["programs:"]
    for use, names in _by_use().items():
        path = next((installed["programs"][name] for name in names if installed["programs"][name]), None)
        lines.append(f"  {names[0]:<14}{path or f'not found: {_PROGRAMS[use][1]}':<48}{use}")
    lines += ["places:"]
    lines += [
        f"  {name:<20}{value or 'not set'}   ({_PLACES[name]})" for name, value in installed["places"].items()
    ]
    lines.append(f"kept compositions: {installed['cache'] or 'none are kept (SERVETWIN_CACHE)'}")
    return [*lines, *installed["missing"]]


def _block(title: str, versions: dict[str, str | None], remedy: str) -> list[str]:
    return [
        f"{title}:",
        *(f"  {name:<14}{version or f'missing: {remedy}'}" for name, version in versions.items()),
    ]


def _version(package: str) -> str | None:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return None


def programs() -> list[str]:
    """Return the programs that are searched on the PATH."""
    return [name for names in _by_use().values() for name in names]


def _by_use() -> dict[str, Sequence[str]]:
    """Map purpose to program names, any of which suffices."""
    compiler = os.environ.get("CC")
    configured = {"compiling the core (make fast)": [compiler]} if compiler else {}
    return {use: configured.get(use, names) for use, (names, _) in _PROGRAMS.items()}


def _remedy(name: str) -> str:
    """Return how to get the file of a recorded trace."""
    from traces.fetching.sources import SOURCES
    from traces.find import FILE_NAMES

    if SOURCES[name].sha256:
        return f"not found: servetwin traces fetch {name}"
    return f"not found: put {FILE_NAMES[name]} into the folder SERVETWIN_TRACES"


def _trace(name: str) -> str | None:
    from traces.errors import TraceError
    from traces.find import find_trace

    try:
        return str(find_trace(name).path)
    except TraceError:
        return None
