"""The configuration of one run, typed and frozen. ``checks`` refuses settings that contradict each other."""

from dataclasses import dataclass
from typing import Any, Final, Literal

from servetwin.config.faults_config import FaultsConfig
from servetwin.config.http_config import NO_METRICS, NO_SERVERS, WORKERS, HttpConfig, MetricsConfig
from servetwin.config.instances_config import InstancesConfig
from servetwin.config.migration_config import MigrationConfig
from servetwin.config.models_config import ModelsConfig
from servetwin.config.pipeline_config import PipelineConfig
from servetwin.config.series_config import SeriesConfig
from servetwin.config.swapping import RECOMPUTE, SWAP_SPACE_GIB
from servetwin.config.trace_config import TraceConfig
from servetwin.config.workers_config import CPU, NO_RAY, RayConfig

Kind = Literal["simulate", "realexec"]

ESTIMATES: Final = ("model", "artefact")
STARTS: Final = ("warm", "host", "ssd", "remote")
FLOAT32: Final = "float32"
# The cap that was the default until outputs ran at their own length (docs/decisions/0024).
EXPECTED_NEW_TOKENS: Final = 2048
GIVEN, MEASURED = "given", "measured"
LINKS: Final = (GIVEN, MEASURED)  # sources of the rates of cluster=local
# How real workers read each other's memory.
DTYPES: Final = (FLOAT32, "bfloat16")  # number formats of real workers
STEP_TIMES: Final = ("auto", "whole_step", "op_table", "linear", "calibrated_roofline", "roofline")


@dataclass(frozen=True, slots=True)
class OverheadConfig:
    """The time that the engine adds to the operations of a step, and its source.

    ``step_s`` every step, ``per_layer_s`` for each layer (gaps between its kernels), ``per_sequence_s`` for
    each sequence, ``per_output_token_s`` for each token that decoding sequences have generated so far; with
    ``cuda_graphs`` small batches are padded to the captured sizes. ``error_s``: possible error of a step's
    overhead, if it was fitted (``servetwin.config.compose.overhead_file``).
    """

    step_s: float
    per_layer_s: float
    per_sequence_s: float
    cuda_graphs: bool
    source: str
    error_s: float | None = None
    per_output_token_s: float = 0.0


@dataclass(frozen=True, slots=True)
class EngineConfig:
    """One serving engine: the software and version imitated, its scheduler and its memory.

    ``usage_context``: selects vLLM's defaults of the two limits before it (``vllm_defaults``).
    ``kv_tokens`` and ``reserve_activation_bytes`` None: derived from GPU memory, of which ``reserved_blocks``
    are not usable. ``max_new_tokens`` caps requests whose trace gives no cap (None: at what context and
    KV memory leave); one without any cap is counted with ``expected_new_tokens``. ``profile`` is a file of
    operation tables (None: the catalogue's coefficients); ``profile_force`` uses it though it was changed or
    measured for another set-up. ``asynchronous``: the next step is chosen while the current one runs.
    ``max_model_len``: the longest context of a request in tokens (None: the model's).
    ``data_parallel_size``, ``enable_expert_parallel``, ``expert_skew``: of mixtures of experts
    (``hwmodels.models.parallelism``, ``hwmodels.step_times.expert_times``).
    ``loader`` and ``start_up``: entries of loaders.yaml, for replicas that do not start warm. ``reserve``:
    the output length that decode instances reserve memory for (``RESERVES``: the client's cap, the true
    length, which only an oracle knows, or the trace's mean). ``preemption``, ``swap_space_gib``: see
    ``servetwin.config.swapping``.
    """

    name: str
    software: str
    version: str
    batcher: str
    max_num_seqs: int
    max_num_batched_tokens: int
    usage_context: str
    reserve_full_prompt: bool
    asynchronous: bool
    prefix_caching: bool
    decode_spare_block: bool
    block_tokens: int
    watermark: float
    reserved_blocks: int
    kv_tokens: int | None
    gpu_memory_utilization: float
    reserve_activation_bytes: int | None
    max_new_tokens: int | None
    max_model_len: int | None
    reserve: str
    step_time: str
    profile: str | None
    profile_force: bool
    data_parallel_size: int
    enable_expert_parallel: bool
    expert_skew: float
    loader: str
    start_up: str
    overhead: OverheadConfig
    exact: bool
    preemption: str = RECOMPUTE
    swap_space_gib: float = SWAP_SPACE_GIB
    expected_new_tokens: int = EXPECTED_NEW_TOKENS


@dataclass(frozen=True, slots=True)
class PolicyConfig:
    """A policy class as ``module:Class``, and its constructor arguments."""

    name: str
    policy: str
    params: dict[str, Any]


@dataclass(frozen=True, slots=True)
class SystemConfig:
    """A serving system: one policy for every decision, and how many instances it has.

    ``scaler`` none: a static system, which needs neither ``provision`` nor ``cache``. ``live`` none: new
    instances wait for all their parameters. ``migration`` none: a request stays where it decodes.
    ``stages`` none: an instance has a whole model.
    """

    name: str
    dispatch: PolicyConfig
    batcher: PolicyConfig
    admission: PolicyConfig
    scaler: PolicyConfig
    provision: PolicyConfig
    cache: PolicyConfig
    live: PolicyConfig
    migration: PolicyConfig
    stages: PolicyConfig
    instances: InstancesConfig

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


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """A model of the hardware catalogue, ``tp`` GPUs per replica, or for each of its ``pp`` pipeline stages.

    ``pp_cut``: how its layers are cut (``hwmodels.models.stage_cuts``): a name, or the layers of each stage.
    ``checkpoint``: the folder from which real workers read its parameters; None: random parameters.
    ``dtype``: the number format of real workers.
    """

    name: str
    tp: int
    pp: int = 1
    pp_cut: str = "layers"
    checkpoint: str | None = None
    dtype: str = FLOAT32


@dataclass(frozen=True, slots=True)
class ClusterConfig:
    """``gpus`` GPUs of one type. ``topology``: the cluster file with the links between them, if any.

    ``start``: ``warm`` (parameters are loaded), or the source of every replica's first load (``STARTS``).
    ``links``: ``given``, or for cluster=local ``measured``: ``*_gbps`` then hold the rates of the calibration
    in ``engine.profile``.
    ``*_gbps``: a link's rate in Gbit/s in place of the cluster file's, so that a sweep can vary it.
    """

    name: str
    gpu: str
    gpus: int
    topology: str | None
    start: str
    links: str = GIVEN
    pcie_gbps: float | None = None
    nvlink_gbps: float | None = None
    nic_gbps: float | None = None
    ssd_gbps: float | None = None
    remote_gbps: float | None = None


@dataclass(frozen=True, slots=True)
class SloConfig:
    """Latency objectives of one request in milliseconds, and their source."""

    name: str
    ttft_ms: float
    tpot_ms: float
    source: str


@dataclass(frozen=True, slots=True)
class DriverConfig:
    """``carries_out``: which actions the simulated driver executes (``servetwin.assemble.capabilities``).

    None: all that it can; ``realexec``: those of real workers; else names of actions.
    """

    carries_out: str | None


ANY_DRIVER: Final = DriverConfig(None)
STAY: Final = PolicyConfig("none", "", {})


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything one run depends on. ``workers`` is None in a simulation.

    ``transport``: how real workers read each other's memory, of ``TRANSPORTS``; None: the first of
    `transports_asked` that the machine has. ``launcher``: starts the real workers, of ``LAUNCHERS``.
    ``device``: of real workers: cpu, cuda, or cuda:N.
    ``world``: of a real run, ``workers`` of this machine or ``http``, servers that already run. ``metrics``,
    ``log``: what a real run reports while it runs; ``log``: ``json``, a line for every decision.
    ``estimates``: what policies assume about speed: ``model`` (this run's own step times and links) or
    ``artefact`` (the constants that BlitzScale's authors ship). ``uncertainty``: ``on`` also evaluates the
    run at both ends of its step times' error (``servetwin.run.ends``), ``off`` does not.
    """

    kind: str
    engine: EngineConfig
    system: SystemConfig
    model: ModelConfig
    models: ModelsConfig
    cluster: ClusterConfig
    trace: TraceConfig
    slo: SloConfig
    series: SeriesConfig
    faults: FaultsConfig
    driver: DriverConfig
    migration: MigrationConfig
    pipeline: PipelineConfig
    estimates: str
    uncertainty: str
    seed: int
    journal: bool
    out: str
    overwrite: bool
    workers: int | None
    transport: str | None = None
    launcher: str = "local"
    ray: RayConfig = NO_RAY
    device: str = CPU
    world: str = WORKERS
    http: HttpConfig = NO_SERVERS
    metrics: MetricsConfig = NO_METRICS
    log: str | None = None
