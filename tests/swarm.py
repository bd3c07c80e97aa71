"""Worlds in which things are lost, one after another from consecutive seeds; stops at none that fails.

    python -m tests.swarm --count 200 --seed 7
    python -m tests.swarm --groups
    python -m tests.swarm --stages
    python -m tests.swarm --llumnix

Prints what repeats each world that breaks an invariant, loses a request or stands still.
"""

import argparse
import sys
import tempfile
import traceback
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path
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
    from tests.worlds.faulted import command_of, play, with_losses, world_words
    from tests.worlds.faulted_groups import group_words
    from tests.worlds.faulted_migrations import migration_words
    from tests.worlds.faulted_stages import stage_words


def options(words: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.swarm", description=__doc__)
    parser.add_argument("--count", type=int, default=20, help="how many worlds (20)")
    parser.add_argument("--groups", action="store_true", help="of data-parallel groups, in which ranks share")
    parser.add_argument("--llumnix", action="store_true", help="of migration, priorities and auto-scaling")
    parser.add_argument("--stages", action="store_true", help="of models in stages")
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
    print(f"swarm: {chosen.count} worlds from seed {first} on", flush=True)
    totals, broken = Counter[str](), 0
    kinds = [name for name in ("groups", "stages", "llumnix") if getattr(chosen, name)]
    again = "".join([f"--{name} " for name in kinds])
    for seed in range(first, first + chosen.count):
        world = words_of(chosen, seed)
        try:
            world = with_losses(seed, world)
            played = play(world)
        except Exception:
            broken += 1
            print(traceback.format_exc(limit=-6), flush=True)
            print(f"seed {seed} again: python -m tests.swarm {again}--count 1 --seed {seed}")
            print(f"by hand: {command_of(world)}", flush=True)
            continue
        totals["events"] += sum(played.checked.events.values())
        totals["requests arrived"] += played.arrived
        totals["finished"] += len(played.ends.finished_ids)
        totals["rejected"] += len(played.ends.rejected)
        totals["failed"] += len(played.ends.lost)
        for loss in played.losses:
            totals[f"faults, {loss.what}" if not loss.nothing else "faults that met nothing"] += 1
        totals["runs closed with requests in flight"] += played.checked.events["Closing"] > 0
    print("; ".join(f"{name} {number:,}" for name, number in totals.items()))
    print(f"{chosen.count} worlds, {broken} broken")
    return 1 if broken else 0


def words_of(chosen: argparse.Namespace, seed: int) -> list[str]:
    """Of the kind that was asked for."""
    if chosen.groups:
        return group_words(seed, Path(tempfile.gettempdir()))
    if chosen.llumnix:
        return migration_words(seed)
    return stage_words(seed) if chosen.stages else world_words(seed)


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


if __name__ == "__main__":
    sys.exit(main())
