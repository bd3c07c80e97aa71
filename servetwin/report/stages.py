"""Rows about the stages of a run's pipelines, for the terminal and the page."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from servetwin.report.number_text import count, duration, number
from servetwin.report.page_parts import card, cell, head, row, table

if TYPE_CHECKING:
    from rich.table import Table

HEAD: Final = ("stage", "GB", "replicas", "busy", "req/s", "CV", "queue", "most", "wait P99", "pass")
LANGUAGE_HEAD: Final = ("stage", "layers", "GB", "replicas", "busy", "KV tokens")
_MOST_SHOWN: Final = 16


def stage_cells(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per stage, with its model if there are several; empty without stages."""
    stages = summary.get("stages")
    if not isinstance(stages, list):
        return []
    several = len({stage["model"] for stage in stages}) > 1
    return [_row(stage, several) for stage in stages]


def _row(stage: Mapping[str, Any], several: bool) -> tuple[str, ...]:
    return (
        f"{stage['model']} {stage['stage']}" if several else str(stage["stage"]),
        number(stage["bytes"] / 1e9),
        count(stage["replicas"]),
        number(stage["busy_replicas"]),
        number(stage["arrivals_per_s"]),
        number(stage["arrival_cv"]),
        number(stage["queue_mean"]),
        count(stage["queue_max"]),
        duration(stage["wait_ms_p99"]),
        duration(stage["pass_ms_mean"]),
    )


def language_cells(summary: Mapping[str, Any]) -> list[tuple[str, ...]]:
    """Return a row per stage of a language model: its contents, and the KV of one of its replicas."""
    stages = summary.get("language_stages")
    if not isinstance(stages, list):
        return []
    return [
        (
            str(stage["stage"]),
            f"{stage['layers'][0]} to {stage['layers'][1] - 1}",
            number(stage["bytes"] / 1e9),
            count(stage["replicas"]),
            number(stage["busy_replicas"]),
            count(stage["kv_tokens"]),
        )
        for stage in stages
    ]


def stage_tables(summary: Mapping[str, Any]) -> "list[Table]":
    """Return terminal tables of one-pass models and of language models; empty without stages."""
    kinds = ((HEAD, stage_cells(summary)), (LANGUAGE_HEAD, language_cells(summary)))
    return [_table(head, rows) for head, rows in kinds if rows]


def _table(head: Sequence[str], rows: Sequence[tuple[str, ...]]) -> "Table":
    """Return a table of the first stages."""
    from rich import box
    from rich.table import Table

    table = Table(box=box.SIMPLE_HEAD, pad_edge=False, padding=(0, 0, 0, 1))
    for name in head:
        table.add_column(name, justify="right", no_wrap=True)
    for texts in rows[:_MOST_SHOWN]:
        table.add_row(*texts)
    if len(rows) > _MOST_SHOWN:
        table.caption = f"and {len(rows) - _MOST_SHOWN} more stages (see report)"
    return table


def stages_section(summary: Mapping[str, Any]) -> str:
    """Return the page's section; empty without stages."""
    kinds = ((HEAD, stage_cells(summary)), (LANGUAGE_HEAD, language_cells(summary)))
    return "".join([_section(head, rows) for head, rows in kinds if rows])


def _section(names: Sequence[str], rows: Sequence[tuple[str, ...]]) -> str:
    """Return a card with a row per stage; on a narrow screen each cell is beside its column's name."""
    lines = [row(cell(text, name=name) for name, text in zip(names, texts, strict=True)) for texts in rows]
    return card("Stages", table([head(names, kind="head"), *lines], "blocks"), "card scroll")
