"""Result folders: a small one, what is refused, and what lies in one."""

from pathlib import Path

import pytest

from servetwin.results.result_folder import ResultFolder
from serving.vocabulary.errors import UserError


def write_result(target: Path | str, content: str = "{}", overwrite: bool = False) -> Path:
    with ResultFolder(target, overwrite) as folder:
        (folder.path / "summary.json").write_text(content)
        (folder.path / "plots").mkdir()
        (folder.path / "plots" / "a.svg").write_text("x")
        return folder.commit()


def refusal(target: Path | str, overwrite: bool = False) -> str:
    with pytest.raises(UserError) as refused:
        ResultFolder(target, overwrite).prepare()
    return str(refused.value)


def names(folder: Path) -> set[str]:
    return {entry.name for entry in folder.iterdir()}
