"""The flags of ``vllm serve`` and of SGLang's server: the words to write here, or why a flag is not modelled.

``server_flags.csv`` has a row for each, of one version of either server; it says how the list was read.
"""

import csv
import difflib
import functools
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

SERVERS: Final[Mapping[str, str]] = {"vllm": "vllm serve", "sglang": "SGLang's server"}
PAGE: Final = "docs/reference/LIMITS.md"
VALUE: Final = "VALUE"

# Group of flags -> why no flag of it is modelled.
NOT_MODELLED: Final[Mapping[str, str]] = {
    "api": "requests have counts of tokens and no text: no tokenizer, template, tool, parser or sampling",
    "architectures": "windows, sparse and linear attention are as the model has them, their kernels are not "
    "chosen; no state-space or diffusion model",
    "cuda_graphs": "the captured sizes are vLLM's, and engine.overhead.cuda_graphs=false has none",
    "development": "there is no engine to debug, extend or profile",
    "experts": "experts stay where they are and their batches do not overlap; engine.expert_skew is their "
    "popularity",
    "http": "there is no HTTP server; the time that requests and tokens spend in one is engine.front_end",
    "kernels": "step times are of the engine's default kernels; engine.profile=FILE takes measured ones",
    "kv_elsewhere": "KV is in the memory of GPUs only: no tiers in host memory or on SSDs, and no store",
    "live_weights": "the parameters of a running instance do not change and do not leave its GPUs",
    "logs": "a run writes no server's logs, metrics or traces: its numbers are in the files of out=",
    "lora": "there are no LoRA adapters",
    "multimodal": "images and other media count as the prompt tokens that the trace gives",
    "number_formats": "what model.precision leaves out has 16 bits; workers of real runs have model.dtype",
    "offload": "all weights are in the memory of GPUs",
    "parallelism": "a replica is cut by model.tp and model.pp only, and experts by engine.data_parallel_size",
    "pooling": "every request generates tokens: no embedding, scoring or classification",
    "processes": "processes, hosts and ports of a server take no time; cluster= names GPUs and links",
    "quantisation": "weights and KV are in the formats of model.precision and engine.kv_cache_dtype, all "
    "layers alike",
    "roles": "the instances of a split system are set by system= and system.instances, not server by server",
    "scheduler": "the batchers of engine= and system/batcher= have no such rule",
    "speculation": "there is no speculative decoding",
    "weights": "files of weights are not read; engine.loader and cluster.start say how long loading takes",
}
# Groups, besides those below system, in which people write a server's flags.
_OF_SERVERS: Final = (
    "", "engine", "model", "system", "server", "vllm", "sglang", "server_args", "engine_args", "parallel",
    "scheduler", "cache", "args",
)  # fmt: skip
_UNMODELLED: Final = "not modelled: "
_LIST: Final = Path(__file__).with_suffix(".csv")
_HUMAN: Final = re.compile(r"(\d+(?:\.\d+)?)([kKmMgG])")
_FACTOR: Final = {"k": 10**3, "m": 10**6, "g": 10**9, "K": 2**10, "M": 2**20, "G": 2**30}
_BLOCK_TOKENS: Final = 16
_OPPOSITE: Final = {"true": "false", "false": "true"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Flag:
    """A row of the list."""

    server: str
    version: str
    flag: str
    also: tuple[str, ...]
    values: str
    answer: str
    converts: tuple[str, ...]
    reason: str

    @property
    def spellings(self) -> tuple[str, ...]:
        """Return the flag and its other spellings."""
        return self.flag, *self.also

    @property
    def group(self) -> str:
        """Return the group of a flag that is not modelled; "" for others."""
        return self.answer.removeprefix(_UNMODELLED) if self.answer.startswith(_UNMODELLED) else ""

    @property
    def keys(self) -> tuple[str, ...]:
        """Return the keys that its answer names."""
        return () if self.group else tuple(word.partition("=")[0] for word in self.answer.split())

    @property
    def why(self) -> str:
        """Return the reason of a flag that is not modelled, or how its value converts."""
        return self.reason or NOT_MODELLED[self.group]


@dataclass(frozen=True, slots=True)
class Answer:
    """What to write for a flag with its value; ``write`` is "" if it is not modelled. ``why``: the reason."""

    write: str
    why: str

    @property
    def how(self) -> str:
        """Return how the user finds the number that the words leave open; "" if they leave none open."""
        return self.why if re.search(r"=N\b|_xN\b", self.write) else ""

    def __str__(self) -> str:
        """Return the end of a sentence about the flag."""
        if not self.write:
            return f"it is not modelled ({self.why}; {PAGE}), so leave it out"
        return f"write {self.write}" + (f" ({self.how})" if self.how else "")


@functools.cache
def server_flags() -> tuple[Flag, ...]:
    """Return every flag of the list."""
    lines = (line for line in _LIST.read_text(encoding="utf-8").splitlines() if not line.startswith("#"))
    return tuple(
        Flag(**row | {"also": tuple(row["also"].split()), "converts": tuple(row["converts"].split())})
        for row in csv.DictReader(lines)
    )


@functools.cache
def _by_spelling() -> Mapping[str, tuple[Flag, ...]]:
    found: dict[str, tuple[Flag, ...]] = {}
    for flag in server_flags():
        for spelling in flag.spellings:
            found[spelling] = (*found.get(spelling, ()), flag)
    return found


def of_servers(servers: Iterable[str]) -> str:
    """Return the servers' names and versions, joined by "and"."""
    versions = {flag.server: flag.version for flag in server_flags()}
    return " and ".join(f"{SERVERS[server]} {versions[server]}" for server in servers)


# Also beginnings of servers' flags, but who types them means the kind of GPU.
_WORDS_OF_OURS: Final = ("--gpu",)


def spelled(word: str) -> str:
    """Return a flag in the spelling of the list: dashes for underscores, without the part behind a dot."""
    if word.startswith("-O") and word[2:].isdigit():
        return "-O"
    return word.partition(".")[0].replace("_", "-")


def flags_spelled(word: str, abbreviated: bool = False) -> tuple[Flag, ...]:
    """Return the flags of either server that are spelled so; ``abbreviated``: also by a beginning of one."""
    name = spelled(word)
    if found := _by_spelling().get(name, ()):
        return found
    if name.startswith("--no-") and (found := _by_spelling().get("--" + name[5:], ())):
        return tuple(flag for flag in found if flag.values == "none")
    if not abbreviated or "." in word or len(name) < 4 or name in _WORDS_OF_OURS:
        return ()
    begun = [
        flag
        for flag in server_flags()
        if any(other.startswith(name) for other in flag.spellings if other.startswith("--"))
    ]
    of_server = {server: [flag for flag in begun if flag.server == server] for server in SERVERS}
    return tuple(flags[0] for flags in of_server.values() if _same_answer(flags))


def _same_answer(flags: Sequence[Flag]) -> bool:
    return len({flag.answer for flag in flags}) == 1


def answer(flag: Flag, text: str, negated: bool = False) -> Answer:
    """Return what to write for the flag with the value ``text``; "" for a value that is not known.

    ``negated``: a switch that is turned off.
    """
    if flag.group:
        return Answer("", flag.why)
    if negated:
        return _turned_off(flag)
    if flag.values == "none":
        return Answer(flag.answer, flag.reason)
    value = _converted(flag.converts, text.strip("'\"")) if text else VALUE
    if value in NOT_MODELLED:
        return Answer("", NOT_MODELLED[value])
    return Answer(flag.answer.replace(VALUE, value), flag.reason)


def _turned_off(flag: Flag) -> Answer:
    off = next((rule[4:] for rule in flag.converts if rule.startswith("off>")), "")
    if off in NOT_MODELLED:
        return Answer("", NOT_MODELLED[off])
    words = flag.answer
    start, _, value = words.rpartition("=")
    return Answer(off or f"{start}={_OPPOSITE[value]}", flag.reason)


def _converted(rules: Iterable[str], text: str) -> str:
    """Return the value here: of the first rule that applies, else the same."""
    for rule in rules:
        value, arrow, here = rule.partition(">")
        if arrow and value in (text.lower(), "*"):
            return here
        if rule == "number" and (human := _HUMAN.fullmatch(text)):
            return str(int(float(human[1]) * _FACTOR[human[2]]))
        if rule == "blocks" and text.isdigit():
            return str(int(text) * _BLOCK_TOKENS)
    return text


def names_of(key: str) -> tuple[str, ...]:
    """Return the names, as keys are spelled, of the flags that set this key alone."""
    named = (flag.flag[2:].replace("-", "_") for flag in server_flags() if flag.keys == (key,))
    return tuple(dict.fromkeys(name for name in named if name != key.rpartition(".")[2]))


def key_answer(key: str, text: str) -> str:
    """Return the sentence part for a key whose last part is a flag of a server; "" for others.

    The flags that are not modelled are understood without a group and in those of engines and models.
    """
    owner, _, last = key.rpartition(".")
    switch = {"true": False, "1": False, "false": True, "0": True}.get(text.lower())
    found = flags_spelled(f"--{last}") or (flags_spelled(f"-{last}") if len(last) > 1 else ())
    if switch and (opposite := flags_spelled(f"--no-{last}")):
        found = opposite
    found = tuple(flag for flag in found if not flag.group or owner.partition(".")[0] in _OF_SERVERS)
    if not found:
        return ""
    flag = found[0]
    told = answer(flag, text, flag.values == "none" and bool(switch) and not flag.flag.startswith("--no-"))
    if told.write:
        how = f" ({told.how})" if told.how else ""
        return f"write {told.write} if that is meant{how}"
    return f"{flag.flag} of {of_servers([flag.server])} is not modelled ({told.why}; {PAGE}): leave it out"


def near_flag(word: str) -> str:
    """Return the flag most like a mistyped one, of the server's whole list; "" if none is."""
    long = [spelling for spelling in _by_spelling() if spelling.startswith("--")]
    near = difflib.get_close_matches(spelled(word), long, n=1, cutoff=0.86)
    return near[0] if near else ""
