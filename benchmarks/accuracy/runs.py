"""Simulations of measured runs, kept one by one so that an interrupted evaluation goes on."""

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from benchmarks.accuracy.loads import trace_words
from benchmarks.accuracy.measured import MeasuredRun, model_word
from hwmodels.errors import HardwareError
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile_file import save_profile
from servetwin.config.compose.compose import load_config
from servetwin.results.code_digest import code_digest
from servetwin.run.simulate import evaluated
from serving.vocabulary.errors import UserError

GPU: Final = "h100"
KEPT: Final = ("ttft_ms", "ttft_engine_ms", "tpot_ms", "itl_ms", "e2e_ms", "throughput", "energy", "range",
               "range_in_short", "kv_capacity", "preemptions")  # fmt: skip


@dataclass(frozen=True, slots=True)
class SimulatedRun:
    """A measured run with its simulation's ``summary``, or the sentence that ``refused`` it."""

    run: MeasuredRun
    summary: Mapping[str, Any]
    refused: str = ""


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Where files are: measured runs below ``root``, AIConfigurator's tables of the GPU, kept results.

    ``words``: added to every run, such as ``engine.front_end.way_out_s=0``.
    """

    root: Path
    tables: Path
    folder: Path
    words: tuple[str, ...] = ()

    def simulated(self, run: MeasuredRun, extra: Sequence[str] = ()) -> SimulatedRun:
        """Simulate the run, or take its result from an earlier evaluation of the same code and words."""
        words = [*self._words(run), *self.words, *extra]
        digest = hashlib.sha256("\n".join([code_digest(), *words]).encode()).hexdigest()[:16]
        kept = self.folder / "runs" / f"{run.name}.{digest}.json"
        if kept.is_file():
            return SimulatedRun(run, *json.loads(kept.read_text(encoding="utf-8")))
        try:
            summary = evaluated(load_config([*words, "out=none"], "simulate"))
            found = SimulatedRun(run, {key: summary[key] for key in KEPT if key in summary})
        except (UserError, HardwareError) as error:
            found = SimulatedRun(run, {}, str(error))
        kept.parent.mkdir(parents=True, exist_ok=True)
        kept.write_text(json.dumps([found.summary, found.refused]), encoding="utf-8")
        return found

    def _words(self, run: MeasuredRun) -> list[str]:
        return [
            "engine=vllm_v1",
            f"engine.version={run.version}",
            f"model={model_word(run.model, self.root)}",
            f"model.tp={run.tp}",
            f"cluster={GPU}_x{run.tp}",
            f"engine.profile={self._profile(run)}",
            "engine.profile_force=true",  # the tables are of vLLM 0.19
            *run.engine,
            *trace_words(run, self.folder / "traces"),
        ]

    def _profile(self, run: MeasuredRun) -> Path:
        name = f"{run.model.rpartition('/')[2]}_tp{run.tp}.json"
        path = self.folder / "profiles" / name
        if not path.is_file():
            request = ImportRequest(
                path=self.tables, gpu=GPU, llm=model_word(run.model, self.root), tp=run.tp
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            save_profile(import_profile("aiconfigurator", request), path)
        return path
