"""Which step times, memory and overhead a simulation of (model, GPU, tp) uses: ``servetwin support``."""

import sys
import textwrap
from collections.abc import Iterable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from hwmodels.catalogue import (
    gpu_named,
    gpu_names,
    llm_named,
    llm_names,
    load_gpu,
    load_llm,
    quantised_publication,
)
from hwmodels.catalogue.stacks import is_stack
from hwmodels.errors import HardwareError
from hwmodels.models.kv_capacity import CANDIDATE_TP
from hwmodels.step_times.stack_step import UNKNOWN
from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from servetwin.config.engine_config import EngineConfig
from servetwin.config.overrides import closest, echo
from servetwin.support.combination import combination_of, model_lines, stored_model
from servetwin.support.evidence_table import evidence_tables
from servetwin.support.table import listing, listing_data, smallest_for, table
from serving.vocabulary.errors import UserError

EXAMPLE: Final = "servetwin support model=llama3_8b gpu=a100_80g tp=1"
DEFAULT_ENGINE: Final = "vllm_v1"
_KEYS: Final = (
    "model", "gpu", "tp", "profile", "engine", "cluster", "plot", "overwrite", "precision", "kv_cache_dtype",
)  # fmt: skip
# Names of the keys in other commands and their error messages.
_ALIASES: Final = {"model.tp": "tp", "model.name": "model", "cluster.gpu": "gpu"}
_WIDTH: Final = 100
_LABEL: Final = 14


def support(words: Sequence[str]) -> int:
    """Print the data on the combination in ``words`` (``key=value``); exit status 0.

    Without model and gpu: a table of all combinations. Raises UserError for unusable words, or HardwareError
    for what cannot be simulated; its sentence says what to write or to measure.
    """
    words, as_json = asked_for_json(words)
    options = _named(_parse(words))
    if is_stack(options.get("model", "")):
        return _stack(options, as_json)
    if {"cluster", "plot", "overwrite"} & options.keys():
        return _cluster(options, as_json)
    name = options.get("engine", DEFAULT_ENGINE)
    if "model" in options and "gpu" in options:
        engine = _engine(name, load_gpu(options["gpu"]).name)
        try:
            combination = combination_of(options, engine)
        except HardwareError as error:
            _tell_each_tp(options, engine)
            raise error
        lines = [combination.head]
        for label, paragraphs in combination.sections.items():
            lines += _section(label, paragraphs)
        tell(combination.numbers | {"sections": combination.sections}, lines, as_json)
    else:
        _all_of(options, _engine(name), as_json)
    return 0


def _tell_each_tp(options: dict[str, str], engine: EngineConfig) -> None:
    """Print for each tp why it does not run, if the user chose none and the reasons differ."""
    reasons = dict[int, str]()
    for tp in CANDIDATE_TP if "tp" not in options else ():
        with suppress(UserError):
            try:
                combination_of({**options, "tp": str(tp)}, engine)
            except HardwareError as error:
                reasons[tp] = str(error).partition("; ")[0]
    for tp, why in reasons.items() if len(set(reasons.values())) > 1 else ():
        print(f"  tp {tp}: {why}", file=sys.stderr)


def _named(options: dict[str, str]) -> dict[str, str]:
    """Return the options with the catalogue's names of model, GPU and cluster. HardwareError for none."""
    from servetwin.config.compose.clusters import cluster_named

    publication = quantised_publication(options.get("model", ""))
    if publication is not None:
        options = {"precision": publication[1]} | options | {"model": publication[0]}
    named = {"model": llm_named, "gpu": gpu_named, "cluster": cluster_named}
    return {key: named[key](text) if key in named else text for key, text in options.items()}


def _stack(options: dict[str, str], as_json: bool) -> int:
    """Print what is known of a model that answers in one pass. UserError for keys that it does not have."""
    from hwmodels.catalogue.stacks import load_stack

    stack = load_stack(options["model"])
    if other := sorted(options.keys() - {"model"}):
        raise UserError(
            f"{other[0]} says nothing of model={stack.name}, whose one published time holds on the paper's "
            f"GPU: write servetwin support model={stack.name}"
        )
    gigabytes, sent = stack.weight_bytes / 1e9, stack.activation_bytes / 1e6
    sections = {
        "model": [
            f"{stack.layers} layers, {gigabytes:.2f} GB, no KV: a request is one pass through all layers",
            f"{sent:.2f} MB from a layer to the next; {stack.tokens} tokens per request",
        ],
        "step times": [f"{stack.execution_s * 1e3:g} ms for one request, published; error {UNKNOWN}"],
        "stages": [f"published cut: layers {'+'.join(map(str, stack.cut))} (pipeline.cut=published)"],
        "known how": [stack.source, *stack.labels],
        "run": [f"servetwin simulate system=pipeline model={stack.name}; also quart, infless, inferline"],
    }  # fmt: skip
    lines = [f"{stack.name}, answers in one pass"]
    for label, paragraphs in sections.items():
        lines += _section(label, paragraphs)
    numbers = {"model": stack.name, "weight_bytes": stack.weight_bytes, "execution_s": stack.execution_s}
    tell(numbers | {"sections": sections}, lines, as_json)
    return 0


def _all_of(options: dict[str, str], engine: EngineConfig, as_json: bool) -> None:
    """Print every model on every GPU, or the named ones."""
    _refuse_half(options)
    gpus = [load_gpu(name) for name in _names(options, "gpu", gpu_names())]
    llms = [stored_model({**options, "model": name}) for name in _names(options, "model", llm_names())]
    if as_json:
        tell(listing_data(gpus, llms, engine), (), as_json)
    elif options.keys() <= {"engine"}:
        tell((), [*table(gpus, llms, engine), "", *evidence_tables(gpus, engine)], as_json)
    else:
        of_model = _section("model", model_lines(llms[0])) if "model" in options else []
        tell((), [*listing(gpus, llms, engine), *of_model], as_json)


def _cluster(options: dict[str, str], as_json: bool) -> int:
    """Print one cluster, and draw it if requested."""
    from hwmodels.topology.cluster_file import cluster_names
    from servetwin.config.compose.clusters import requested_cluster, topology_names
    from servetwin.config.options import option_groups
    from servetwin.support.cluster import cluster_data, cluster_lines

    other = sorted(options.keys() - {"cluster", "plot", "overwrite", "model", "tp"})
    if "cluster" not in options or other:
        wrong = f"{other[0]} does not go with cluster" if other else "plot has no cluster to draw"
        raise UserError(
            f"{wrong}: write servetwin support cluster=NAME, with plot=FILE.png for a picture and model=M "
            "tp=N for loads of that model"
        )
    chosen = requested_cluster(options["cluster"])
    plain = options["cluster"] in option_groups()["cluster"] and options["cluster"] not in cluster_names()
    if plain or (chosen and chosen["topology"] is None):
        linked = ", ".join(topology_names())
        raise UserError(
            f"cluster={options['cluster']} is GPUs without links: write a cluster that has some, {linked}"
        )
    model, tp = _instances(options)
    lines = [] if as_json else cluster_lines(options["cluster"], model, tp)
    if "plot" in options:
        from hwmodels.topology.cluster_file import load_cluster
        from hwmodels.topology.topology import build
        from servetwin.config.whole_file import check_free
        from servetwin.support.topology_picture import draw

        check_free("plot", Path(options["plot"]), options.get("overwrite") == "true")
        draw(build(load_cluster(options["cluster"])), Path(options["plot"]))
        lines.append(f"picture in {options['plot']}")
    tell(cluster_data(options["cluster"], model, tp) if as_json else (), lines, as_json)
    return 0


def _instances(options: dict[str, str]) -> tuple[str, int]:
    """Return the model of the loads that are shown for a cluster, and the GPUs of an instance."""
    from hwmodels.topology.cluster_file import load_cluster
    from hwmodels.topology.topology import build
    from servetwin.support.multicast_bound import MODEL

    spec = load_cluster(options["cluster"])
    group = len(build(spec).scale_up_group(0))
    llm, least = load_llm(options.get("model", MODEL)), 1
    if "model" in options:
        least = smallest_for(load_gpu(spec.gpu), llm, _engine(DEFAULT_ENGINE)) or group + 1
    if least > group:
        raise UserError(
            f"model={llm.name} does not fit on the {group} GPUs of {spec.gpu} that reach each other without "
            f"the network in cluster={options['cluster']}: write a smaller model or another cluster"
        )
    text = options.get("tp", str(least))
    if not text.isdecimal() or not least <= int(text) <= group:
        raise UserError(
            f"tp={echo(text)} does not fit: an instance's GPUs hold {llm.name} and reach each other without "
            f"the network, so write a number from {least} to {group}"
        )
    return llm.name, int(text)


def _parse(words: Sequence[str]) -> dict[str, str]:
    options: dict[str, str] = {}
    for word in words:
        key, equals, value = word.partition("=")
        if not equals or not value:
            raise UserError(f"'{echo(word)}' is no key=value: write for example {EXAMPLE}")
        key = _ALIASES.get(key, key)
        if key not in _KEYS:
            near = closest(key, _KEYS)
            hint = f", {near}={echo(value)} if that is meant" if near else ""
            raise UserError(f"unknown key '{echo(key)}' for support: write one of {', '.join(_KEYS)}{hint}")
        if key in options:
            raise UserError(f"{key} is given twice: write it once")
        options[key] = value
    return options


def _refuse_half(options: dict[str, str]) -> None:
    """Refuse tp and a profile without one model and one GPU, and formats without a model."""
    needs = ("tp", "profile") if "model" in options else ("tp", "profile", "precision", "kv_cache_dtype")
    for key in needs:
        if key in options:
            raise UserError(f"{key}= belongs to one model on one GPU: write both, for example {EXAMPLE}")


def _names(options: dict[str, str], key: str, known: Sequence[str]) -> Sequence[str]:
    return (options[key],) if key in options else known


def _engine(name: str, gpu: str | None = None) -> EngineConfig:
    """Return an engine as in a run on ``gpu``, all options resolved."""
    from servetwin.config.compose.clusters import requested_cluster
    from servetwin.config.compose.compose import load_config
    from servetwin.config.options import option_groups

    known = option_groups()["engine"]
    if name not in known:
        near = closest(name, known)
        hint = f", engine={near} if that is meant" if near else ""
        raise UserError(f"unknown engine '{echo(name)}': write engine=NAME, one of {', '.join(known)}{hint}")
    made = f"{gpu}_x1"
    cluster = (f"cluster={made}",) if requested_cluster(made) else ()
    return load_config([f"engine={name}", *cluster, "out=unused"], "simulate").engine


def _section(label: str, paragraphs: Iterable[str]) -> list[str]:
    """Return a label and its paragraphs, each wrapped behind the label's column."""
    lines: list[str] = []
    for paragraph in paragraphs:
        head = label if not lines else ""
        lines += textwrap.wrap(
            paragraph,
            _WIDTH,
            initial_indent=f"{head:<{_LABEL}}",
            subsequent_indent=" " * (_LABEL + 2),
            break_long_words=False,
            break_on_hyphens=False,
        )
    return ["", *lines]
