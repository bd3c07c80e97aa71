"""Several models in one cluster: each request is served by its own model's replicas, at their speed."""

from policies.admission import AdmitAll
from policies.batching import ChunkedPrefill
from policies.dispatch import LeastOutstanding
from serving.composition import compose
from serving.vocabulary.layers import LayerRange
from serving.vocabulary.replica import Replica
from serving.vocabulary.request import Request
from simcore.simulation import Simulation
from tests.worlds.strategies import NS
from tests.worlds.toy_rows import ToyRows
from tests.worlds.world import Checked, Collected

SLOW = ToyRows(intercept=2_000_000 * NS, per_sequence=0, slope=0, mixed_intercept=1, per_token=0)
FAST = ToyRows(intercept=1_000_000 * NS, per_sequence=0, slope=0, mixed_intercept=1, per_token=0)


def test_each_model_is_served_by_its_own_replicas() -> None:
    models = ["slow", "fast", "fast", "slow"]
    replicas = [
        Replica(id=id, model=model, layers=LayerRange(0, 4), gpus=(id,), kv_blocks=64)
        for id, model in enumerate(models)
    ]
    controller = compose(replicas, LeastOutstanding(), lambda _: ChunkedPrefill(8, 64), admission=AdmitAll())
    # 11 output tokens are one from the prompt and ten decode steps, alone on a replica each.
    requests = [
        (Request(id, 0, 4, 100, model), 11)
        for id, model in enumerate(["fast", "slow", "slow", "fast", "other"])
    ]
    recorder = Collected()
    rows = [SLOW if model == "slow" else FAST for model in models]
    Simulation(Checked(controller), requests, rows, recorder).run()  # type: ignore[arg-type]

    assert {id: facts[0] for id, facts in recorder.done.items()} == {0: 1, 1: 0, 2: 3, 3: 2}
    decode_ms = {id: (facts[3] - facts[2]) / 1e6 for id, facts in recorder.done.items()}
    assert decode_ms == {0: 10.0, 1: 20.0, 2: 20.0, 3: 10.0}
    assert recorder.refusals == {4: "model other is not served"}
