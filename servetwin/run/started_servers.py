"""Servers that a command starts as ``http.start`` says, and how long their starts take beside a busy one."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from typing import Any

from realexec.http.busy import keep_busy
from realexec.http.instance_launcher import server_of
from realexec.http.ray_hosts import RayHosts, share_of
from realexec.http.server_hosts import Hosts
from realexec.http.server_launcher import ServerLauncher, StartRules
from servetwin.assemble.hosted import hosted_models
from servetwin.config.config import RunConfig
from servetwin.config.http_config import RAY, command_of

_FIRST, _SECOND = 0, 1


def start_rules(config: RunConfig, api_key: str | None) -> StartRules:
    """Return how servers are started."""
    http = config.http
    template = http.start or ""
    return StartRules(
        command=lambda at, number: command_of(template, at.port, number, at.host),
        model=http.model,
        key=api_key,
        timeout_s=http.start_timeout_s,
        kill_s=http.kill_s,
        cores=http.cores,
    )


def hosts_of(config: RunConfig, servers: int) -> Hosts | None:
    """Return where at most ``servers`` servers run; None: on this host."""
    http = config.http
    if http.launcher != RAY:
        return None
    return RayHosts(config.ray.address, share_of(http.cores, http.gpus), servers)


def measured_starts(launcher: ServerLauncher, config: RunConfig, times: int) -> Sequence[dict[str, Any]]:
    """Start a second server so many times while the first, which runs, has requests; return the phases.

    A scaler starts a server because others have requests, and a start beside them takes longer.
    """
    (model,) = hosted_models(config)

    async def started() -> None:
        busy = asyncio.create_task(
            keep_busy(server_of(launcher, _FIRST), config.engine.max_num_seqs, model.shape.vocab, config.seed)
        )
        try:
            for _ in range(times):
                await launcher.start(_SECOND)
                await launcher.stop(_SECOND)
        finally:
            busy.cancel()
            with suppress(asyncio.CancelledError):
                await busy

    asyncio.run(started())
    return [start for start in launcher.report()["servers"] if start["server"] == _SECOND]
