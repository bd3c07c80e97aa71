"""realexec run: the same controller drives worker processes of this machine; same result folder."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from hwmodels.catalogue import load_llm
from hwmodels.models.hf_quantised import refuse_quantised_checkpoint
from realexec.launchers.local import import_early
from realexec.world.report import Generation, RunReport
from servetwin.assemble import build
from servetwin.assemble.clients import requests_of
from servetwin.assemble.fleet import fleet_of, launcher_of, start_timeout_s
from servetwin.assemble.hosted import hosted_models
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.config import ModelConfig, RunConfig
from servetwin.config.policy.watch import SPARING_PERIOD_S, PolicyWatch
from servetwin.config.workers_config import CPU
from servetwin.results.journal_file import NAME as JOURNAL_NAME
from servetwin.results.journal_file import JournalFile, header_fields
from servetwin.results.metrics import RunMetrics
from servetwin.results.series_sink import series_sink
from servetwin.results.warmup import recorder_of
from servetwin.run.real_summary import RealRun, real_summary
from servetwin.run.simulate import prepare
from servetwin.run.telemetry import telling_of
from servetwin.run.write_results import write_config
from serving.vocabulary.errors import UserError

# A check generates every token again and costs about as much as the run: long runs check their first.
MOST_TOKENS_CHECKED = 2000


def real_run(
    config: RunConfig, folder: Path, on_progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Run, check the tokens, write every file into ``folder``, and return the summary."""
    if config.launcher == "local" and _has_torch():
        import_early(config.device)  # the fork server and this process import torch at the same time
    require_torch()
    from realexec.driver.driver import execute
    from realexec.memory.device import device_of
    from realexec.world.actions import CARRIES_OUT

    if config.launcher == "local":  # nodes of a Ray cluster may have other devices
        device_of(config.device)
    prepared = prepare(config)
    config_yaml = resolved_yaml(config)
    write_config(folder, config_yaml)  # written first, so that the journal of a killed run can be replayed
    metrics = RunMetrics()
    recorder, warmup = recorder_of(metrics, config.trace.warmup_requests)
    several, total = models_of(config), len(prepared.workload)
    model = next(iter(several.values())) if several else worker_model(config.model, config.device)
    assert config.workers is not None
    with ExitStack() as stack:
        journal = None
        if config.journal:
            header = header_fields("real", config.seed, config_yaml, prepared.estimates, CARRIES_OUT)
            header |= prepared.journal_header()
            journal = stack.enter_context(JournalFile(folder / JOURNAL_NAME, header, at_once=True))
        watch = stack.enter_context(PolicyWatch(period_s=SPARING_PERIOD_S))
        controller = build.controller_of(
            config,
            prepared.hardware_of_model,
            prepared.replicas,
            prepared.estimates,
            outgrows_expected=prepared.outgrows_expected,
        )
        sink = series_sink(config.series.period_s, controller.engines, journal)
        fleet = fleet_of(config, controller, prepared.hardware, prepared.replicas)
        fleet = replace(fleet, models=several)
        telling = stack.enter_context(telling_of(config, controller, recorder, sink or journal))
        report = execute(
            controller,
            requests_of(config, build.arrivals_of(config, prepared.workload, prepared.limits)),
            workers=config.workers,
            model=model,
            seed=config.seed,
            batch_size=config.engine.max_num_seqs,
            recorder=telling.recorder,
            journal=telling.journal,
            on_progress=None if on_progress is None else lambda ended, _: on_progress(ended, total),
            start_timeout_s=start_timeout_s(config, fleet),
            fleet=fleet,
            launcher=launcher_of(config),
        )
    rates = fleet.rates if report.one_host else {}
    where = {"transport": fleet.transport, "places": list(report.places), "pinned": list(report.pinned)}
    moved = moved_section(report, rates) | where
    real = {"policies": watch.section(), **moved}
    checked = _token_check(config, model, report)
    finished = RealRun(
        prepared=prepared,
        controller=controller,
        metrics=metrics,
        warmup=warmup,
        report=report,
        config_yaml=config_yaml,
        checked=checked,
        real=real,
        sink=sink,
    )
    return real_summary(finished, folder)


def transformers_config(name: str) -> dict[str, Any]:
    """Return a catalogue model as the keys of a transformers Llama configuration."""
    shape = load_llm(name)
    if shape.quantised:
        raise UserError(
            f"model={name} is stored in {shape.formats.text}, and real workers compute in float32 or "
            "bfloat16: name a folder with the model's weights in 16 or 32 bits"
        )
    if shape.kv_bytes_per_sequence:
        raise UserError(
            f"model={name} has layers with windows or states, and real workers compute full attention: write "
            "kind=simulate or another model"
        )
    return {
        "model_type": "llama",
        "num_hidden_layers": shape.layers,
        "hidden_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_dim,
        "intermediate_size": shape.intermediate,
        "vocab_size": shape.vocab,
        "max_position_embeddings": shape.max_context_tokens,
        "tie_word_embeddings": shape.tied_embeddings,
    }


def worker_model(model: ModelConfig, device: str = CPU) -> dict[str, Any]:
    """Return the model settings for workers and the token check: its shape, or the checkpoint that has it.

    Raises HardwareError for a checkpoint with quantised weights.
    """
    if model.checkpoint is not None:
        refuse_quantised_checkpoint(Path(model.checkpoint).expanduser())
    keys = transformers_config(model.name) | {"dtype": model.dtype, "device": device}
    return keys if model.checkpoint is None else keys | {"checkpoint": model.checkpoint}


def models_of(config: RunConfig) -> dict[str, dict[str, Any]]:
    """Return the workers' settings of each model if there are several."""
    hosted = hosted_models(config)
    if len(hosted) == 1:
        return {}
    if config.model.checkpoint is not None:
        raise UserError(
            f"model.checkpoint={config.model.checkpoint} has the parameters of one model, and models="
            f"{config.models.name} has {len(hosted)}: leave it out"
        )
    dtype = {"dtype": config.model.dtype, "device": config.device}
    return {model.name: transformers_config(model.shape_name) | dtype for model in hosted}


def moved_section(report: RunReport, rates: Mapping[str, float]) -> dict[str, Any]:
    """Return what was loaded, sent and run by layers, and the rates in bytes/s that limited the links."""
    moved = report.moved
    return {
        "loads": moved.loads,
        "loads_stopped": moved.loads_stopped,
        "loaded_bytes": moved.loaded_bytes,
        "units_forwarded": moved.units_forwarded,
        "live_passes": moved.live_passes,
        "live_layer_counts": list(moved.live_layer_counts),
        "migrations": moved.migrations,
        "handoffs": moved.handoffs,
        "kv_bytes": moved.kv_bytes,
        "activation_bytes": moved.activation_bytes,
        "stages": moved.stages,
        "stage_passes": moved.stage_passes,
        "shaped_bytes_per_s": dict(rates),
    }


def _token_check(config: RunConfig, model: dict[str, Any], report: RunReport) -> dict[str, Any]:
    from realexec.driver.verify import check_tokens, reference_of, together

    chosen = _first_tokens(report)
    keys = {"": model, **models_of(config)}
    checks = []
    for number, name in enumerate(list(models_of(config)) or [""]):  # each model has its own parameters
        models = [hosted for hosted in chosen if name in ("", hosted.model)]
        checks.append(check_tokens(keys[name], config.seed + number, config.engine.max_num_seqs, models))
    check = together(checks)
    everything = sum(len(generation.tokens) for generation in report.generations.values())
    return {
        "reference": reference_of(model),
        "tokens_checked": check.tokens_checked,
        "tokens_different": check.tokens_different,
        "tokens_close": check.tokens_close,
        "tokens_recomputed": check.tokens_recomputed,
        "recomputed_different": check.recomputed_different,
        "tokens_unchecked": everything - check.tokens_checked - check.tokens_recomputed,
        "first_difference": check.first_difference,
    }


def _first_tokens(report: RunReport) -> list[Generation]:
    """Return whole requests in id order up to MOST_TOKENS_CHECKED tokens; at least one request."""
    chosen: list[Generation] = []
    tokens = 0
    for request in sorted(report.generations):
        generation = report.generations[request]
        tokens += len(generation.tokens)
        if chosen and tokens > MOST_TOKENS_CHECKED:
            break
        chosen.append(generation)
    return chosen


def _has_torch() -> bool:
    return all(find_spec(name) is not None for name in ("torch", "transformers"))


def require_torch() -> None:
    """Raise UserError if the libraries of real workers are missing."""
    try:
        import msgspec  # noqa: F401
        import torch  # noqa: F401
        import transformers  # noqa: F401
    except ImportError as error:
        raise UserError(
            f"real workers need torch, transformers and msgspec ({error}): "
            "write pip install 'servetwin[real]', or make test-real in a checkout"
        ) from None
