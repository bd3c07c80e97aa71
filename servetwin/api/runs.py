"""One simulated run."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any

from servetwin.api.words import words_of
from serving.vocabulary.errors import UserError

if TYPE_CHECKING:
    import pandas as pd

    from servetwin.api.shown_figure import ShownFigure


@dataclass(frozen=True, kw_only=True)
class Run:
    """``summary``: as summary.json (docs/reference/METRICS.md). ``requests``: a row per finished request,
    times in ms.

    ``unserved``: a row per rejected or failed one. ``config``: config.yaml. ``report``: report.html.
    ``folder``: where the results are, None where none was named.
    """

    summary: dict[str, Any]
    requests: pd.DataFrame
    unserved: pd.DataFrame
    config: str
    report: str
    folder: Path | None = None

    def plot(self) -> ShownFigure:
        """Cumulative distributions of TTFT, TPOT and E2E, and TTFT by arrival time."""
        from servetwin.api.shown_figure import ShownFigure

        figure = ShownFigure(figsize=(10, 3.4), layout="constrained")
        shares, times = figure.subplots(1, 2)
        for column, label in (("ttft_ms", "TTFT"), ("tpot_ms", "TPOT"), ("e2e_ms", "E2E")):
            values = self.requests[column].dropna().sort_values().to_numpy()
            shares.plot(values, [(at + 1) / len(values) for at in range(len(values))], label=label)
        shares.set(xscale="log", xlabel="ms", ylabel="share of requests")
        shares.legend(frameon=False)
        times.plot(self.requests["arrival_ns"] / 1e9, self.requests["ttft_ms"], ".", markersize=3, alpha=0.4)
        times.set(xlabel="arrival, s", ylabel="TTFT, ms")
        return figure

    def __repr__(self) -> str:
        names = ", ".join(str(self.summary.get(key)) for key in ("system", "model", "cluster"))
        p99 = self.summary["ttft_ms"]["p99"]
        latency = "no request finished" if p99 is None else f"TTFT P99 {p99:.4g} ms"
        return f"<Run {names}: {self.summary['requests']['finished']} finished, {latency}>"


def simulate(*words: str, out: str | Path | None = None, **values: Any) -> Run:
    """``servetwin simulate``; ``out``: the folder that gets its results, None for none.

    Raises UserError for words that cannot be used, PolicyError for a policy's mistake.
    """
    from servetwin.config.compose.compose import load_config
    from servetwin.results.result_folder import ResultFolder
    from servetwin.run import simulate as simulated

    all_words = words_of(words, values)
    if out is not None:
        config = load_config([*all_words, f"out={out}"], "simulate", alone=True)
        with ResultFolder(config.out, config.overwrite) as folder:
            simulated.simulate(config, folder.path)
            return run_in(folder.commit())
    with TemporaryDirectory() as name:
        config = load_config([*all_words, f"out={name}"], "simulate", alone=True)
        simulated.simulate(config, Path(name))
        return _read(Path(name), None)


def run_in(folder: str | Path) -> Run:
    """A result folder of a simulated or a real run. UserError for what is none."""
    path = Path(folder).expanduser().resolve()
    if not (path / "summary.json").is_file():
        raise UserError(f"{path} has no summary.json: give the out= of a run or of a sweep")
    return _read(path, path)


def _read(path: Path, folder: Path | None) -> Run:
    import pandas as pd

    from servetwin.results.parquet_file import frame_of

    unserved = path / "unserved.parquet"
    return Run(
        summary=json.loads((path / "summary.json").read_text(encoding="utf-8")),
        requests=frame_of(path / "requests.parquet"),
        unserved=frame_of(unserved) if unserved.exists() else pd.DataFrame(),
        config=(path / "config.yaml").read_text(encoding="utf-8"),
        report=(path / "report.html").read_text(encoding="utf-8"),
        folder=folder,
    )
