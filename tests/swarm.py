"""Worlds in which things are lost, one after another from consecutive seeds; stops at none that fails.

    python -m tests.swarm --count 200 --seed 7
    python -m tests.swarm --kind cut_by_layers --fault replica

Goes through all pairs of a kind of replica and a kind of loss. Every world runs coalesced and step by step.
Prints what repeats each world that breaks an invariant, loses a request, stands still, or whose two runs give
different numbers.
"""

import argparse
import sys
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from random import SystemRandom
from typing import Any

from tests.worlds.needed import needed_packages

with needed_packages("python -m tests.swarm"):
    from tests.worlds import (
        drawn_decode_migrations,
        drawn_elastic_migrations,
        drawn_migrations,
        drawn_reports,
    )
    from tests.worlds.faulted import Played, command_of, play_both
    from tests.worlds.faulted_kinds import KINDS, world_of
    from tests.worlds.faulted_losses import FAULTS

SHORT = {
    "groups": ("of data-parallel groups, in which ranks share", ["groups"]),
    "llumnix": ("of migration, priorities and auto-scaling", ["migration"]),
    "stages": ("of models in stages", ["passes", "language_stages"]),
}


def options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.swarm", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--count", type=int, default=20, help="how many worlds (20)")
    parser.add_argument("--kind", action="append", choices=list(KINDS), help="only this kind of replica")
    parser.add_argument("--fault", action="append", choices=FAULTS, help="only this kind of loss")
    for name, (help_text, kinds) in SHORT.items():
        parser.add_argument(f"--{name}", dest="kind", action="store_const", const=kinds, help=help_text)
    parser.add_argument(
        "--migrations", type=int, default=0, help="play so many small worlds with migrations instead"
    )
    parser.add_argument("--seed", type=int, help="of the first one; the next ones count up")
    return parser.parse_args(words)


def main(words: Sequence[str] | None = None) -> int:
    chosen = options(words)
    first = SystemRandom().getrandbits(31) if chosen.seed is None else chosen.seed
    if chosen.migrations:
        return migrations(first, chosen.migrations)
    kinds, faults = chosen.kind or list(KINDS), chosen.fault or FAULTS
    print(f"swarm: {chosen.count} worlds from seed {first} on", flush=True)
    again = "".join([f"--kind {one} " for one in chosen.kind or ()])
    again += "".join([f"--fault '{one}' " for one in chosen.fault or ()])
    totals, broken = Counter[str](), 0
    for seed in range(first, first + chosen.count):
        found = None
        try:
            found = world_of(seed, kinds, faults)
            note(totals, play_both(found.words, found.prepared))
        except Exception:
            broken += 1
            print(traceback.format_exc(limit=-6), flush=True)
            print(f"seed {seed} again: python -m tests.swarm {again}--count 1 --seed {seed}", flush=True)
            if found is not None:
                print(f"{found.kind}, {found.fault}, by hand: {command_of(found.words)}", flush=True)
    print("; ".join(f"{name} {number:,}" for name, number in totals.items()))
    print(f"{chosen.count} worlds, {broken} broken")
    return 1 if broken else 0


def note(totals: Counter[str], played: Played) -> None:
    """Add what became of a world."""
    totals["events"] += sum(played.checked.events.values())
    totals["requests arrived"] += played.arrived
    totals["finished"] += len(played.ends.finished_ids)
    totals["rejected"] += len(played.ends.rejected)
    totals["failed"] += len(played.ends.lost)
    for loss in played.losses:
        totals[f"faults, {loss.what}" if not loss.nothing else "faults that met nothing"] += 1
    totals["runs closed with requests in flight"] += played.checked.events["Closing"] > 0


def migrations(first: int, count: int) -> int:
    """Of instances that stay, with priorities; that come and go, also while they load; of decode instances;
    and by Llumnix's rules on load reports.

    By turns, each coalesced and step by step.
    """
    totals, broken = Counter[str](), 0
    print(f"swarm: {count} worlds with migrations from seed {first} on", flush=True)
    kinds = (drawn_migrations.check_world, drawn_elastic_migrations.check_world)
    others = (drawn_decode_migrations.check_world, drawn_reports.check_reports)
    checks: tuple[Callable[[int], Any], ...] = (*kinds, *others)
    for seed in range(first, first + count):
        try:
            played = checks[seed % len(checks)](seed)
        except Exception:
            broken += 1
            print(traceback.format_exc(limit=-6), flush=True)
            print(f"seed {seed} again: python -m tests.swarm --migrations 1 --seed {seed}", flush=True)
            continue
        totals.update(record.outcome for record in played.records)
        totals["requests"] += len(played.recorder.done)
        totals["requests that failed"] += len(played.recorder.failures)
    print("; ".join(f"{name} {number:,}" for name, number in totals.items()))
    print(f"{count} worlds, {broken} broken")
    return 1 if broken else 0


def read_faster() -> None:
    """Let libyaml read YAML, if it is there: reading cluster files takes longer than a small world."""
    import yaml

    yaml.SafeLoader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # type: ignore[misc]


if __name__ == "__main__":
    read_faster()
    sys.exit(main())
