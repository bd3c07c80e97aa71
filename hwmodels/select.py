"""Pick the best rung of the step-time ladder that exists for a (GPU, model, tensor-parallel size)."""

from typing import Literal, get_args

from hwmodels.catalogue import load_all_reduce
from hwmodels.errors import HardwareError
from hwmodels.gpu import Gpu
from hwmodels.linear_catalogue import LinearKey, linear_keys, linear_step_model
from hwmodels.llm_shape import LlmShape
from hwmodels.roofline_step import roofline_step_model
from hwmodels.step_time import StepModel

StepModelKind = Literal["auto", "linear", "roofline"]


def step_model(kind: str, gpu: Gpu, llm: LlmShape, tp: int, overhead_s: float) -> StepModel:
    """The step model of one replica of ``llm`` on ``tp`` of ``gpu``.

    ``kind`` 'auto' takes 'linear' where coefficients exist for exactly this GPU, model and tp, else
    'roofline'. ``overhead_s``: engine time per step beside the operations (scheduler, sampler, launches).
    """
    if kind not in get_args(StepModelKind):
        raise HardwareError(f"unknown step model {kind!r}; write one of {', '.join(get_args(StepModelKind))}")
    llm.require_tp(tp)
    key = LinearKey(gpu.name, llm.name, tp)
    if kind == "linear" or (kind == "auto" and key in linear_keys()):
        return linear_step_model(key, overhead_s)
    return roofline_step_model(gpu, llm, tp, overhead_s, load_all_reduce(gpu.name))
