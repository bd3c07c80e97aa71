"""Tokens of the step engine equal those of one undisturbed `generate`, whatever the chunks and neighbours."""

import random
from itertools import pairwise

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

from realexec.driver.verify import check_tokens, reference_tokens
from realexec.model.model_runner import DecodeRow, ModelRunner, padded_rows
from realexec.model.models import build_model
from realexec.worker.step_engine import StepEngine
from realexec.world.report import Generation
from serving.vocabulary.errors import UserError
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

SEED = 3
BATCH_SIZE = 4


def prompt(tokens: int) -> tuple[int, ...]:
    draw = random.Random(tokens)
    return tuple(draw.randrange(TINY["vocab_size"]) for _ in range(tokens))


def engine(model: dict = TINY, batch_size: int = BATCH_SIZE) -> StepEngine:
    return StepEngine(ModelRunner(model, SEED, batch_size))


def chunks(request: int, bounds: list[int]) -> list[tuple[int, int, int]]:
    return [(request, start, end - start) for start, end in pairwise(bounds)]


class Outputs:
    """Steps an engine and collects every request's tokens."""

    def __init__(self, steps: StepEngine) -> None:
        self.steps = steps
        self.tokens: dict[int, list[int]] = {}

    def step(self, *parts: tuple[int, int, int], decode: bool = True) -> tuple[int, ...]:
        sampled, finished = self.steps.step(parts, decode)
        for request, token in sampled.items():
            self.tokens.setdefault(request, []).append(token)
        return finished


@pytest.mark.parametrize(
    "bounds",
    [
        [0, 1],
        [0, 1, 2],
        [0, 37],
        [0, 1, 2, 3, 5, 9, 17, 33, 37],
        [0, 36, 37],
        [0, 31, 64, 97, 130],
        [0, 100, 259],
        [0, 799, 800],
        [0, 300, 513, 1100],
    ],
)
@pytest.mark.parametrize("batch_size", [1, 4])
def test_chunk_boundaries_change_no_token(bounds: list[int], batch_size: int) -> None:
    ids, new_tokens = prompt(bounds[-1]), 6
    outputs = Outputs(engine(batch_size=batch_size))
    outputs.steps.assign(0, ids, (), new_tokens)
    for chunk in chunks(0, bounds):
        outputs.step(chunk)
    while not outputs.step():
        pass
    expected = reference_tokens(build_model(TINY, SEED), ids, new_tokens, batch_size)
    assert tuple(outputs.tokens[0]) == expected
    assert len(set(expected)) > 1, "a model that repeats one token proves little"


@pytest.mark.parametrize("bounds", [[0, 1, 4, 35], [0, 100, 101, 500], [0, 130, 700, 1100, 1500]])
def test_chunks_leave_the_same_bits_in_the_kv(bounds: list[int]) -> None:
    """Stronger than equal tokens, which a difference in the last bits seldom changes."""
    import torch

    if torch.backends.cpu.get_cpu_capability() not in ("AVX2", "AVX512"):
        pytest.skip("measured with the kernels of these instruction sets only")
    runner, ids = ModelRunner(TINY, SEED, BATCH_SIZE), prompt(bounds[-1])
    whole, parts = runner.new_kv(len(ids)), runner.new_kv(len(ids))
    expected = runner.prefill(ids, 0, len(ids), whole)
    for start, end in pairwise(bounds):
        last = runner.prefill(ids[start:end], start, len(ids), parts)
    assert torch.equal(last, expected)
    for layer in range(TINY["num_hidden_layers"]):
        for ours, theirs in zip(parts.read(layer, len(ids)), whole.read(layer, len(ids))):
            assert torch.equal(ours, theirs)


def test_neighbours_leave_the_same_bits_in_the_kv() -> None:
    import torch

    runner = ModelRunner(TINY, SEED, BATCH_SIZE)

    def decoded(neighbours: int) -> torch.Tensor:
        rows = []
        for length in [30, *range(7, 7 + neighbours)]:
            kv = runner.new_kv(length + 1)
            runner.prefill(prompt(length), 0, length, kv)
            rows.append(DecodeRow(11, length, kv))
        runner.decode(rows)
        return torch.stack([part for layer in range(3) for part in rows[0].kv.read(layer, 31)])

    alone = decoded(0)
    assert torch.equal(decoded(1), alone) and torch.equal(decoded(3), alone)


@pytest.mark.parametrize("family", ["mistral", "qwen2", "qwen3"])
def test_other_families_run_through_the_same_layers(family: str) -> None:
    model = {**TINY, "model_type": family}
    if family == "mistral":
        model["sliding_window"] = None
    outputs = Outputs(engine(model))
    outputs.steps.assign(0, prompt(40), (), 8)
    for chunk in chunks(0, [0, 7, 40]):
        outputs.step(chunk)
    while not outputs.step():
        pass
    assert tuple(outputs.tokens[0]) == reference_tokens(build_model(model, SEED), prompt(40), 8, BATCH_SIZE)


def test_neighbours_change_no_token() -> None:
    """Requests come, share mixed steps, finish at different times, and a late one takes a freed row."""
    lengths = {0: (50, 12), 1: (1, 5), 2: (33, 20), 3: (70, 9), 4: (18, 1), 5: (64, 7)}
    outputs = Outputs(engine())
    for request, (tokens, new_tokens) in lengths.items():
        outputs.steps.assign(request, prompt(tokens), (), new_tokens)
    outputs.step((0, 0, 50), (1, 0, 1))
    outputs.step((2, 0, 16))
    assert outputs.step((2, 16, 17), (4, 0, 18)) == (4,)
    outputs.step((3, 0, 70), decode=False)
    assert [len(outputs.tokens[request]) for request in (0, 1, 2, 3)] == [3, 3, 1, 1]
    finished = [outputs.step(), outputs.step()]
    assert (1,) in finished
    outputs.step((5, 0, 63))
    outputs.step((5, 63, 1))
    while outputs.steps.has_residents():
        outputs.step()
    generations = [
        Generation(request, prompt(tokens), tuple(outputs.tokens[request]), new_tokens)
        for request, (tokens, new_tokens) in lengths.items()
    ]
    assert [len(one.tokens) for one in generations] == [new for _, new in lengths.values()]
    check = check_tokens(TINY, SEED, BATCH_SIZE, generations)
    assert (check.tokens_checked, check.tokens_different, check.first_difference) == (54, 0, None)


def test_recompute_keeps_tokens_and_is_counted_apart() -> None:
    outputs = Outputs(engine())
    outputs.steps.assign(0, prompt(20), (), 10)
    outputs.step((0, 0, 20))
    outputs.step()
    outputs.step()
    outputs.steps.drop_kv(0)
    assert not outputs.steps.has_residents()
    outputs.step((0, 0, 11))
    outputs.step((0, 11, 12))  # 20 prompt tokens and the 3 generated ones
    while outputs.steps.has_residents():
        outputs.step()
    generation = Generation(0, prompt(20), tuple(outputs.tokens[0]), 3)
    check = check_tokens(TINY, SEED, BATCH_SIZE, [generation])
    assert (check.tokens_checked, check.tokens_different, check.tokens_recomputed) == (3, 0, 7)
    # On CPU kernels these few tokens do not flip; what a recompute is allowed to change is the last bits.
    assert check.recomputed_different == 0


def test_token_check_finds_a_wrong_token() -> None:
    expected = reference_tokens(build_model(TINY, SEED), prompt(9), 5, BATCH_SIZE)
    wrong = (*expected[:2], (expected[2] + 1) % TINY["vocab_size"], *expected[3:])
    check = check_tokens(TINY, SEED, BATCH_SIZE, [Generation(8, prompt(9), wrong, 5)])
    assert (check.tokens_checked, check.tokens_different) == (5, 3)
    assert check.first_difference is not None and check.first_difference.startswith("token 2 of request 8 is")
    apart = check_tokens(TINY, SEED, BATCH_SIZE, [Generation(8, prompt(9), wrong, 1)])
    assert (apart.tokens_different, apart.recomputed_different) == (0, 3)


def test_a_chunk_must_continue_what_is_computed() -> None:
    steps = engine()
    steps.assign(0, prompt(10), (), 2)
    with pytest.raises(ValueError, match="does not continue its 0 computed of 10"):
        steps.step([(0, 4, 3)], True)
    with pytest.raises(ValueError, match=r"chunk \[0, 11\)"):
        steps.step([(0, 0, 11)], True)


def test_more_residents_than_rows_decode_in_several_batches() -> None:
    outputs = Outputs(engine(batch_size=2))
    lengths = {0: 3, 1: 9, 2: 4}
    for request, tokens in lengths.items():
        outputs.steps.assign(request, prompt(tokens), (), 4)
    outputs.step(*[(request, 0, tokens) for request, tokens in lengths.items()])
    while outputs.steps.has_residents():
        outputs.step()
    reference = build_model(TINY, SEED)
    for request, tokens in lengths.items():
        assert tuple(outputs.tokens[request]) == reference_tokens(reference, prompt(tokens), 4, 2)


def test_padding_follows_the_reference_up_to_where_kernels_stop_being_special() -> None:
    assert padded_rows(1, 1, 1) == 1
    assert padded_rows(1, 1, 4) == 4
    assert padded_rows(1, 500, 4) == 16
    assert padded_rows(200, 500, 4) == 208
    assert padded_rows(200, 500, 1) == 200


@pytest.mark.parametrize(
    "keys, words",
    [
        ({"hidden_sise": 64}, "model.hidden_sise is not a key"),
        ({"model_type": "bert"}, "model.model_type is 'bert'"),
        ({"model_type": "mistral", "sliding_window": 128}, "model.sliding_window is 128"),
    ],
)
def test_wrong_models_are_refused_in_words(keys: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        build_model({**TINY, **keys}, SEED)


def test_weights_depend_on_the_seed_alone() -> None:
    import torch

    first, again, other = (build_model(TINY, seed).state_dict() for seed in (1, 1, 2))
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["lm_head.weight"], other["lm_head.weight"])
