"""``make same``: run 60 configurations and more, and compare hashes of what they give.

record FILE: write those of this checkout. compare FILE: run again and name what differs, status 1 if anything
does. since COMMIT: the same with a record made at that commit, by its own list of configurations. both:
interpreted beside compiled.
"""

import argparse
import json
import os
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from tests.same_results.commits import INTERPRETED_VARIABLE, checkout, record_in
from tests.same_results.compare import differences
from tests.same_results.recording import ROOT, RunFailed, chosen, record, write


def options(words: Sequence[str] | None) -> argparse.Namespace:
    shape = argparse.RawDescriptionHelpFormatter
    parser = argparse.ArgumentParser(
        prog="python -m tests.same_results", description=__doc__, formatter_class=shape
    )
    parser.add_argument("command", choices=("list", "record", "compare", "since", "both"))
    parser.add_argument("of", nargs="?", default="", metavar="FILE or COMMIT")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these configurations")
    parser.add_argument(
        "--allow-new", action="store_true", help="what one side alone has is told and does not fail"
    )
    parser.add_argument(
        "--ignore", nargs="+", default=[], metavar="PATTERN", help="outputs not compared, such as '*.reason'"
    )
    given = parser.parse_args(words)
    if given.command in ("record", "compare", "since") and not given.of:
        parser.error(f"{given.command} wants a {'COMMIT' if given.command == 'since' else 'FILE'}")
    return given


def say(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


def compared(before: Mapping[str, Any], after: Mapping[str, Any], given: argparse.Namespace) -> int:
    """Prints the differences; status 1 if one fails."""
    kept = before["configurations"]
    if given.only:
        kept = {name: outputs for name, outputs in kept.items() if name in given.only}
    failed = after.get("failed", {})
    kept = {name: outputs for name, outputs in kept.items() if name not in failed}
    failing, told = differences(kept, after["configurations"], given.allow_new, given.ignore)
    for reason in failed.values():
        print(f"failed  {reason}")
    for one in told:
        print(f"{one} (allowed)")
    for one in failing:
        print(one)
    here, there = (f"{one['head']['core']}, Python {one['head']['python']}" for one in (after, before))
    outputs = sum(map(len, after["configurations"].values()))
    print(
        f"{len(after['configurations'])} configurations, {outputs} outputs ({here}; reference {there}): "
        f"{len(failing)} differences, {len(failed)} runs failed"
    )
    return 1 if failing or failed else 0


def read(path: Path) -> Any:
    try:
        found = json.loads(path.read_text(encoding="utf-8"))
        return {"head": found["head"], "configurations": found["configurations"]}
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise RunFailed(f"{path} is no record ({error}): write one with record {path}") from error


def both(given: argparse.Namespace) -> int:
    """Interpreted beside compiled."""
    with tempfile.TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in ("interpreted", "compiled")]
        for path, value in zip(paths, ("1", None)):
            record_in(ROOT, path, given.only, {INTERPRETED_VARIABLE: value})
        before, after = map(read, paths)
    if before["head"]["core"] == after["head"]["core"]:
        say(f"both runs were {after['head']['core']}, which proves nothing: compile first (make fast)")
        return 2
    return compared(before, after, given)


def since(given: argparse.Namespace) -> int:
    """This checkout beside a commit."""
    with tempfile.TemporaryDirectory() as folder, checkout(given.of) as root:
        path = Path(folder) / "before"
        record_in(root, path, given.only, {})
        before = read(path)
    return compared(before, record(chosen(given.only), say, keep_going=True), given)


def main(words: Sequence[str] | None = None) -> int:
    given = options(words)
    try:
        if given.command == "list":
            print("\n".join(chosen(given.only)))
            return 0
        if given.command == "both":
            return both(given)
        if given.command == "since":
            return since(given)
        if given.command == "compare":
            before = read(Path(given.of))  # before anything runs
            return compared(before, record(chosen(given.only), say, keep_going=True), given)
        found = record(chosen(given.only), say)
        write(found, Path(given.of))
    except (RunFailed, KeyError) as error:
        say(str(error.args[0]))
        return 2
    print(f"{len(found['configurations'])} configurations recorded in {given.of}")
    return 0


if __name__ == "__main__":
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    sys.exit(main())
