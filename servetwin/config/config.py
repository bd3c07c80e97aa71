"""The configuration of one run, typed and frozen. ``checks`` refuses settings that contradict each other.

Each key is declared at its field (``servetwin.config.key``).
"""

from dataclasses import dataclass
from typing import Any, Final, Literal

from hwmodels.models.precision import PRECISIONS
from servetwin.config import readers
from servetwin.config.engine_config import EngineConfig
from servetwin.config.faults_config import NO_FAULTS, FaultsConfig
from servetwin.config.http_config import (
    LOGS,
    NO_METRICS,
    NO_SERVERS,
    WORKERS,
    WORLDS,
    HttpConfig,
    MetricsConfig,
)
from servetwin.config.instances_config import InstancesConfig
from servetwin.config.key import COUNT, NOT_NEGATIVE, POSITIVE, Range, key
from servetwin.config.migration_config import LIVE, MigrationConfig
from servetwin.config.models_config import ONE, ModelsConfig
from servetwin.config.pipeline_config import PLAIN, PipelineConfig
from servetwin.config.readers import REAL_WORKERS, STAGED_REPLICAS
from servetwin.config.signals_config import DECLARED, SignalsConfig
from servetwin.config.trace_config import TraceConfig
from servetwin.config.workers_config import CPU, LAUNCHERS, NO_RAY, TRANSPORTS, RayConfig

Kind = Literal["simulate", "realexec"]

ESTIMATES: Final = ("model", "artefact")
STARTS: Final = ("warm", "host", "ssd", "remote")
FLOAT32: Final = "float32"
GIVEN, MEASURED = "given", "measured"
LINKS: Final = (GIVEN, MEASURED)  # sources of the rates of cluster=local
DTYPES: Final = (FLOAT32, "bfloat16")  # number formats of real workers
ON: Final = "on"
OFF: Final = "off"
UNCERTAINTIES: Final = (ON, OFF)
MAX_GPUS: Final = 8192
# No request waits a day for a token: larger numbers are in another unit.
OBJECTIVE_MS: Final = Range(low=0, high=86_400_000.0, open_low=True)
# One row per engine and period is kept in memory; steps of an engine take milliseconds.
MIN_SERIES_PERIOD_S: Final = 0.01


@dataclass(frozen=True, slots=True, kw_only=True)
class PolicyConfig:
    """A policy class as ``module:Class``, and its constructor arguments."""

    name: str = key("the chosen option")
    policy: str = key("its class, as `module:Class`")
    params: dict[str, Any]


STAY: Final = PolicyConfig(name="none", policy="", params={})


@dataclass(frozen=True, slots=True, kw_only=True)
class SystemConfig:
    """A serving system: one policy for every decision, and how many instances it has.

    ``scaler`` none: a static system, which needs neither ``provision`` nor ``cache``. ``live`` none: new
    instances wait for all their parameters. ``migration`` none: a request stays where it decodes.
    ``stages`` none: an instance has a whole model.
    """

    name: str = key("the chosen option")
    dispatch: PolicyConfig = key("which instance gets a request")
    batcher: PolicyConfig = key("which requests are in a step")
    admission: PolicyConfig = key("which requests are admitted")
    scaler: PolicyConfig = key("when instances start and stop")
    provision: PolicyConfig = key("which GPUs new instances get, and from where they load")
    cache: PolicyConfig = key("which parameters host memory keeps")
    live: PolicyConfig = key("which layers loading instances run")
    migration: PolicyConfig = key("which running requests move", omit=STAY)
    stages: PolicyConfig = key("when replicas of stages start and stop", omit=STAY)
    instances: InstancesConfig = key("number and roles of instances")
    signals: SignalsConfig = key("the metrics that a scaler reads", omit=DECLARED)

    @property
    def elastic(self) -> bool:
        """Whether the system starts and stops instances during the run."""
        return self.scaler.name != "none"

    @property
    def scales_stages(self) -> bool:
        """Whether the system starts and stops replicas of stages during the run."""
        return self.stages.name not in ("none", "fixed")

    @property
    def in_stages(self) -> bool:
        """Whether the system's models are in stages, each with replicas of its own."""
        return self.stages.name != "none"


@dataclass(frozen=True, slots=True, kw_only=True)
class RoleConfig:
    """GPUs of the instances of one role, if they are not ``model.tp``."""

    tp: int | None = key(
        "GPUs of each instance of this role in a static split system, with "
        "`system.instances.prefill` and `.decode`; null: `model.tp`",
        default=None,
        within=COUNT,
    )


OF_MODEL: Final = RoleConfig()  # as many as ``model.tp``


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelConfig:
    """A model of the catalogue, ``tp`` GPUs per replica, or for each of its ``pp`` pipeline stages."""

    name: str = key("the chosen option, or the path of a config.json")
    tp: int = key(
        "GPUs per replica; must divide the heads of the model and the GPUs of the cluster",
        within=COUNT,
    )
    prefill: RoleConfig = key(
        "GPUs of prefill instances", omit=OF_MODEL, read_by=(readers.MODELS_THAT_DECODE, readers.SIMULATION)
    )
    decode: RoleConfig = key(
        "GPUs of decode instances; KV goes to them by heads",
        omit=OF_MODEL,
        read_by=(readers.MODELS_THAT_DECODE, readers.SIMULATION),
    )
    pp: int = key(
        "pipeline stages of a replica, each on `model.tp` GPUs "
        "([PIPELINE](../explanation/PIPELINE.md)); static systems only",
        default=1,
        within=COUNT,
    )
    pp_cut: str = key(
        "which layers each stage has: `layers` (vLLM's own cut), `bytes`, `time`, or the "
        "layers of each stage, such as `9+9+9+5`",
        default="layers",
        read_by=(STAGED_REPLICAS,),
    )
    precision: str | None = key(
        "number format of the layers' matrices ([PRECISION](../reference/PRECISION.md)); null: as "
        "config.json says, models of the catalogue as published",
        default=None,
        choices=PRECISIONS,
        omit=None,
        read_by=(readers.MODELS_THAT_DECODE, readers.SIMULATION),
    )
    checkpoint: str | None = key(
        "folder from which workers read parameters, of the same model "
        "([REALEXEC](../explanation/REALEXEC.md#models)); null: random parameters",
        default=None,
        omit=None,
        read_by=(REAL_WORKERS,),
    )
    dtype: str = key(
        "the number format that workers compute in",
        default=FLOAT32,
        choices=DTYPES,
        omit=FLOAT32,
        read_by=(REAL_WORKERS,),
    )

    @property
    def tp_of_roles(self) -> tuple[int, int]:
        """GPUs of a prefill and of a decode instance."""
        return self.prefill.tp or self.tp, self.decode.tp or self.tp


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterConfig:
    """``gpus`` GPUs of one type, with the links of a cluster file, if any."""

    name: str = key("the chosen option")
    gpu: str = key(
        "the catalogue's GPU; for `cluster=local` the GPU of this machine's workers with "
        "`device=cuda` ([GPU](../how-to/GPU.md))"
    )
    gpus: int = key(
        "GPUs; settable for `cluster=local` in a simulation only",
        within=Range(low=1, high=MAX_GPUS),
    )
    topology: str | None = key("the cluster file with the links; null: no links", default=None)
    start: str = key(
        "where all parameters are at the start: `warm` (loaded), or `host`, `ssd` or "
        "`remote`, from which they load while requests wait. Clusters with links only",
        default=STARTS[0],
        choices=STARTS,
    )
    links: str = key(
        "rates of links: `given`, or for `cluster=local` `measured`, those of the "
        "[calibration](../how-to/CALIBRATE.md#measured-links) in `engine.profile`",
        default=GIVEN,
        choices=LINKS,
    )
    pcie_gbps: float | None = key(
        "Gbit/s of PCIe in place of the cluster file's rate, before its efficiency. Clusters with links only",
        default=None,
        within=POSITIVE,
        read_by=(readers.LINKS,),
    )
    nvlink_gbps: float | None = key(
        "the same of NVLink", default=None, within=POSITIVE, read_by=(readers.LINKS,)
    )
    nic_gbps: float | None = key("the same of NICs", default=None, within=POSITIVE, read_by=(readers.LINKS,))
    ssd_gbps: float | None = key("the same of SSDs", default=None, within=POSITIVE, read_by=(readers.LINKS,))
    remote_gbps: float | None = key(
        "the same of the remote store", default=None, within=POSITIVE, read_by=(readers.LINKS,)
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SloConfig:
    """Latency objectives of one request, and their source."""

    name: str = key("the chosen option, or `custom`")
    ttft_ms: float = key("longest time to the first token that meets the objective", within=OBJECTIVE_MS)
    tpot_ms: float = key("longest mean time per further token that meets the objective", within=OBJECTIVE_MS)
    source: str = key("where the objectives come from")


@dataclass(frozen=True, slots=True, kw_only=True)
class SeriesConfig:
    """Whether a run records its load over time, and how often."""

    period_s: float | None = key(
        "seconds between rows of `series.parquet` "
        "([METRICS](../reference/METRICS.md#load-over-time-seriesparquet)); "
        "null: no series",
        default=None,
        within=Range(low=MIN_SERIES_PERIOD_S),
    )


NO_SERIES: Final = SeriesConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class DriverConfig:
    """Which actions the simulated driver executes (``servetwin.assemble.capabilities``)."""

    carries_out: str | None = key(
        "actions that the driver executes: null (all), `realexec` (real workers), `http` "
        "(stock engines), or a list such as `[assign,run,reject]`; [other systems are "
        "refused](../how-to/FAULTS.md#a-driver-that-carries-out-less)",
        default=None,
    )


ANY_DRIVER: Final = DriverConfig()


@dataclass(frozen=True, slots=True, kw_only=True)
class RunConfig:
    """Everything one run depends on."""

    kind: str = key("`simulate` or `realexec`")
    engine: EngineConfig = key("the serving engine")
    system: SystemConfig = key("the serving system")
    model: ModelConfig = key("the model")
    models: ModelsConfig = key("how many models", omit=ONE)
    cluster: ClusterConfig = key("the GPUs and their links")
    trace: TraceConfig = key("the workload")
    slo: SloConfig = key("latency objectives")
    series: SeriesConfig = key("load over time", omit=NO_SERIES)
    faults: FaultsConfig = key("losses", omit=NO_FAULTS)
    driver: DriverConfig = key("what the driver executes", omit=ANY_DRIVER, read_by=(readers.SIMULATION,))
    migration: MigrationConfig = key("how running requests migrate", omit=LIVE, read_by=(readers.MIGRATION,))
    pipeline: PipelineConfig = key(
        "how a model in stages is cut and served", omit=PLAIN, read_by=(readers.STAGES,)
    )
    estimates: str = key(
        "speeds that policies assume: of the run's `model`, or those of BlitzScale's "
        "`artefact`, which four models have",
        default=ESTIMATES[0],
        choices=ESTIMATES,
        read_by=(readers.SCALER,),
    )
    uncertainty: str = key(
        "two more runs, at the ends of the step times' error, give every number a range "
        "([HOW_FAR_OFF](../explanation/HOW_FAR_OFF.md))",
        default=ON,
        choices=UNCERTAINTIES,
        omit=OFF,
    )
    seed: int = key("every random stream is derived from it and a name", default=0, within=NOT_NEGATIVE)
    journal: bool = key(
        "write the [journal](../reference/JOURNAL.md)",
        default=False,
    )
    out: str = key("folder for the results")
    overwrite: bool = key(
        "replace an earlier result in `out`; never a folder that holds anything else", default=False
    )
    workers: int | None = key(
        "worker processes", default=None, within=Range(low=1, high=MAX_GPUS), kind="realexec", omit=None
    )
    transport: str | None = key(
        "how workers read each other's memory; null: the first that this machine supports "
        "([REALEXEC](../explanation/REALEXEC.md#bytes))",
        default=None,
        choices=TRANSPORTS,
        read_by=(readers.REAL_WORKERS,),
        kind="realexec",
        omit=None,
    )
    launcher: str = key(
        "where workers are started: `local` (processes of this machine) or `ray` "
        "([MANY_HOSTS](../how-to/MANY_HOSTS.md))",
        default=LAUNCHERS[0],
        choices=LAUNCHERS,
        read_by=(readers.REAL_WORKERS,),
        kind="realexec",
        omit=LAUNCHERS[0],
    )
    ray: RayConfig = key("a Ray cluster", read_by=(readers.RAY,), kind="realexec", omit=NO_RAY)
    device: str = key(
        "where workers compute: `cpu`, `cuda`, `cuda:N`, or `apart`, a CPU that copies like a "
        "GPU ([GPU](../how-to/GPU.md))",
        default=CPU,
        read_by=(readers.REAL_WORKERS,),
        kind="realexec",
        omit=CPU,
    )
    world: str = key(
        "`workers` of this machine, or `http`, servers that run already or are started "
        "([HTTP](../how-to/HTTP.md))",
        default=WORKERS,
        choices=WORLDS,
        kind="realexec",
        omit=WORKERS,
    )
    http: HttpConfig = key(
        "servers behind HTTP", read_by=(readers.HTTP_SERVERS,), kind="realexec", omit=NO_SERVERS
    )
    metrics: MetricsConfig = key("metrics of a running run", kind="realexec", omit=NO_METRICS)
    log: str | None = key(
        "`json` writes a line for every arrival, decision, loss and end to stderr",
        default=None,
        choices=LOGS,
        kind="realexec",
        omit=None,
    )
