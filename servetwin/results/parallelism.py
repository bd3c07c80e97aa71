"""Why an instance has several GPUs if the user did not set their number."""

from hwmodels.catalogue import load_gpu
from hwmodels.catalogue.stacks import is_stack
from hwmodels.gpus.gpu import Gpu
from hwmodels.models.llm_shape import LlmShape
from servetwin.assemble.hardware import precision_of, reserve_bytes
from servetwin.assemble.hosted import run_shape
from servetwin.config.config import RunConfig
from servetwin.config.options import option_file, option_groups

GB = 1e9


def gpus_of_an_instance(config: RunConfig) -> str:
    """Return a sentence if the model's default tensor parallelism is above 1; "" if the user set another."""
    model = config.model
    if config.models.name != "one" or model.tp == 1 or is_stack(model.name):
        return ""
    if model.tp_of_roles != (model.tp, model.tp):
        return ""  # the user set those that run
    if model.name not in option_groups()["model"] or option_file("model", model.name)["tp"] != model.tp:
        return ""
    gpu, llm = load_gpu(config.cluster.gpu), run_shape(config)
    whose = "a pipeline stage" if model.pp > 1 else "an instance"
    return (
        f"{whose} is {model.tp} GPUs (model.tp={model.tp}, the default of model={model.name}): "
        f"{llm.weight_bytes / GB:.1f} GB of weights in {precision_of(llm)} {_on_one(gpu, llm, config)}"
    )


def _on_one(gpu: Gpu, llm: LlmShape, config: RunConfig) -> str:
    """Describe the weights on a single GPU."""
    usable = int(gpu.memory_bytes * config.engine.gpu_memory_utilization)
    usable -= reserve_bytes(config.engine, gpu, llm, 1)
    size = f"one {gpu.name} ({gpu.memory_bytes / GB:.1f} GB)"
    kv_bytes = usable - llm.weight_bytes
    return f"do not fit {size}" if kv_bytes <= 0 else f"leave {kv_bytes / GB:.1f} GB for KV on {size}"
