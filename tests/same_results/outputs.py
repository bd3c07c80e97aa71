"""What a run gave, as hashes: one for every column, key and journal field, so that a difference has a name.

Left out is what is measured (clocks, CPU time) or tells where and by which build a run was made.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from pathlib import Path
from typing import Any, Final

Outputs = dict[str, str]  # name of an output -> hash of its values

# Outputs whose name ends so hold whole files: they differ wherever one of their fields is new.
FILE: Final = " file"
_UNSTABLE: Final = {"code", "core", "versions"}
_STABLE_OF_SIM: Final = {"events"}
_MEASURED_OF_DECISIONS: Final = {"cpu_ms_p99"}
# Fields of journal entries in order, without the kind. Actions end with a reason, whatever optional fields
# stand before it, so it is taken out first: see _fields_of_action.
FIELDS: Final[Mapping[str, Sequence[str]]] = {
    "arrived": (
        *("request", "arrival_ns", "prompt_tokens", "max_new_tokens", "model", "priority", "reserved"),
        "shared_prefix",
    ),
    "ran": ("replica", "epoch", "steps", "finished", "running", "last_step_ns", "joins"),
    "disconnected": ("request",),
    "lost": ("replica", "cause"),
    "loaded": ("load", "target", "layers", "whole", "first"),
    "loadstopped": ("load", "target", "layers", "cause", "first"),
    "sent": ("transfer", "moved_bytes", "cause"),
    "assign": ("request", "replica"),
    "reject": ("request",),
    "abort": ("request", "replica", "tokens"),
    "run": (
        "replica",
        "epoch",
        "chunks",
        "decode",
        "max_steps",
        "until_finish",
        "hand_over",
        "layers",
        "inputs",
        "cpu_cores",
        "micro_batch",
        "path",
        "spans",
    ),
    "interrupt": ("replica", "grace_steps", "later"),
    "detach": ("replica", "request"),
    "migrate": ("request", "source", "target", "phase"),
    "preempt": ("replica", "request", "swap_ns"),
    "fail": ("request",),
    "allocategpus": ("replica", "model", "gpus", "role", "warm", "layers"),
    "switchrole": ("replica", "role"),
    "releasegpus": ("replica",),
    "load": (
        "load",
        "model",
        "sources",
        "targets",
        "shards",
        "every_layer",
        "cold",
        "layers_first",
        "layers",
    ),
    "stopload": ("load",),
    "send": (
        "transfer",
        "what",
        "requests",
        "source",
        "target",
        "size_bytes",
        "layers",
        "positions",
        "control_ns",
        "slowdown_ppm",
    ),
    "stopsend": ("transfer",),
    "joinbatch": ("replica", "requests", "layers", "swap_ns"),
    "wake": ("at_ns",),
}

# What is written only where a field behind it is set says no more than what is not written.
_UNSET: Final[Mapping[str, Any]] = {
    "load.layers_first": False,
    "send.layers": None,
    "send.positions": [],
    "joinbatch.layers": None,
}


def hash_of(value: Any) -> str:
    """Of bytes, or of plain data; floats count to the last bit."""
    content = value if isinstance(value, bytes) else json.dumps(value, sort_keys=True).encode()
    return sha256(content).hexdigest()[:16]


def folder_outputs(folder: Path) -> Outputs:
    """Of a result folder."""
    found = parquet_outputs(folder / "requests.parquet")
    found |= summary_outputs(json.loads((folder / "summary.json").read_text(encoding="utf-8")))
    journal = folder / "journal"
    if journal.exists():
        header, *lines, footer = journal.read_text(encoding="ascii").splitlines()
        found |= {f"journal header.{key}": hash_of(value) for key, value in json.loads(header).items()}
        counts = json.loads(footer)
        found |= {f"journal footer.{key}": hash_of(counts[key]) for key in ("actions", "events")}
        found |= journal_outputs(lines)
    return found


def parquet_outputs(path: Path) -> Outputs:
    """Of every column its type and values; of the file its bytes."""
    import pyarrow.parquet as pq

    found = {f"requests{FILE}": hash_of(path.read_bytes())}
    table = pq.read_table(path)
    for name in table.column_names:
        values = table.column(name).to_numpy()
        content: Any = values.tolist() if values.dtype == object else values.tobytes()
        found[f"requests.{name}"] = hash_of([str(table.schema.field(name).type), hash_of(content)])
    return found


def summary_outputs(summary: Mapping[str, Any]) -> Outputs:
    """Of every key; of sections, and of lists of rows, every key of theirs."""
    found = Outputs()
    for name, value in summary.items():
        if name not in _UNSTABLE:
            for key, part in _parts(value).items():
                if name == "sim" and key not in _STABLE_OF_SIM:
                    continue
                if name == "decisions" and key in _MEASURED_OF_DECISIONS:
                    continue
                found[f"summary.{name}.{key}" if key else f"summary.{name}"] = hash_of(part)
    return found


def _parts(value: Any) -> dict[str, Any]:
    """key -> value of a section; key -> values of a list of rows; else all of it under no key."""
    if isinstance(value, dict) and value:
        return value
    if isinstance(value, list) and value and all(isinstance(row, dict) for row in value):
        keys = {key for row in value for key in row}
        return {key: [[number, row[key]] for number, row in enumerate(value) if key in row] for key in keys}
    return {"": value}


def journal_outputs(lines: Sequence[str]) -> Outputs:
    """Of event lines: their text, which kinds follow each other when, and every field of every kind."""
    order, columns = [], dict[str, list[Any]]()
    for number, (now_ns, event, actions, *told) in enumerate(map(json.loads, lines)):
        order.append([now_ns, event[0], [action[0] for action in actions]])
        for name, value in _named(event[0], event[1:]):
            columns.setdefault(f"event {name}", []).append([number, value])
        if told:
            columns.setdefault("told", []).append([number, *told])
        for action in actions:
            for name, value in _fields_of_action(action):
                columns.setdefault(f"action {name}", []).append([number, value])
    found = {f"journal{FILE}": hash_of("\n".join(lines).encode()), "journal.order": hash_of(order)}
    return found | {f"journal.{name}": hash_of(values) for name, values in columns.items()}


def _fields_of_action(action: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    kind, *values = action
    last = max(place for place, value in enumerate(values) if isinstance(value, str))
    reason = values.pop(last)
    return [*_named(kind, values), (f"{kind}.reason", reason)]


def _named(kind: str, values: Sequence[Any]) -> Iterable[tuple[str, Any]]:
    """Optional fields come last; one that this table does not have is named by its place."""
    names = FIELDS.get(kind, ())
    named = [
        (f"{kind}.{names[place] if place < len(names) else place}", value)
        for place, value in enumerate(values)
    ]
    return [(name, value) for name, value in named if name not in _UNSET or value != _UNSET[name]]
