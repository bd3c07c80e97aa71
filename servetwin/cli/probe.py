"""``realexec probe``: what this machine has for real runs."""

import json
from collections.abc import Sequence
from pathlib import Path

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import telling
from serving.vocabulary.errors import UserError


def probe(words: Sequence[str]) -> int:
    """Print what ``probe [folder=DIR]`` found; exit status 0."""
    from realexec.probe import machine

    rest, as_json = asked_for_json(words)
    folders = [word.partition("=")[2] for word in rest if word.startswith("folder=")]
    if len(folders) < len(rest) or len(folders) > 1:
        raise UserError("probe takes no such words: write realexec probe, with folder=DIR or --json")
    folder = Path(folders[0]).expanduser() if folders else None
    if folder is not None and not folder.is_dir():
        raise UserError(f"folder={folder} is no folder: write that of a disk to be measured")
    machine_data = machine.probe(folder=folder)
    with telling():
        print(json.dumps(machine_data, indent=2) if as_json else "\n".join(machine.lines_of(machine_data)))
    return 0
