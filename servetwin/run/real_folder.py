"""Execute a real or a simulated run from its configuration and write its folder."""

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servetwin.config.http_config import HTTP
from servetwin.results.result_folder import ResultFolder
from servetwin.run.progress import progress_bar

if TYPE_CHECKING:
    from servetwin.config.config import RunConfig


def real_folder(config: "RunConfig", out: str | None = None) -> tuple[dict[str, Any], Path]:
    """Execute a real run into ``out`` (None: the configuration's folder). Returns summary and folder."""
    if config.world == HTTP:
        from servetwin.run.http_run import http_run as real_run
    else:
        from servetwin.run.real_run import real_run

    config = config if out is None else replace(config, out=out)
    with ResultFolder(config.out, config.overwrite) as folder:
        with progress_bar("running for real") as on_progress:
            summary = real_run(config, folder.path, on_progress)
        return summary, folder.commit()


def simulated_folder(config: "RunConfig") -> tuple[dict[str, Any], Path]:
    """Execute a simulated run. Returns summary and folder."""
    from servetwin.run.simulate import simulate

    with ResultFolder(config.out, config.overwrite) as folder:
        with progress_bar("simulating") as on_progress:
            summary = simulate(config, folder.path, on_progress)
        return summary, folder.commit()
