"""python -m scripts.configuration_page: writes the tables of keys into the pages that have their marks.

A table stands between ``<!-- keys: GROUP -->`` (``run``: keys without a group;
``realexec``: those of them that only real runs have) and ``<!-- end of keys -->``.
Its rows are what is declared at the fields of the configuration (servetwin/config).
"""

import re
from pathlib import Path
from typing import Final

from servetwin.config.compose.key_text import key_table

DOCS: Final = Path(__file__).resolve().parents[1] / "docs"
PAGES: Final = ("reference/CONFIGURATION.md", "reference/SCALERS.md")
_TABLE: Final = re.compile(r"<!-- keys: (\S+) -->\n.*?<!-- end of keys -->", re.DOTALL)


def with_tables(page: str) -> str:
    """Return a page's text with its tables of keys as they are declared."""
    return _TABLE.sub(_table, page)


def _table(mark: "re.Match[str]") -> str:
    return f"<!-- keys: {mark[1]} -->\n{key_table(mark[1])}\n<!-- end of keys -->"


if __name__ == "__main__":
    for name in PAGES:
        path = DOCS / name
        path.write_text(with_tables(path.read_text(encoding="utf-8")), encoding="utf-8")
