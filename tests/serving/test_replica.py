"""A replica on other GPUs is the same in everything else."""

from dataclasses import MISSING, fields, replace

from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica

# No field has its default, so none can be forgotten.
PROTOTYPE = Replica(
    id=-1,
    model="m",
    layers=LayerRange(2, 7),
    gpus=(0, 1),
    kv_blocks=64,
    block_tokens=8,
    watermark_blocks=3,
    prefix_caching=True,
    role="decode",
    max_model_len=99,
    kv_pools=2,
    swap_blocks=5,
    swap_block_ns=7,
    sequence_blocks=1,
)


def test_a_replica_on_other_gpus_differs_in_its_number_and_them_alone() -> None:
    assert PROTOTYPE.on(4, (6, 7)) == replace(PROTOTYPE, id=4, gpus=(6, 7))
    for field in fields(PROTOTYPE):
        assert field.default is MISSING or getattr(PROTOTYPE, field.name) != field.default
