"""``servetwin traces list``: every trace by name."""

from traces.errors import TraceError
from traces.fetching.sources import SOURCES, Source
from traces.find import find_trace
from traces.synthetic.registry import DESCRIPTIONS


def known_traces() -> list[dict[str, str]]:
    """Return the traces as data for programs."""
    recorded = [
        {"name": source.name, "kind": "recorded", "here": _where(source), "file": source.file_name}
        for source in SOURCES.values()
    ]
    drawn = [{"name": name, "kind": "drawn", "here": "yes", "file": ""} for name in DESCRIPTIONS]
    return [*recorded, *drawn]


def print_list() -> None:
    """Print recorded traces with their location, then drawn ones with their description."""
    from rich import box
    from rich.console import Console
    from rich.table import Table

    console = Console(highlight=False)
    recorded = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("recorded", "here", "file"):
        recorded.add_column(title, overflow="fold")
    for source in SOURCES.values():
        recorded.add_row(source.name, _where(source), source.file_name)
    console.print(recorded)
    drawn = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for title in ("drawn", "what it is"):
        drawn.add_column(title, overflow="fold")
    for name, text in DESCRIPTIONS.items():
        drawn.add_row(name, text)
    console.print(drawn)


def _where(source: Source) -> str:
    """Return yes; fetch: ``servetwin traces fetch`` downloads it; by hand: no hash is known to check."""
    try:
        find_trace(source.name)
    except TraceError:
        return "fetch" if source.pinned and source.url else "by hand"
    return "yes"
