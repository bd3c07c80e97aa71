"""Writes a template for the user's own policy: a module with a working class, and a test that runs it."""

import keyword
import os
import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from servetwin.config.overrides import closest, echo
from servetwin.config.whole_file import whole_file
from serving.vocabulary.errors import UserError

_STUBS: Final = Path(__file__).with_name("stubs")
_CLASS: Final = re.compile(r"[A-Z][A-Za-z0-9]*")
_SMALL: Final = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=30")
# Runs in which the group's policy makes decisions.
_RUNS: Final = {
    "dispatch": ("cluster=a100_x2",),
    "admission": ("cluster=a100_x2",),
    "batcher": ("cluster=a100_x2",),
    "scaler": ("system=serverlessllm", "cluster=blitz_b"),
    "provision": ("system=serverlessllm", "cluster=blitz_b"),
    "live": ("system=blitzscale", "cluster=blitz_b"),
    "migration": ("cluster=blitz_b",),
}
_TEST: Final = '''"""{name} decides a small run: python -m pytest {test}"""

import servetwin as st
from {module} import {name}

WORDS = {words}


def test_a_run_with_it_ends(tmp_path):
    run = st.simulate(*WORDS, "journal=true", system__{group}={name}, uncertainty="off", out=tmp_path / "run")
    assert run.summary["requests"]["finished"] + len(run.unserved) == 60


def test_the_same_seed_decides_the_same():
    runs = [st.simulate(*WORDS, system__{group}={name}, uncertainty="off") for _ in range(2)]
    assert runs[0].requests.equals(runs[1].requests)
'''


@dataclass(frozen=True, slots=True)
class NewPolicy:
    """``module`` and ``test``: the written files. ``words``: the words of a run with the policy."""

    module: Path
    test: Path
    words: tuple[str, ...]


def new_policy(group: str, name: str, folder: Path) -> NewPolicy:
    """Write both files. UserError for a group without a template, a wrong name, and existing files."""
    if group not in _RUNS:
        near = closest(group, _RUNS)
        meant = f", {near} if that is meant" if near else ""
        known = ", ".join(_RUNS)
        raise UserError(
            f"there is no stub for {echo(group)}: write servetwin new-policy with one of {known}{meant}"
        )
    if not _CLASS.fullmatch(name) or keyword.iskeyword(name):
        raise UserError(f"{echo(name)} is no name of a class: write one such as MyPolicy")
    stem = re.sub(r"(?<!^)(?=[A-Z])", "_", name).lower()
    if stem in sys.stdlib_module_names:
        raise UserError(f"{stem}.py would hide Python's own {stem}: write another name, such as My{name}")
    module, test = folder / f"{stem}.py", folder / f"test_{stem}.py"
    for path in (module, test):
        if os.path.lexists(path):
            raise UserError(f"{path} is there already: choose another name, or move it away")
    words = (*_SMALL, *_RUNS[group])
    stub = (_STUBS / f"{group}.txt").read_text(encoding="utf-8").replace("NAME", name)
    told = _TEST.format(name=name, module=stem, test=test.name, group=group, words=_tuple(words))
    with whole_file("module", module) as policy, whole_file("test", test) as its_test:
        policy.write_text(stub, encoding="utf-8")
        its_test.write_text(told, encoding="utf-8")
    return NewPolicy(module, test, (*words, f"system/{group}={stem}:{name}"))


def _tuple(words: tuple[str, ...]) -> str:
    return "(" + ", ".join(f'"{word}"' for word in words) + ")"
