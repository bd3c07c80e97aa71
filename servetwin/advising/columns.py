"""The columns of a production record: what each holds, and the names under which a CSV file may have it."""

import re
from collections.abc import Collection, Sequence
from shlex import quote
from typing import Final

from serving.vocabulary.errors import UserError

REPLICAS: Final = "replicas"
READY: Final = "ready"
WAITING: Final = "waiting"
RUNNING: Final = "running"
KV_USE: Final = "kv_use"
REQUESTS: Final = "requests_per_s"
FINISHED: Final = "finished_per_s"
PROMPT: Final = "prompt_tokens_per_s"
OUTPUT: Final = "output_tokens_per_s"
MEAN_PROMPT: Final = "mean_prompt_tokens"
MEAN_OUTPUT: Final = "mean_output_tokens"
HITS: Final = "prefix_hit_share"
TTFT: Final = "ttft"
TPOT: Final = "tpot"
STATISTICS: Final = ("mean", "p50", "p90", "p99")
LATENCIES: Final = tuple(f"{name}_{at}_ms" for name in (TTFT, TPOT) for at in STATISTICS)

COLUMNS: Final = {
    REPLICAS: "instances, those that start included",
    READY: "instances that take requests",
    WAITING: "requests that wait, at all instances",
    RUNNING: "requests that run, at all instances",
    KV_USE: "share of the KV memory in use, 0 to 1",
    REQUESTS: "requests that arrive per second",
    FINISHED: "requests that finish per second",
    PROMPT: "prompt tokens per second",
    OUTPUT: "output tokens per second",
    MEAN_PROMPT: "mean length of prompts in tokens",
    MEAN_OUTPUT: "mean length of outputs in tokens",
    HITS: "share of prompt tokens found in prefix caches, 0 to 1",
} | dict.fromkeys(LATENCIES, "latency in ms")
SHARES: Final = (KV_USE, HITS)
"""Columns of values from 0 to 1."""

# A name without capitals, spaces and punctuation -> the column.
_COMMON: Final = {
    REPLICAS: "replicas pods instances replicacount podcount currentreplicas",
    READY: "ready readyreplicas availablereplicas serving readypods",
    WAITING: "waiting queue queued queuelength queuedepth waitingrequests requestswaiting numrequestswaiting",
    RUNNING: "running runningrequests requestsrunning batch batchsize numrequestsrunning",
    KV_USE: "kv kvuse kvusage kvcache kvcacheuse kvcacheusage kvcacheusageperc kvcacheutilization "
    "gpucacheusage",
    REQUESTS: "requestspers rps qps requestspersecond requestrate reqpers rate arrivalrate arrivalspers",
    FINISHED: "finishedpers finishedrequestspers completedpers",
    PROMPT: "prompttokenspers inputtokenspers prompttokenspersecond inputtokenspersecond",
    OUTPUT: "outputtokenspers generationtokenspers generatedtokenspers outputtokenspersecond "
    "generationtokenspersecond",
    MEAN_PROMPT: "meanprompttokens meaninputtokens promptlength isl",
    MEAN_OUTPUT: "meanoutputtokens outputlength osl",
    HITS: "prefixhitshare prefixhits cachehitrate prefixcachehitrate",
}  # fmt: skip
_BY_NAME: Final = {name: column for column, names in _COMMON.items() for name in names.split()}
_LATENCY: Final = re.compile(r"(ttft|tpot|itl)[ _]?(mean|avg|p50|p90|p99|median)[ _(\[]*(ms|s|seconds)[)\]]*")
_STATISTIC: Final = {"avg": "mean", "median": "p50"}


def column_of(name: str) -> tuple[str, float] | None:
    """Return (column, what its values are multiplied by) of somebody's name; None: it is of no column.

    A latency's name has its unit, ``_ms`` or ``_s``; a share in per cent ends in ``percent`` or ``%``.
    """
    low = name.strip().lower()
    if low in COLUMNS:
        return low, 1.0
    if found := _LATENCY.fullmatch(low.replace("-", "_")):
        kind, statistic, unit = found.groups()
        kind = TPOT if kind == "itl" else kind
        return f"{kind}_{_STATISTIC.get(statistic, statistic)}_ms", 1.0 if unit == "ms" else 1000.0
    plain = re.sub(r"[^a-z0-9%]", "", low.replace("/", " per "))
    whole = re.sub(r"(percent|percentage|%)$", "", plain)
    column = _BY_NAME.get(whole)
    if column is None or (whole != plain and column not in SHARES):
        return None
    return column, 0.01 if whole != plain else 1.0


def columns_word(unread: Sequence[str], known: Collection[str]) -> str:
    """Return the ``columns=`` that reads columns whose names end with or contain one known name, or "".

    ``unread``: names of the file; ``known``: columns that the record has already.
    """
    pairs = dict[str, str]()
    for name in unread:
        column = _named_in(name)
        if column and column not in known and not set(name) & set("()*,:[]{}\"'"):
            pairs.setdefault(column, name)
    if len(pairs) == 1:
        ((column, name),) = pairs.items()
        return f"columns={column}:{quote(name)}"
    listed = ",".join(map(":".join, pairs.items()))
    return f"columns={quote(f'[{listed}]')}" if pairs else ""


def _named_in(name: str) -> str:
    """Return the one column that words of the name are, first of its last words; "" for none or several."""
    words = re.findall(r"[a-z0-9]+", name.lower())
    ends = [" ".join(words[at:]) for at in range(1, len(words))]
    if found := [column for end in ends for column in _plainly(end)]:
        return found[0]
    inside = {
        column
        for begin in range(len(words))
        for end in range(begin + 1, len(words))
        for column in _plainly(" ".join(words[begin:end]))
    }
    return inside.pop() if len(inside) == 1 else ""


def _plainly(words: str) -> list[str]:
    """Return the column of this name, if its values are taken as they are; a rate of anything is none."""
    found = column_of(words) if words != "rate" else None
    return [found[0]] if found and found[1] == 1.0 else []


def check_values(column: str, low: float, high: float, place: str) -> None:
    """Raise UserError if values from ``low`` to ``high`` cannot be of this column. ``place``: the file."""
    if low < 0:
        raise UserError(f"{place}: {column} has {low:g}, and is never below 0: write what was recorded")
    if column in SHARES and high > 1:
        raise UserError(
            f"{place}: {column} has {high:g}, and is a share from 0 to 1: name it {column}_percent if it is "
            "in per cent"
        )
