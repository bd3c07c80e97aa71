"""Parameters, KV and hidden states move between workers while requests run, and no token differs."""

import pytest

from tests.worlds.refusals import refuses

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from realexec.driver.verify import reference_tokens
from realexec.model.kv import KvFull
from realexec.model.models import build_model
from tests.worlds.moved_state import (
    BATCH_SIZE,
    SEED,
    SIX_LAYERS,
    InProcessWorker,
    prompt,
    together,
)

pytestmark = pytest.mark.real

LAYERS = 6
TIED = {**SIX_LAYERS, "tie_word_embeddings": True}


def expected(
    lengths: dict[int, tuple[int, int]], model: dict = SIX_LAYERS, batch_size: int = BATCH_SIZE
) -> dict[int, list[int]]:
    """Of (prompt, output) lengths by request, what one undisturbed worker generates."""
    reference = build_model(model, SEED)
    tokens = {
        request: list(reference_tokens(reference, prompt(request, length), new_tokens, batch_size))
        for request, (length, new_tokens) in lengths.items()
    }
    assert all(len(set(row)) > 1 for row in tokens.values() if len(row) > 4), "all equal: proves little"
    return tokens


def test_a_live_load_changes_no_token() -> None:
    """12 requests while 6 layers come from a peer: k layers here, the others there, for every k."""
    source, target = InProcessWorker(), InProcessWorker(filled=False)
    lengths = {request: (5 + 31 * request, 12) for request in range(12)}
    target.pull_unit(0, source)
    for request, (length, new_tokens) in lengths.items():
        for worker in (source, target):
            worker.engine.assign(request, prompt(request, length), (), new_tokens)
        here = request // 2 + 1  # 1 to 6 layers
        if request % 2 == 0:
            target.pull_unit(here, source)
        if here == LAYERS:
            target.pull_unit(LAYERS + 1, source)
        chunk = [(request, 0, length)]
        for layer in range(here):  # a layer at a time, as they come
            target.run_layers(chunk, (layer, layer + 1))
        if here == LAYERS:
            assert len(target.tokens[request]) == 1
            continue
        source.pull_hidden(request, target)
        source.run_layers(chunk, (here, LAYERS))
        assert not source.engine.held(request).decoding, "its first layers' KV is not here yet"
        if request % 2:  # goes on where its last layers ran, or on the one that loads
            source.pull_kv(request, target, (0, here), (0, length))
    for request in range(12):
        length, first = lengths[request][0], together([target, source])[request]
        if request >= 10:
            target.engine.join({request: first})
        elif request % 2:
            target.engine.forget(request)
            source.engine.join({request: first})
        else:  # to be joined when all its layers are there
            target.pull_kv(request, source, (request // 2 + 1, LAYERS), (0, length))
            target.engine.join({request: first})
            source.engine.forget(request)
    target.decode_to_the_end()
    source.decode_to_the_end()
    found = together([source, target])
    assert found == expected(lengths)
    assert sum(len(row) for row in found.values()) == 144


@pytest.mark.parametrize("wanted_layers", [[(0, 6)], [(0, 1), (1, 6)], [(3, 6), (0, 3)]])
def test_hand_over_after_the_prompt_changes_no_token(wanted_layers: list[tuple[int, int]]) -> None:
    prefill, decode = InProcessWorker(), InProcessWorker()
    lengths = {0: (50, 9), 1: (700, 12), 2: (1, 6), 3: (33, 1)}
    for request, (length, new_tokens) in lengths.items():
        prefill.engine.assign(request, prompt(request, length), (), new_tokens)
    assert prefill.step((0, 0, 50), (1, 0, 300), hand_over=True) == ()
    assert prefill.step((1, 300, 400), (2, 0, 1), (3, 0, 33), hand_over=True) == (3,)
    assert not prefill.engine.has_residents()
    free = prefill.arena.free_bytes
    for request in range(3):
        length, new_tokens = lengths[request]
        decode.engine.assign(request, prompt(request, length), prefill.tokens[request], new_tokens - 1)
        for layers in wanted_layers:
            decode.pull_kv(request, prefill, layers, (0, length))
        decode.engine.join({request: prefill.tokens[request]})
        prefill.engine.forget(request)
    assert prefill.arena.free_bytes > free
    decode.decode_to_the_end()
    assert together([prefill, decode]) == expected(lengths)


def test_migration_in_stages_while_decoding_changes_no_token() -> None:
    """Three stages: most of the KV, what was computed meanwhile, the rest when the request is detached."""
    source, target = InProcessWorker(), InProcessWorker()
    lengths = {0: (40, 24), 1: (513, 24), 2: (7, 24), 3: (90, 24)}
    for request, (length, new_tokens) in lengths.items():
        source.engine.assign(request, prompt(request, length), (), new_tokens)
        source.step((request, 0, length))
    target.engine.assign(9, prompt(9, 20), (), 30)
    target.step((9, 0, 20))
    copied = dict.fromkeys(lengths, 0)
    for request, (length, new_tokens) in lengths.items():
        target.engine.assign(request, prompt(request, length), (), new_tokens)
    for stage in range(3):
        for request in lengths:
            if stage == 2:
                source.engine.detach(request)
            held = source.engine.held(request)
            target.pull_kv(request, source, (0, 6), (copied[request], held.computed))
            copied[request] = held.computed
            if stage == 2:
                target.engine.join({request: source.tokens[request]})
                source.engine.forget(request)
            source.step()
            target.step()
    assert not source.engine.has_residents()
    target.decode_to_the_end()
    del target.tokens[9]
    found = together([source, target])
    assert all(source.tokens[request] and target.tokens[request] for request in lengths)
    assert found == expected(lengths)
    assert sum(len(row) for row in found.values()) == 96


def run_stages(stages: list[InProcessWorker], chunks: list[tuple[int, int, int]], decode: list[int]) -> None:
    """One micro-batch through all stages; every stage is then told which tokens came out of the last."""
    *others, last = stages
    before = {request: len(row) for request, row in last.tokens.items()}
    for number, worker in enumerate(stages):
        for request in [*(chunk[0] for chunk in chunks), *decode] if number else ():
            worker.pull_hidden(request, stages[number - 1])
        span = worker.runner.layers
        worker.run_layers(chunks, (span.first, span.last), decode=decode, hand_over=False)
    sampled = {one: row[-1] for one, row in last.tokens.items() if len(row) > before.get(one, 0)}
    for worker in others:
        worker.engine.told(sampled)


@pytest.mark.parametrize(
    "model, batch_size",
    [(SIX_LAYERS, 12), (TIED, 12), (SIX_LAYERS, 2)],
    ids=["own", "tied", "2 rows"],
)
def test_three_stages_change_no_token(model: dict, batch_size: int) -> None:
    """Prompts in chunks beside tokens of others, on workers that have two layers each."""
    spans = (0, 2), (2, 4), (4, 6)
    stages = [InProcessWorker(model, layers, batch_size=batch_size) for layers in spans]
    lengths = {0: (40, 10), 1: (130, 6), 2: (1, 9), 3: (600, 5)}
    for request, (length, new_tokens) in lengths.items():
        for worker in stages:
            worker.engine.assign(request, prompt(request, length), (), new_tokens)
    last = stages[-1].engine
    run_stages(stages, [(0, 0, 40), (2, 0, 1)], [])
    run_stages(stages, [(1, 0, 77)], [0, 2])
    run_stages(stages, [(1, 77, 53), (3, 0, 255)], [0])
    run_stages(stages, [(3, 255, 345)], [0, 1, 2])
    while last.has_residents():
        run_stages(stages, [], last.residents())
    assert stages[-1].tokens == expected(lengths, model, batch_size)
    assert not any(worker.engine.has_residents() for worker in stages)


def test_layers_apart_leave_the_same_bits_as_together() -> None:
    whole, first, second = InProcessWorker(), InProcessWorker(layers=(0, 2)), InProcessWorker(layers=(2, 6))
    for worker in (whole, first, second):
        worker.engine.assign(0, prompt(0, 77), (), 4)
    whole.step((0, 0, 77), hand_over=True)
    first.run_layers([(0, 0, 77)], (0, 2))
    second.pull_hidden(0, first)
    second.run_layers([(0, 0, 77)], (2, 6))
    kv = whole.engine.held(0).kv
    for layer in range(6):
        part = (first if layer < 2 else second).engine.held(0).kv
        for ours, theirs in zip(part.read(layer, 77), kv.read(layer, 77)):
            assert torch.equal(ours, theirs)


def test_nothing_decodes_before_all_its_kv_is_here() -> None:
    source, target = InProcessWorker(), InProcessWorker()
    for worker in (source, target):
        worker.engine.assign(0, prompt(0, 20), (), 5)
    source.step((0, 0, 20), hand_over=True)
    target.pull_kv(0, source, (0, 5), (0, 20))
    with pytest.raises(ValueError, match="to decode after 21 tokens, but 0 positions have their KV in all"):
        target.engine.join({0: source.tokens[0]})
    target.pull_kv(0, source, (5, 6), (0, 19))
    refuses(ValueError, "but 19 positions", target.engine.join, {0: source.tokens[0]})
    refuses(ValueError, "to decode after 20 tokens", target.engine.join, {0: []})
    target.pull_kv(0, source, (5, 6), (19, 20))
    target.engine.join({0: source.tokens[0]})
    target.decode_to_the_end()
    assert together([source, target]) == expected({0: (20, 5)})


def test_kv_knows_what_is_written() -> None:
    worker = InProcessWorker()
    worker.engine.assign(0, prompt(0, 20), (), 5)
    held = worker.engine.held(0)
    kv = worker.engine.room(held)
    refuses(ValueError, r"positions from 3 on come, but layer 2 has only 0 so far", kv.came, 2, 3, 3, 5)
    refuses(ValueError, "layer 1 has 0 positions here, not 4", kv.publish, 1, 2, 0, 4)
    refuses(ValueError, "positions up to 26 do not fit into KV for 25 tokens", kv.ranges, 0, 6, 0, 26)
    refuses(ValueError, "layer 6 has no KV here", kv.ranges, 0, 7, 0, 5)
    worker.engine.run_layers([(0, 0, 20)], (0, 2))
    assert (held.computed, held.positions(1), held.positions(2), held.depth) == (0, 20, 0, 2)
    with pytest.raises(ValueError, match=r"layer 3 is to run positions \[0, 20\) of request 0, but 20 rows"):
        worker.engine.run_layers([(0, 0, 20)], (3, 6))


def test_a_full_arena_refuses_the_next_request_and_keeps_the_others() -> None:
    worker = InProcessWorker()
    room = worker.arena.free_bytes // worker.runner.kv_shape.size_bytes(1)
    worker.engine.assign(0, prompt(0, 20), (), 5)
    worker.engine.assign(1, prompt(1, 20), (), room - 25)
    worker.step((0, 0, 20))
    refuses(KvFull, f"KV for {room - 5} tokens in 6 layers does not fit here", worker.step, (1, 0, 20))
    worker.engine.forget(1)
    worker.decode_to_the_end()
    assert worker.tokens == expected({0: (20, 5)})
    worker.engine.assign(2, prompt(2, 20), (), room - 25)
    worker.step((2, 0, 20))  # the first one's memory is free again


def test_memory_that_a_transfer_writes_to_is_not_given_away() -> None:
    worker = InProcessWorker()
    free = worker.arena.free_bytes
    worker.engine.assign(0, prompt(0, 20), (), 5)
    held = worker.engine.held(0)
    worker.engine.room(held)
    taken = worker.arena.free_bytes
    held.pins += 1
    worker.engine.forget(0)
    assert worker.arena.free_bytes == taken < free
    held.unpin()
    assert worker.arena.free_bytes == free
