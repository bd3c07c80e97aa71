"""The work of ``benchmarks.speed``: configurations, and what they may cost."""

import os
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from experiments.llumnix.set_ups import CLUSTER, PAPER_REQUESTS
from hwmodels.importers import ImportRequest, import_profile
from hwmodels.profiles.profile_file import save_profile
from servetwin.config.compose.compose import load_config
from servetwin.results.journal_file import JournalFile
from servetwin.run.simulate import Prepared, execute, prepare
from traces.synthetic.llumnix_like import FIGURE_11_RATES_PER_S

BASE = ["system=vllm", "model=llama3_8b", "out=unused"]
REAL = ["trace=azure_conv", "trace.limit=10000", "cluster=a100_x8"]
# The whole hour on the four hosts of eight GPUs of BlitzScale's cluster A.
HOUR = ["trace=azure_conv", "cluster=blitz_a"]
LARGER = [*HOUR, "model=mistral_24b", "model.tp=2", "trace.rate_scale=3.5"]
# Those of its measured runs, of which the tables have no more than 256.
SEATS = ["engine.max_num_seqs=128", "engine.max_num_batched_tokens=2048"]
LIKE = ["trace=azure_conv_like", "trace.requests=10000"]
WIDE = ["trace=azure_conv_like", "trace.requests=100000", "cluster=a100_x1024"]
# Llumnix's 16 instances at a rate of its Fig. 11; a pass computes 12,800 tokens at most.
LLUMNIX = [
    *("trace=llumnix_mm", "trace.rate_per_s=7.5", "trace.requests=4000", "cluster=llumnix", "model=llama_7b"),
    *("engine=vllm_0_1_7", "engine.max_num_batched_tokens=12800", "engine.max_model_len=12800"),
    "engine.max_new_tokens=6144",
]
# As many requests per instance at the same rate per instance, whatever their number.
LLUMNIX_WIDE = {
    instances: [
        *(word for word in LLUMNIX if not word.startswith(("trace.re", "trace.rate", "cluster="))),
        *(f"trace.requests={25 * instances}", f"trace.rate_per_s={7.5 / 16 * instances}"),
        *(f"cluster=llumnix_{instances}x1", "system=llumnix_base"),
        "system.migration.migrate_out_threshold=10",
    ]
    for instances in (16, 64, 256, 1024)
}
# The same without migrations: what dispatch costs.
INFAAS_WIDE = {
    instances: [*(word for word in words if not word.startswith("system")), "system=infaas_pp"]
    for instances, words in LLUMNIX_WIDE.items()
}
# Figure 11 as it is run: 783 blocks of KV, 10,000 requests; M-M at the paper's rates, S-S at the middle one.
FIGURE_11 = {
    f"fig11_{lengths}_{rate:g}": [
        *(f"trace=llumnix_{lengths}", f"trace.rate_per_s={rate:g}", f"trace.requests={PAPER_REQUESTS}"),
        *(*CLUSTER, "system=llumnix_base", f"system.migration.migrate_out_threshold={threshold}"),
    ]
    for lengths, threshold, rates in (("mm", 10, FIGURE_11_RATES_PER_S["llumnix_mm"]), ("ss", 3, (34.0,)))
    for rate in rates
}
# Prompts that share prefixes, without looking for them and with it: as recorded, drawn, and long ones.
SHARED = {
    "workload": ["trace=file", "trace.repeat=34", "trace.limit=10000", "cluster=a100_x8"],
    "chats": ["trace=multi_turn", "trace.requests=10000", "trace.rate_per_s=20", "cluster=a100_x8"],
    "mooncake": ["trace=mooncake_conversation", "cluster=h100_x32", "model=llama3_1_8b"],
}
WORKLOAD = "llmservingsim/workloads_sharegpt-llama-3.1-8b-300-sps10_prefix.jsonl"
# Scenario -> the tables it runs on, below SERVETWIN_PROFILES; it is left out when that is not set.
TABLES = {
    "op_tables": (
        "vidur",
        "vidur/compute/a100/meta-llama/Meta-Llama-3-8B/mlp.csv",
        "a100_80g",
        "aiconfigurator/a100_sxm",
    ),
    "op_tables_mixed": (
        "llmservingsim",
        "llmservingsim/RTXPRO6000/meta-llama/Llama-3.1-8B",
        "rtx_pro_6000",
        None,
    ),
}


class LeftOutError(Exception):
    """Why this machine cannot run a scenario."""


@dataclass(frozen=True, slots=True)
class Scenario:
    """Overrides, and the raw per request that are allowed: (interpreted, compiled), None where nothing is."""

    overrides: list[str]
    budget: tuple[float, float] | None = None


SCENARIOS = {
    "static": Scenario(REAL, (62, 32)),
    "op_tables": Scenario([*REAL, "engine.version=0.14.0"], (67, 36)),
    # Prompts and decodes in one attention kernel, and what unequal contexts cost, measured too.
    "op_tables_mixed": Scenario([*REAL[:2], "cluster=rtx_pro_6000_x8", *SEATS]),
    "prefill_first": Scenario([*REAL, "engine=vllm_v0"]),
    "utilization_80": Scenario([*LIKE, "cluster=a100_x8", "trace.utilization=0.8"]),
    "journal": Scenario(REAL, (78, 48)),
    # Two instances of four stages, with as many micro-batches in flight.
    "pipeline_static": Scenario([*REAL, "model.pp=4"], (120, 80)),
    # Prefill and decode apart: the KV of every request is a transfer on the fabric.
    "distserve_full": Scenario([*HOUR, "system=distserve_full"], (110, 65)),
    "distserve_full_24b": Scenario([*LARGER, "system=distserve_full"]),
    # Beside that, instances that come and go, and their parameters over the same links.
    "blitz_multicast": Scenario([*HOUR, "system=blitz_multicast"]),
    "blitz_multicast_24b": Scenario([*LARGER, "system=blitz_multicast"]),
    # And they work while their parameters come.
    "blitzscale": Scenario([*HOUR, "system=blitzscale"], (165, 110)),
    "blitzscale_24b": Scenario([*LARGER, "system=blitzscale"]),
    # Dispatch by load reports; and running requests migrate.
    "infaas_pp": Scenario([*LLUMNIX, "system=infaas_pp"], (120, 80)),
    "llumnix_base": Scenario(
        [*LLUMNIX, "system=llumnix_base", "system.migration.migrate_out_threshold=10"], (120, 80)
    ),
    "fig11_mm_7.6_infaas_pp": Scenario(
        [*(word for word in FIGURE_11["fig11_mm_7.6"] if not word.startswith("system")), "system=infaas_pp"],
        (120, 80),
    ),
    **{name: Scenario(words, (120, 80)) for name, words in FIGURE_11.items()},
    **{f"infaas_pp_{instances}": Scenario(words) for instances, words in INFAAS_WIDE.items()},
    **{f"llumnix_{instances}": Scenario(words) for instances, words in LLUMNIX_WIDE.items()},
    **{
        f"prefix_{word}_{name}": Scenario([*words, f"engine.prefix_caching={word == 'on'}".lower()])
        for name, words in SHARED.items()
        for word in ("off", "on")
    },
    "replicas_8": Scenario([*LIKE, "cluster=a100_x8", "trace.utilization=0.3"]),
    "replicas_1024": Scenario([*WIDE, "trace.utilization=0.3"]),
    "replicas_1024_light": Scenario([*WIDE, "trace.rate_per_s=707.84"]),
}
# Is the cost per request the same at the size of BurstGPT, and does memory stay below 1 GB?
LARGE = {
    f"large_{requests}": Scenario(["trace=azure_conv_like", "cluster=a100_x8", f"trace.requests={requests}"])
    for requests in (10_000, 100_000, 1_430_000)
}
ALL = SCENARIOS | LARGE


def prepared(name: str) -> Prepared:
    """Everything that is outside of what is timed. LeftOutError, TraceError, HardwareError, UserError."""
    with TemporaryDirectory() as folder:
        overrides = [*ALL[name].overrides, *_profile(name, Path(folder) / "profile.json")]
        return prepare(load_config(_words(overrides), "simulate"))


def repeats(requests: int) -> int:
    """How often a run of so many requests is measured."""
    return 7 if requests <= 50_000 else 3 if requests <= 1_000_000 else 1


def once(name: str, work: Prepared) -> tuple[float, float]:
    """(CPU seconds, events) per request."""
    with TemporaryDirectory() as folder:
        if name == "journal":
            with JournalFile(Path(folder) / "journal", {}) as file:
                done = execute(work, file)
        else:
            done = execute(work)
    return done.cpu_s / len(work.workload), done.events / len(work.workload)


def _words(overrides: list[str]) -> list[str]:
    """The scenario's words, and those of ``BASE`` whose keys it does not set."""
    own = {word.partition("=")[0] for word in overrides}
    return [*(word for word in BASE if word.partition("=")[0] not in own), *overrides]


def _measured() -> Path:
    """The folder of measured tables and their workloads. LeftOutError."""
    if "SERVETWIN_PROFILES" not in os.environ:
        raise LeftOutError("SERVETWIN_PROFILES does not name the measured tables")
    return Path(os.environ["SERVETWIN_PROFILES"])


def _profile(name: str, path: Path) -> list[str]:
    """Import the scenario's tables into ``path``; the words that name it, or the workload beside them."""
    if "trace=file" in ALL[name].overrides:
        return [f"trace.path={_measured() / WORKLOAD}"]
    if name not in TABLES:
        return []
    kind, tables, gpu, attention = TABLES[name]
    root = _measured()
    other = None if attention is None else root / attention
    request = ImportRequest(path=root / tables, gpu=gpu, llm="llama3_8b", tp=1, aiconfigurator=other)
    save_profile(import_profile(kind, request), path)
    return [f"engine.profile={path}"]
