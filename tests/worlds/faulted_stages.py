"""Worlds of models in stages in which things are lost, drawn from one seed (``tests.worlds.faulted``)."""

from random import Random

SYSTEMS = (
    "pipeline pipeline.replicas=2", "quart", "quart system.stages.placement=false", "quart pipeline.batch=2",
    "quart system.stages.defaults=released", "infless", "inferline", "cocktail pipeline.queue=replica",
)  # fmt: skip
MODELS = (("whisper_9b", 12), ("llama_7b_pass", 14), ("bert_21b", 25))
CLUSTERS = ("quart_2x4", "quart_3x4", "quart_4x2", "quart")


def stage_words(seed: int) -> list[str]:
    """The words of a run, without its losses: busy enough that replicas come and go."""
    random = Random(f"faulted stage world {seed}")
    (model, rate), cluster = random.choice(MODELS), random.choice(CLUSTERS)
    words = f"system={random.choice(SYSTEMS)} model={model} cluster={cluster} trace=gamma"
    words += (
        f" trace.gap_cv={random.choice([0.5, 1, 4])} trace.rate_per_s={rate * random.choice([0.5, 2, 4])}"
    )
    words += f" trace.requests={random.choice([60, 200, 400])} seed={random.randrange(1000)}"
    words += f" pipeline.cpu_cores={random.choice([1, 2, 4])} engine.gpu_memory_utilization=0.95"
    return words.split()
