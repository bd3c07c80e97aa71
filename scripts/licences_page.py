"""python -m scripts.licences_page: writes the table of docs/contributing/LICENCES.md from installed packages.

A package that is not installed here keeps the row that it has.
"""

import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib import metadata
from pathlib import Path
from typing import Any, Final

ROOT: Final = Path(__file__).resolve().parents[1]
PAGE: Final = ROOT / "docs" / "contributing" / "LICENCES.md"
_NAME: Final = re.compile(r"[\w.-]+")
_ROW: Final = re.compile(r"^\| ([\w.-]+) \| .*$", re.MULTILINE)
_HEAD: Final = """# Licences of what ServeTwin uses

ServeTwin is Apache-2.0. No package is copied into it; these are installed beside it. Extras are installed
only where they are asked for, such as `pip install 'servetwin[real]'`. Published traces keep their own
licences, which `servetwin traces fetch` prints.

| package | for | licence |
|---|---|---|
"""


def wanted() -> dict[str, str]:
    """Return each package that pyproject.toml names -> the extra that needs it, "every run" for all."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text("utf-8"))["project"]
    groups: Mapping[str, list[str]] = {
        "every run": project["dependencies"],
        **project["optional-dependencies"],
    }
    return {
        name[0].lower(): group
        for group, lines in groups.items()
        for line in lines
        if (name := _NAME.match(line))
    }


def rows(known: Mapping[str, str]) -> Iterator[str]:
    """Yield a row per package; ``known``: rows as they are, by package."""
    for name, group in wanted().items():
        try:
            yield f"| {name} | {group} | {_licence(metadata.metadata(name))} |"
        except metadata.PackageNotFoundError:
            yield known.get(name, f"| {name} | {group} | not installed where this page was made |")


def _licence(found: Any) -> str:
    stated = found.get("License-Expression") or found.get("License") or ""
    if stated and len(stated) < 160 and stated != "UNKNOWN":
        return str(stated)
    prefix = "License :: OSI Approved :: "
    kinds = [one.removeprefix(prefix) for one in found.get_all("Classifier") or () if one.startswith(prefix)]
    return ", ".join(kinds) or "see its own files"


def page() -> str:
    """Return the page with its rows."""
    text = PAGE.read_text("utf-8") if PAGE.is_file() else ""
    return _HEAD + "\n".join(rows({match[1]: match[0] for match in _ROW.finditer(text)})) + "\n"


if __name__ == "__main__":
    PAGE.write_text(page(), encoding="utf-8")
