"""Worlds of models in stages in which things are lost, drawn from one seed (``tests.worlds.faulted``)."""

from random import Random

SYSTEMS = (
    "pipeline pipeline.replicas=2", "quart", "quart system.stages.placement=false", "quart pipeline.batch=2",
    "quart system.stages.defaults=released",
    "quart pipeline.live=true", "infless", "inferline", "cocktail pipeline.queue=replica",
)  # fmt: skip
# Language models, whose requests decode: of them batches, cores and queues are none to be chosen.
LANGUAGE_SYSTEMS = (
    "pipeline", "quart", "quart pipeline.moves=true", "quart pipeline.moves=true pipeline.live=true",
    "cocktail pipeline.moves=true pipeline.live=true system/provision=multicast",
    "quart pipeline.moves=true pipeline.recut=cv",
    "quart pipeline.moves=true pipeline.live=true pipeline.recut=cv",
    "quart system/provision=multicast", "infless", "inferline",
    "cocktail", "quart system.stages.defaults=released",
)  # fmt: skip
LANGUAGE_MODELS = (("llama_7b", 8), ("opt_13b", 5), ("llama2_13b pipeline.stages=3 pipeline.cut=layers", 4))
MODELS = (("whisper_9b", 12), ("llama_7b_pass", 14), ("bert_21b", 25))
CLUSTERS = ("quart_2x4", "quart_3x4", "quart_4x2", "quart")


def pass_words(seed: int) -> list[str]:
    """Of a model that answers in one pass: busy enough that replicas come and go."""
    random = Random(f"faulted stage world {seed}")
    (model, rate), cluster = random.choice(MODELS), random.choice(CLUSTERS)
    words = f"system={random.choice(SYSTEMS)} model={model} cluster={cluster} trace=gamma"
    words += (
        f" trace.gap_cv={random.choice([0.5, 1, 4])} trace.rate_per_s={rate * random.choice([0.5, 2, 4])}"
    )
    words += f" trace.requests={random.choice([60, 200, 400])} seed={random.randrange(1000)}"
    words += f" pipeline.cpu_cores={random.choice([1, 2, 4])} engine.gpu_memory_utilization=0.95"
    return words.split()


def language_words(seed: int) -> list[str]:
    """Of a model that decodes: losses meet requests on their paths, and replicas that come and go."""
    random = Random(f"faulted language stages {seed}")
    (model, rate), cluster = random.choice(LANGUAGE_MODELS), random.choice(("quart_3x4", "quart"))
    system = random.choice(LANGUAGE_SYSTEMS)
    words = f"system={system} model={model} cluster={cluster} trace=gamma"
    words += (
        f" trace.gap_cv={random.choice([0.5, 1, 4])} trace.rate_per_s={rate * random.choice([0.5, 2, 4])}"
    )
    words += f" trace.requests={random.choice([40, 80, 150])} seed={random.randrange(1000)}"
    words += f" trace.tokens_scale={random.choice([0.1, 0.3])} engine.max_num_seqs={random.choice([4, 64])}"
    return words.split()
