"""The step times of each model for a simulated world."""

from collections.abc import Mapping, Sequence

from hwmodels.step_times.engine_overhead import EngineStepModel
from hwmodels.step_times.rows import FIXED_PER_S
from hwmodels.step_times.whole_step import WholeStepModel
from servetwin.assemble.hardware import Hardware
from serving.vocabulary.replica import Replica
from simcore.replica.step_times import StepTimes
from simcore.replica.whole_prompts import WholePrompts


def world_rows(hardware_of_model: Mapping[str, Hardware]) -> dict[str, StepTimes]:
    """Map each hosted model to the step times of one of its replicas."""
    return {model: _rows(hardware) for model, hardware in hardware_of_model.items()}


def rows_of_replicas(
    replicas: Sequence[Replica], hardware_of_model: Mapping[str, Hardware], rows: Mapping[str, StepTimes]
) -> list[StepTimes]:
    """Return the step times of each replica: those of its model, or of decode instances of other size."""
    decode = {
        model: _rows(hardware.decode)
        for model, hardware in hardware_of_model.items()
        if hardware.decode is not None
    }
    return [
        decode.get(replica.model, rows[replica.model]) if replica.role == "decode" else rows[replica.model]
        for replica in replicas
    ]


def _rows(hardware: Hardware) -> StepTimes:
    """Return rows that query the prompt length if an engine lays chunks out in their whole prompts."""
    step = hardware.step.operations if isinstance(hardware.step, EngineStepModel) else hardware.step
    if not isinstance(step, WholeStepModel) or step.blocks is None:
        return hardware.rows
    fixed, model = FIXED_PER_S * hardware.prompts_factor, step

    def beyond(start: int, end: int, known_tokens: int) -> int:
        return int(model.beyond_s(start, end, known_tokens) * fixed)

    return WholePrompts(hardware.rows, beyond)
