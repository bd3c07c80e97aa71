"""Sweeps of Llumnix's set-ups: step times, KV memory, rules as the paper prints them, thresholds."""

from collections.abc import Iterator, Sequence
from typing import Final

from experiments.common.set_up import Case, SetUp, Words
from experiments.common.sweep import SetUpSweep, sweep_of_words, systems_by_set_up
from experiments.llumnix.set_ups import INFAAS, LLUMNIX, WORKLOADS

_OF_FIGURE_11: Final = {
    f"{workload.title} at {rate:g}/s"
    for workload in WORKLOADS
    if workload.printed
    for rate in workload.rates_per_s
}
# vllm_0_1_7 has 2.9e-4 s of overhead per layer, 9.28 ms on a step of about 50.
_PER_LAYER_S: Final = (1.4e-4, 4.4e-4)
_OUT: Final = (0, 20)
# 851 blocks are the 13,616 tokens that section 6.1 names; 715 are as many below the 783 of Figure 11.
_KV_BLOCKS: Final = (715, 851)


def sweeps_of(cases: Sequence[Case]) -> tuple[SetUpSweep, ...]:
    """Return the sweeps, under the first seed, of every set-up with points to compare that is run."""
    by_set_up = systems_by_set_up(cases, lambda case: _has_missable_rows(case.set_up.name))
    return tuple(sweep for set_up, systems in by_set_up.items() for sweep in _sweeps_of(set_up, systems))


def _has_missable_rows(name: str) -> bool:
    """Return whether the set-up has rows that may be missed.

    S-L, L-S, and the bands and bursts of auto-scaling have no such rows.
    """
    return name in _OF_FIGURE_11 or name.endswith((" high", "/s, auto-scaled", " at 0.42/s", " at 1.9/s"))


def _sweeps_of(set_up: SetUp, systems: Sequence[Case]) -> Iterator[SetUpSweep]:
    steps = {f"{each_s * 1e3:g} ms": (f"engine.overhead.per_layer_s={each_s:g}",) for each_s in _PER_LAYER_S}
    yield sweep_of_words(
        "overhead per layer", set_up, "engine.overhead.per_layer_s of all systems", systems, steps
    )
    if set_up.name not in _OF_FIGURE_11:
        return
    memory = {f"{blocks} blocks": (f"engine.kv_tokens={blocks * 16}",) for blocks in _KV_BLOCKS}
    yield sweep_of_words("KV memory", set_up, "engine.kv_tokens of all systems", systems, memory)
    rules = {
        "paper": ("system.dispatch.rule=paper", "system.migration.rule=paper", "system.migration.rounds=1"),
        "no de-fragmentation": ("system.migration.defragment=false",),
    }
    yield sweep_of_words(
        "rule", set_up, "rules as the paper prints them", systems, rules, words_of=_rule_words
    )
    outs = {str(out): (f"system.migration.migrate_out_threshold={out}",) for out in _OUT}
    yield sweep_of_words(
        "migrate-out threshold", set_up, "blocks per request", systems, outs, words_of=_migration_words
    )


def _migration_words(case: Case, words: Words) -> Words:
    """Return the words for a system with migration, and none for others, which do not change."""
    return words if case.label == LLUMNIX else ()


def _rule_words(case: Case, words: Words) -> Words:
    """Return the words of parts that the system has; words of other parts would be refused."""
    if case.label == LLUMNIX:
        return words
    dispatch = [word for word in words if word.startswith("system.dispatch")]
    return tuple(dispatch) if case.label == INFAAS else ()
