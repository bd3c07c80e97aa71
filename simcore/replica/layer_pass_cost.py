"""A pass over some of a model's layers: its cost, and the conditions on its run."""

from serving.vocabulary.actions import Run, Span
from simcore.replica.part_steps import layers_fixed
from simcore.replica.stage_times import StageTimes
from simcore.replica.step_times import StepTimes


def layer_pass_cost_fixed(rows: StepTimes, run: Run, own: Span, model_layers: int) -> int:
    """Fixed-point cost of the one step of a ``run`` with layers, on a replica that holds layers ``own``.

    ``rows`` are those of a replica with all ``model_layers``.
    """
    assert run.layers is not None
    first, last = run.layers
    assert 0 <= first < last <= model_layers, (
        f"replica {run.replica} is to run layers {first} to {last} of a model that has {model_layers}"
    )
    assert own[0] <= first and last <= own[1], (
        f"replica {run.replica} is to run layers {first} to {last}, and holds layers {own[0]} to {own[1]}"
    )
    assert run.chunks and not run.decode and run.max_steps == 1, (
        f"replica {run.replica} is to run layers {first} to {last}: "
        "write one step, with prompts and without decodes"
    )
    if isinstance(rows, StageTimes):
        return rows.gpu_fixed(run.chunks, run.layers)
    whole = rows.mixed(0, 0, run.chunks)
    cost = layers_fixed(whole, first, last, model_layers)
    assert cost > 0, (
        f"a pass of {whole} units of fixed point is too short to be cut into {model_layers} layers"
    )
    return cost
