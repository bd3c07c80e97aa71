"""realexec run world=http: the same controller drives servers that already run; same result folder."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from hwmodels.catalogue import load_llm
from realexec.http.capabilities import carries_out
from realexec.http.driver import HttpReport, execute, probe_all, probe_hand_overs, probe_sleeps, resumes
from realexec.http.engine_times import times_of_all
from realexec.http.handover import Roles
from realexec.http.instance_launcher import NOWHERE, InstanceLauncher, start_first, start_others
from realexec.http.probe import Server
from realexec.http.server_launcher import ServerLauncher
from realexec.http.server_state import Times
from realexec.http.stream import Refused
from realexec.http.verify import TokenCheck, ask_again, chosen
from realexec.kubernetes.kubeconfig import access_of
from realexec.kubernetes.pod_launcher import PodLauncher, PodRules
from servetwin.assemble import build
from servetwin.assemble.clients import requests_of
from servetwin.assemble.elastic import metrics_read
from servetwin.config.compose.resolved import resolved_yaml
from servetwin.config.config import RunConfig
from servetwin.config.http_config import AFTER, ELSEWHERE, KUBERNETES, TOGETHER, servers_of
from servetwin.config.policy.watch import SPARING_PERIOD_S, PolicyWatch
from servetwin.results.journal_file import NAME as JOURNAL_NAME
from servetwin.results.journal_file import JournalFile, header_fields
from servetwin.results.measured_front_end import MeasuredFrontEnd
from servetwin.results.metrics import RunMetrics
from servetwin.results.warmup import recorder_of
from servetwin.run.http_front_end import front_end_of
from servetwin.run.prepared import Prepared
from servetwin.run.real_summary import RealRun, real_summary
from servetwin.run.simulate import prepare
from servetwin.run.started_servers import hosts_of, start_rules
from servetwin.run.telemetry import telling_of
from servetwin.run.write_results import write_config
from serving.controller import Controller
from serving.services.stock.service import Stock
from serving.vocabulary.errors import UserError
from serving.vocabulary.replica import Replica

# The name of an environment variable: a key in the configuration would be written to every result folder.
API_KEY = "SERVETWIN_API_KEY"
# The metric of each kind of server that says how much of its KV memory is in use.
KV_USE = {"vllm": "vllm:kv_cache_usage_perc", "sglang": "sglang:token_usage"}
# Timeout of the token check, for each token that a server generates again.
_S_PER_TOKEN = 1.0


def http_run(
    config: RunConfig, folder: Path, on_progress: Callable[[int, int], None] | None = None
) -> dict[str, Any]:
    """Run, check tokens, write every file into ``folder``, and return the summary."""
    if not config.http.starts:
        servers = probe_all(servers_of(config.http), config.http.model, os.environ.get(API_KEY))
        return _run(config, folder, servers, None, on_progress)
    count = config.cluster.gpus // (config.model.tp * config.model.pp)
    with _launcher_of(config, count, folder) as launcher:
        return _run(config, folder, (start_first(launcher),) * count, launcher, on_progress)


def _launcher_of(config: RunConfig, count: int, folder: Path) -> ServerLauncher | PodLauncher:
    """Return what starts at most ``count`` servers."""
    http = config.http
    if http.launcher != KUBERNETES:
        rules = start_rules(config, os.environ.get(API_KEY))
        return ServerLauncher(rules, count, folder, hosts_of(config, count))
    pods = PodRules(
        deployment=http.deployment or "",
        port=http.pod_port,
        model=http.model,
        key=os.environ.get(API_KEY),
        timeout_s=http.start_timeout_s,
        kill_s=http.kill_s,
    )
    return PodLauncher(pods, count, access_of(http.kubeconfig))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Ready:
    """A run and its servers before it begins. ``roles``, ``awake``: see ``realexec.http.driver.execute``."""

    prepared: Prepared
    servers: tuple[Server, ...]
    roles: Roles | None
    awake: list[int] | None


def _ready(config: RunConfig, servers: tuple[Server, ...], launcher: InstanceLauncher | None) -> _Ready:
    """Check that the servers can do what the system asks for, and start the others. Raises UserError."""
    _check_moves(config, servers)
    prepared = prepare(as_found(config, servers))
    config, numbers = prepared.config, [replica.id for replica in prepared.replicas]
    roles, awake = _roles(config, prepared.replicas), numbers if config.system.elastic else None
    if awake is not None:
        _check_metrics(config, servers, metrics_read(config, prepared.estimates))
    if launcher is not None:
        servers = start_others(launcher, numbers)
    elif awake is not None:
        probe_sleeps(servers)
    if roles is not None:
        servers = probe_hand_overs(servers, roles)
    return _Ready(prepared=prepared, servers=servers, roles=roles, awake=awake)


def _run(
    config: RunConfig,
    folder: Path,
    servers: tuple[Server, ...],
    launcher: InstanceLauncher | None,
    on_progress: Callable[[int, int], None] | None,
) -> dict[str, Any]:
    """Run on ``servers``, of which ``launcher`` has started the first; None: all run already."""
    ready = _ready(config, servers, launcher)
    prepared, servers, roles, awake = ready.prepared, ready.servers, ready.roles, ready.awake
    config = prepared.config
    config_yaml = resolved_yaml(config)
    write_config(folder, config_yaml)
    metrics, total, http = RunMetrics(), len(prepared.workload), config.http
    recorder, warmup = recorder_of(metrics, config.trace.warmup_requests)
    with ExitStack() as stack:
        journal = None
        if config.journal:
            able = carries_out(resumes(servers), roles is not None, awake is not None)
            header = _header_of(prepared, config_yaml, servers, able)
            journal = stack.enter_context(JournalFile(folder / JOURNAL_NAME, header, at_once=True))
        watch = stack.enter_context(PolicyWatch(period_s=SPARING_PERIOD_S))
        controller = build.controller_of(
            config,
            prepared.hardware_of_model,
            prepared.replicas,
            prepared.estimates,
            outgrows_expected=prepared.outgrows_expected,
        )
        telling = stack.enter_context(telling_of(config, controller, recorder, journal))
        steady = launcher is None or awake is None
        counted = times_of_all(servers, http.timeout_s) if steady else None
        report = execute(
            controller,
            requests_of(config, build.arrivals_of(config, prepared.workload, prepared.limits)),
            servers=servers,
            vocab_size=load_llm(config.model.name).vocab,
            seed=config.seed,
            recorder=telling.recorder,
            journal=telling.journal,
            on_progress=None if on_progress is None else lambda ended, _: on_progress(ended, total),
            times=Times(http.report_ms / 1e3, http.scrape_ms / 1e3, http.timeout_s, http.silence_s),
            opens=bool(getattr(controller.elastic, "has_rounds", False)),
            roles=roles,
            awake=awake,
            launcher=launcher,
        )
    around = MeasuredFrontEnd(why="servers were started and stopped meanwhile")
    if steady:
        around = front_end_of(servers, http.timeout_s, counted, metrics, warmup)
    real = {"policies": watch.section(), **_told_by(report, launcher, controller), **around.section()}
    real_run = RealRun(
        prepared=prepared,
        controller=controller,
        metrics=metrics,
        warmup=warmup,
        report=report.run,
        config_yaml=config_yaml,
        checked=_check_tokens(config, report, roles),
        real=real,
        at_the_engine=around.ttft_section(),
    )
    return real_summary(real_run, folder)


def _header_of(
    prepared: Prepared, config_yaml: str, servers: Sequence[Server], able: Collection[type]
) -> dict[str, Any]:
    """Return the header of the run's journal; ``able``: the actions that its servers carry out."""
    header = header_fields("real", prepared.config.seed, config_yaml, prepared.estimates, able)
    return header | prepared.journal_header() | {"servers": [server.facts() for server in servers]}


def _told_by(report: HttpReport, launcher: InstanceLauncher | None, controller: Controller) -> dict[str, Any]:
    """Return the servers, and what really happened on them."""
    starts = {} if launcher is None else {"starts": launcher.report()}
    stock = [service for service in controller.services.values() if isinstance(service, Stock)]
    return {
        "servers": [server.facts() for server in report.servers if server.address != NOWHERE],
        **starts,
        "moved": report.counts.moved,
        "past_grace": sum([service.evicted for service in stock]),
        "resumed": report.counts.resumed,
        "handed_over": report.counts.handed_over,
        "slept": report.counts.slept,
        "woken": report.counts.woken,
        "short_answers": report.counts.short,
        "looks_at_metrics": report.counts.observed,
        "metrics_read": list(report.counted),
    }


def as_found(config: RunConfig, servers: Sequence[Server]) -> RunConfig:
    """Return the configuration with the smallest memory and context that any server reports."""
    engine = config.engine
    tokens = [server.kv_tokens for server in servers if server.kv_tokens]
    blocks = [server.block_tokens for server in servers if server.block_tokens]
    contexts = [server.max_model_len for server in servers if server.max_model_len]
    if len(tokens) == len(servers) and len(blocks) == len(servers):
        engine = replace(engine, kv_tokens=min(tokens), block_tokens=max(blocks), watermark=0.0)
        engine = replace(engine, reserved_blocks=0)
    longest = load_llm(config.model.name).max_context_tokens
    if contexts:
        engine = replace(engine, max_model_len=min(*contexts, longest))
    http = config.http
    if config.system.instances.split and http.hand_over is None:
        kind = servers[0].dialect.name
        http = replace(http, hand_over=TOGETHER if kind == "sglang" else AFTER)
    return replace(config, engine=engine, http=http)


def _roles(config: RunConfig, replicas: Sequence[Replica]) -> Roles | None:
    """Return which servers prefill; None: every server does both."""
    if not config.system.instances.split:
        return None
    prefills = frozenset([replica.id for replica in replicas if replica.role == "prefill"])
    return Roles(prefills, config.http.hand_over == TOGETHER)


def _check_moves(config: RunConfig, servers: Sequence[Server]) -> None:
    """Refuse a policy that moves requests if a server cannot resume one."""
    what, instead = f"system/migration={config.system.migration.name}", "system/migration=none"
    if config.system.instances.drain_s is not None and config.http.after_grace == ELSEWHERE:
        what, instead = "http.after_grace=elsewhere", "http.after_grace=fail"
    elif config.system.migration.name == "none":
        return
    for server in servers:
        if not server.token_ids or not server.aborts:
            reason = "gives no token ids back" if not server.token_ids else "was not seen to abort a request"
            raise UserError(
                f"{what} moves running requests, and the server at {server.address} {reason}: write {instead}"
            )


def _check_metrics(config: RunConfig, servers: Sequence[Server], read: Sequence[str]) -> None:
    """Refuse a scaler that reads a metric which a server lacks and the client cannot count itself."""
    for server in servers:
        if "kv_use" in read and not server.tells_kv_use:
            scaler, name = config.system.scaler, KV_USE.get(server.dialect.name, "of that")
            other = "system.scaler.metric=concurrency" if "metric" in scaler.params else "system/scaler=kpa"
            raise UserError(
                f"system/scaler={scaler.name} reads kv_use, and the server at {server.address} has no metric "
                f"{name}: write {other}, or start the server with its metrics"
            )


def _check_tokens(config: RunConfig, report: HttpReport, roles: Roles | None) -> dict[str, Any]:
    """Generate tokens again at servers that serve requests alone, and compare them."""
    servers = enumerate(report.servers)
    usable = [server for number, server in servers if number not in report.gone and not server.mode]
    generations = report.run.generations.values()
    wanted = chosen(generations, config.http.check_tokens) if usable else []
    longest = max([len(kind.tokens) for kind in wanted], default=0)
    check, why = TokenCheck(), None
    try:
        check = ask_again(usable, wanted, config.http.timeout_s + longest * _S_PER_TOKEN) if wanted else check
    except (OSError, Refused) as error:
        why = f"the tokens could not be asked for again: {error or type(error).__name__}"
    everything = sum(len(generation.tokens) for generation in generations)
    return {
        "tokens_checked": check.checked,
        "tokens_different": check.different,
        "tokens_recomputed": check.resumed,
        "recomputed_different": check.resumed_different,
        "tokens_unchecked": everything - check.checked - check.resumed,
        "first_difference": check.first_difference or why,
    }
