"""``make mutants``: break one line after the other in a copy of the tree and see which test notices.

Each mutant's own files of tests run first; with --all, if they do not notice, all light tests. Status 1 if a
mutant survives, 2 if one cannot be tried.
"""

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path

from tests.mutants.listed import MUTANTS
from tests.mutants.running import MutantFault, Outcome, check_copy, copied_tree, place_of, tried


def options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.mutants", description=__doc__)
    parser.add_argument("--all", action="store_true", help="all light tests where its own do not notice")
    parser.add_argument("--only", nargs="+", default=[], metavar="NAME", help="these mutants")
    parser.add_argument("--check", action="store_true", help="only look for every mutant's line")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the outcomes, seconds included")
    parser.add_argument("--table", type=Path, metavar="PAGE", help="write them into a page's table")
    given = parser.parse_args(words)
    unknown = set(given.only) - {mutant.name for mutant in MUTANTS}
    if unknown:
        parser.error(f"there is no mutant {sorted(unknown)[0]!r}")
    return given


def say(line: str) -> None:
    print(line, flush=True)


BEGIN, END = "<!-- mutants -->", "<!-- end of mutants -->"


def table(outcomes: Sequence[Outcome]) -> str:
    """For a page: without seconds, which differ from run to run, and parameters of tests."""
    noticed = sum(one.noticed_by is not None for one in outcomes)
    lines = [f"{noticed} of {len(outcomes)} mutants are noticed by the tests listed for them.", ""]
    lines += ["| mutant | package | what it breaks | noticed by |", "|---|---|---|---|"]
    for one in outcomes:
        test = "**nobody**" if one.noticed_by is None else one.noticed_by.partition("[")[0]
        test = test.rpartition("/")[2].replace(".py::", " ")
        lines.append(f"| {one.mutant.name} | {one.mutant.package} | {one.mutant.breaks} | {test} |")
    return "\n".join(lines)


def write_table(page: Path, outcomes: Sequence[Outcome]) -> None:
    """Between its marks; the rest of the page stays."""
    before, _, rest = page.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    page.write_text(f"{before}{BEGIN}\n{table(outcomes)}\n{END}{after}", encoding="utf-8")


def main(words: Sequence[str] | None = None) -> int:
    given = options(words)
    wanted = [mutant for mutant in MUTANTS if not given.only or mutant.name in given.only]
    outcomes, untried = list[Outcome](), 0
    try:
        with copied_tree() as root:
            for mutant in wanted:
                place_of(mutant, root)
            if given.check:
                say(f"{len(wanted)} mutants, each in one place")
                return 0
            check_copy(root)
            for mutant in wanted:
                try:
                    one = tried(mutant, root, given.all)
                except MutantFault as fault:
                    untried += 1
                    say(f"          {mutant.name}: NOT TRIED, {fault}")
                    continue
                outcomes.append(one)
                say(f"{one.seconds:6.1f} s  {mutant.name}: {one.noticed_by or 'SURVIVED'}")
    except MutantFault as fault:
        print(fault, file=sys.stderr)
        return 2
    survivors = [one for one in outcomes if one.noticed_by is None]
    say(f"{len(outcomes) - len(survivors)} of {len(outcomes)} mutants noticed")
    if given.json:
        rows = [
            {"mutant": one.mutant.name, "noticed_by": one.noticed_by, "seconds": round(one.seconds, 1)}
            for one in outcomes
        ]
        given.json.write_text(json.dumps(rows, indent=1) + "\n", encoding="utf-8")
    if given.table:
        write_table(given.table, outcomes)
    if untried:
        return 2
    return 1 if survivors else 0


if __name__ == "__main__":
    sys.exit(main())
