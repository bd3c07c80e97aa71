"""A pass over some of a model's layers: what it costs, and what a run must be to be one."""

from serving.vocabulary.actions import Run
from simcore.replica.step_times import StepTimes


def layer_pass_fixed(rows: StepTimes, run: Run, model_layers: int) -> int:
    """Fixed-point cost of the one step of a ``run`` with layers [first, last) of ``model_layers``.

    Every layer takes the same part of the pass over all of them. Where it does not divide, whoever runs a
    layer takes what the layers up to it have grown by, so the parts of a split add up to the whole exactly.
    What is no layer (embedding, head, launching the step) is spread over the layers alike.
    """
    assert run.layers is not None
    first, last = run.layers
    assert 0 <= first < last <= model_layers, (
        f"replica {run.replica} is to run layers {first} to {last} of a model that has {model_layers}"
    )
    assert run.chunks and not run.decode and run.max_steps == 1, (
        f"replica {run.replica} is to run layers {first} to {last}: "
        "write one step, with prompts and without decodes"
    )
    whole = rows.mixed(0, 0, run.chunks)
    cost = whole * last // model_layers - whole * first // model_layers
    assert cost > 0, (
        f"a pass of {whole} units of fixed point is too short to be cut into {model_layers} layers"
    )
    return cost
