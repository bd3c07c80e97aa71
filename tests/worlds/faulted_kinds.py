"""Small worlds of every kind of replica in which things are lost, drawn from one seed."""

import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

from servetwin.run.prepared import Prepared
from tests.worlds.faulted import prepared_world
from tests.worlds.faulted_groups import group_words, mixture_file
from tests.worlds.faulted_losses import FAULTS, with_losses
from tests.worlds.faulted_migrations import migration_words
from tests.worlds.faulted_scalers import scaler_words
from tests.worlds.faulted_stages import language_words, pass_words
from tests.worlds.toy_mixture import SMALL

FOLDER = Path(tempfile.gettempdir())  # of the profile that worlds of mixtures need

STATIC = (
    "vllm", "vllm system/dispatch=least_kv system.instances.queue=per_instance",
    "vllm system/dispatch=round_robin", "vllm system.instances.queue=common system/dispatch=power_of_two",
    "vllm_full", "vllm_half",
)  # fmt: skip
SPLIT = (
    "distserve_full", "distserve_half", "distserve_full engine.max_num_seqs=4",
    "distserve_full system.instances.prefill=2 system.instances.decode=6",
    "distserve_full engine.reserve=mean",
    "distserve_full system/dispatch=convertible system.dispatch.ttft_ms=1 system.dispatch.tpot_ms=1000 "
    "system.dispatch.decoders=3 system.dispatch.chunk_tokens=16",
    "distserve_half system/dispatch=convertible system.dispatch.ttft_ms=50",
    "llumnix_v2", "llumnix_v2 system.dispatch.tpot_ms=12 system.migration.tpot_ms=13 migration.period_ms=20",
    "llumnix_v2 system.dispatch.tpot_ms=6 system.migration.tpot_ms=12 engine.max_num_seqs=3",
    "llumnix_v2 system/migration=none system.dispatch.tpot_ms=12",
    "distserve_half system/dispatch=convertible system.dispatch.ttft_ms=20 engine.reserve=mean",
)  # fmt: skip
ELASTIC = (
    "serverlessllm", "allcache", "pipeswitch", "blitz_network", "blitz_multicast",
    "serverlessllm system.instances.split=false system.instances.queue=per_instance",
    "blitz_multicast system.instances.split=false", "serverlessllm system/cache=pool",
    "serverlessllm engine.start_up=vllm system.instances.start=cold",
)  # fmt: skip
LIVE = (
    "blitzscale", "lambdascale", "blitzscale system/live=best_effort", "blitzscale system/live=ilp",
    "blitzscale system/live=stop", "blitzscale system.instances.split=false",
    "blitzscale system.instances.split=false system/live=best_effort",
    "blitzscale system.live.embedding=source system.live.tails_only=false",
)  # fmt: skip
TRACES = (
    "trace=azure_code_like trace.rate_scale=4", "trace=burstgpt_like trace.rate_scale=4",
    "trace=azure_conv_like trace.rate_scale=3", "trace=gamma trace.rate_per_s=12",
)  # fmt: skip
SMALL_CLUSTERS = (
    "blitz_a_1x4", "blitz_b_1x4", "blitz_a_2x4", "blitz_b_2x4", "blitz_b_4x2", "dgx_h100_2x4",
)  # fmt: skip
CLUSTERS = (
    "blitz_a_2x4", "blitz_b_2x4", "blitz_b_4x2", "blitz_a_3x4", "blitz_b_2x8", "p4d_24xlarge_2x8",
    "dgx_h100_2x4", "llumnix_4x4", "blitz_a_4x2",
)  # fmt: skip
ENGINES = (
    "vllm_v1", "vllm_v1 engine.asynchronous=false", "vllm_v1 engine.reserve_full_prompt=false", "vllm_v0",
    "vllm_v0 system/batcher=chunked_prefill", "distserve", "blitz_native",
)  # fmt: skip


def _some(random: Random) -> str:
    """A short workload."""
    words = f"{random.choice(TRACES)} trace.tokens_scale={random.choice([0.1, 0.3])}"
    return f"{words} trace.limit={random.choice([10, 20, 40])} seed={random.randrange(1000)}"


def _dense(random: Random, parts: int = 1) -> str:
    """A short workload that keeps replicas busy; sometimes their memory, in ``parts``, is short."""
    trace = random.choice(("azure_conv_like", "azure_code_like", "gamma"))
    words = f"trace={trace} trace.requests={random.choice([8, 16, 30])} seed={random.randrange(1000)}"
    words += f" trace.rate_per_s={random.choice([3, 10, 40])} trace.tokens_scale={random.choice([0.1, 0.3])}"
    if random.random() < 0.4:
        words += f" engine.max_new_tokens=256 engine.kv_tokens={parts * random.choice([1200, 2400])}"
        words += " engine.max_model_len=1000"
    elif random.random() < 0.3:
        words += f" engine.max_num_seqs={random.choice([2, 4])}"
    return words


def static(random: Random) -> str:
    """Replicas that stay and do both, of every engine."""
    cluster = random.choice((*SMALL_CLUSTERS, "a100_x2"))
    engine = random.choice(ENGINES)
    return f"system={random.choice(STATIC)} engine={engine} cluster={cluster} {_dense(random)}"


def swapping(random: Random) -> str:
    """Preempted requests go to host memory and back."""
    words = f"{_dense(random)} engine.max_new_tokens=256 engine.kv_tokens=1200 engine.max_model_len=1000"
    words += f" engine.preemption=swap engine.swap_space_gib={random.choice([0.05, 4])}"
    return f"system=vllm engine={random.choice(['vllm_v0', 'vllm_0_1_7'])} cluster=blitz_a_1x4 {words}"


def shared_prefixes(random: Random) -> str:
    """Prompts begin as others did, and engines find them."""
    system = random.choice(("vllm", "vllm system/dispatch=prefix_aware", "vllm system/dispatch=round_robin"))
    words = f"system={system} cluster={random.choice(SMALL_CLUSTERS)} trace=multi_turn"
    words += f" trace.requests={random.choice([20, 40])} trace.rate_per_s={random.choice([5, 20])}"
    words += f" trace.tokens_scale=0.2 engine.kv_tokens={random.choice([4000, 40000])}"
    words += f" engine.max_model_len=3500 engine.max_new_tokens=400 seed={random.randrange(1000)}"
    return f"{words} engine.asynchronous={random.choice(['true', 'false'])}"


def cut_by_layers(random: Random) -> str:
    """``model.pp`` as vLLM's v1 runs it: one scheduler, several micro-batches in flight."""
    cluster = random.choice((*SMALL_CLUSTERS, "h100_x4"))
    words = f"system={random.choice(STATIC[:4])} model.pp={random.choice([2, 2, 4])} cluster={cluster}"
    words += (
        f" model.pp_cut={random.choice(['layers', 'bytes', 'time', '20+12' if 'pp=2' in words else 'time'])}"
    )
    if random.random() < 0.3:
        words += f" engine.max_num_batched_tokens={random.choice([64, 256])}"
    return f"{words} engine.asynchronous=false {_dense(random)}"


def virtual_engines(random: Random) -> str:
    """``model.pp`` as vLLM's v0 runs it: a scheduler with memory of its own for every stage."""
    cluster = random.choice((*SMALL_CLUSTERS, "h100_x4"))
    stages = random.choice([2, 2, 4])
    words = f"system={random.choice(STATIC[:4])} engine=vllm_v0 model.pp={stages} cluster={cluster}"
    return f"{words} {_dense(random, stages)}"


def mixtures(random: Random) -> str:
    """A mixture of experts, whose engines run apart."""
    words = f"{' '.join(SMALL)} engine.profile={mixture_file(FOLDER)} engine.profile_force=true"
    words += f" system={random.choice(STATIC[:3])} cluster=blitz_b_1x4 seed={random.randrange(1000)}"
    words += f" trace.requests={random.choice([10, 30])} trace.rate_per_s={random.choice([20, 100])}"
    return words


def priorities(random: Random) -> str:
    """Some requests have a high priority, and others make room for them."""
    words = f"system={random.choice(STATIC[:4])} system.instances.scheduling_policy=priority"
    words += f" trace.high_priority_share={random.choice([0.1, 0.5])} cluster={random.choice(SMALL_CLUSTERS)}"
    return f"{words} engine={random.choice(ENGINES[:5])} {_dense(random)}"


def split(random: Random) -> str:
    """Prefill and decode instances that stay."""
    return f"system={random.choice(SPLIT)} cluster={random.choice(CLUSTERS[:7])} {_some(random)}"


def elastic(random: Random) -> str:
    """Instances that come and go."""
    return f"system={random.choice(ELASTIC)} cluster={random.choice(CLUSTERS)} {_some(random)}"


def metrics(random: Random) -> str:
    """Instances that come and go by metrics, as monitoring has them."""
    return f"{scaler_words(random)} cluster={random.choice(CLUSTERS)} {_some(random)}"


def live(random: Random) -> str:
    """Instances that work while they load."""
    return f"system={random.choice(LIVE)} cluster={random.choice(CLUSTERS)} {_some(random)}"


def cold(random: Random) -> str:
    """Static replicas that load first."""
    start = random.choice(("ssd", "host", "remote"))
    cluster = "a3_highgpu_8g" if start == "remote" else random.choice(("blitz_a_2x4", "blitz_b_2x4"))
    return f"system=vllm cluster={cluster} cluster.start={start} {_some(random)}"


def many_models(random: Random) -> str:
    """Several models share a cluster."""
    words = f"models=zipf models.count={random.choice([2, 4])} models.requests={random.choice([20, 50])}"
    words += f" models.rate_per_s={random.choice([4, 12])} trace=azure_conv_like trace.tokens_scale=0.2"
    system = random.choice(("vllm", "blitzscale", "serverlessllm", "blitz_multicast"))
    if system != "vllm" and random.random() < 0.4:
        system += " system.instances.prefill_min=0 system.instances.decode_min=0"
    return f"system={system} cluster={random.choice(CLUSTERS[:5])} {words} seed={random.randrange(1000)}"


def clients(random: Random) -> str:
    """A closed loop: a client sends its next request when its last has ended."""
    words = f"trace.clients={random.choice([2, 8])} trace.client_think_s={random.choice([0, 0.2])}"
    system = random.choice(("vllm", "vllm_half", "distserve_full", "blitzscale", "vllm model.pp=2"))
    if "pp" in system:
        system += " engine.asynchronous=false"
    words += f" trace=azure_conv_like trace.requests={random.choice([10, 30])} trace.tokens_scale=0.2"
    return (
        f"system={system} cluster={random.choice(SMALL_CLUSTERS[1:])} {words} seed={random.randrange(1000)}"
    )


def decode_migration(random: Random) -> str:
    """Running requests move between decode instances."""
    system = random.choice(("distserve_full", "distserve_half", "distserve_full", "blitz_multicast"))
    rule = random.choice(("least_loaded", "defragment"))
    if system == "distserve_full":
        system += " system.instances.prefill=2 system.instances.decode=6"
    words = f"system={system} system/migration={rule} cluster={random.choice(('blitz_b_2x4', 'blitz_b_2x8'))}"
    words += f" migration.period_ms={random.choice([20, 50])} engine.max_num_seqs={random.choice([3, 16])}"
    return f"{words} {_some(random)}"


def migration(random: Random) -> str:
    """Llumnix: running requests move between instances."""
    words = " ".join(migration_words(random.getrandbits(31)))
    return f"{words} trace.requests={random.choice([10, 20, 40])} trace.tokens_scale=0.2"


def passes(random: Random) -> str:
    """Models in stages that answer in one pass (QUART)."""
    return f"{' '.join(pass_words(random.getrandbits(31)))} trace.requests={random.choice([30, 60])}"


def language_stages(random: Random) -> str:
    """Language models whose stages are replicas (QUART)."""
    return f"{' '.join(language_words(random.getrandbits(31)))} trace.requests={random.choice([15, 30])}"


def groups(random: Random) -> str:
    """Data-parallel groups: ranks whose steps begin together."""
    words = " ".join(group_words(random.getrandbits(31), FOLDER))
    return f"{words} trace.requests={random.choice([10, 30])}"


KINDS: dict[str, Callable[[Random], str]] = {
    kind.__name__: kind
    for kind in (
        static, swapping, shared_prefixes, cut_by_layers, virtual_engines, mixtures, groups, priorities,
        split, elastic, metrics, live, cold, many_models, clients, decode_migration, migration, passes,
        language_stages,
    )
}  # fmt: skip


@dataclass(frozen=True)
class World:
    """``words``: of the run, with its losses; ``prepared``: the same."""

    kind: str
    fault: str
    words: list[str]
    prepared: Prepared


def world_of(seed: int, kinds: Sequence[str] = (), faults: Sequence[str] = ()) -> World:
    """Consecutive seeds go through all pairs of a kind of replica and a kind of loss, or of those named."""
    kinds, faults = kinds or list(KINDS), faults or FAULTS
    kind, fault = kinds[seed % len(kinds)], faults[seed // len(kinds) % len(faults)]
    words = kind_words(kind, seed)
    losses, prepared = with_losses(seed, prepared_world(words), fault)
    return World(kind, fault, [*words, *losses], prepared)


# What can be aborted: neither stages nor micro-batches in flight.
_GIVE_UP = frozenset(KINDS) - {"passes", "language_stages", "cut_by_layers", "virtual_engines"}


def _clients_that_give_up(kind: str, words: Sequence[str], random: Random) -> list[str]:
    """In one world of three, clients that wait only so long, and may send again."""
    if kind not in _GIVE_UP or any(word.startswith("model.pp=") for word in words) or random.random() > 0.34:
        return []
    wait_s = random.choice([0.05, 0.3, 1, 1, 3, 3, 10])
    found = [f"trace.client_timeout_s={wait_s}", f"trace.retries={random.choice([0, 0, 1, 2])}"]
    return [*found, f"trace.retry_wait_s={random.choice([0, 0, 0.2])}"]


def kind_words(kind: str, seed: int) -> list[str]:
    """The words of a small world of a kind, without its losses. Of a key that comes twice the last counts."""
    found = dict[str, str]()
    for word in KINDS[kind](Random(f"faulted {kind} {seed}")).split():
        found[word.partition("=")[0]] = word
    words = [*found.values(), *([] if "uncertainty" in found else ["uncertainty=off"])]
    return words + _clients_that_give_up(kind, words, Random(f"give up {kind} {seed}"))
