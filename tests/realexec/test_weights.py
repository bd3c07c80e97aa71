"""Parameters in one flat stretch of memory, brought unit by unit: nothing differs from the whole model."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import pytest

pytest.importorskip("torch")
pytest.importorskip("transformers")

import torch

from realexec.driver.verify import reference_tokens
from realexec.memory.tensor_memory import ArenaMemory
from realexec.model.checkpoint import write_tensors
from realexec.model.layer_layout import ALIGN_BYTES
from realexec.model.model_runner import ModelRunner
from realexec.model.models import build_model, model_spec
from realexec.model.weights import Weights
from servetwin.config.config import OF_MODEL, ModelConfig
from servetwin.run.real_run import worker_model
from serving.vocabulary.errors import UserError
from serving.vocabulary.layers import LayerRange
from tests.worlds.flat_memory import FlatMemory
from tests.worlds.real_runs import TINY

pytestmark = pytest.mark.real

SEED = 4
HEAD = 4  # of the three layers of TINY
TIED = {**TINY, "tie_word_embeddings": True}
FAMILIES = {
    "llama": TINY,
    "tied": TIED,
    "mistral": {**TINY, "model_type": "mistral", "sliding_window": None},
    "qwen2": {**TINY, "model_type": "qwen2"},  # biases of queries, keys and values
    "qwen3": {**TINY, "model_type": "qwen3"},  # norms of queries and keys
}


def weights_of(model: dict, layers: tuple[int, int] = (0, 3), memory: ArenaMemory | None = None) -> Weights:
    spec = model_spec(model)
    memory = memory or ArenaMemory(FlatMemory(1 << 22))
    return Weights(spec.layout(LayerRange(*layers)), memory, spec.dtype)


def write_checkpoint(model: dict, seed: int, folder: Path) -> None:
    """The folder of the model that ``model`` and ``seed`` give."""
    write_tensors(model_spec(model), dict(build_model(model, seed).named_parameters()), folder)


def by_name(weights: Weights) -> dict[str, torch.Tensor]:
    return {name: one for unit in weights.layout.units for name, one in weights.tensors(unit).items()}


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
@pytest.mark.parametrize("layers", [(0, 3), (0, 1), (1, 3), (1, 2)])
def test_any_stretch_has_the_parameters_of_the_whole_model(model: dict, layers: tuple[int, int]) -> None:
    expected = build_model(model, SEED).state_dict()
    weights = weights_of(model, layers)
    source = model_spec(model).source(SEED)
    for unit in reversed(weights.layout.units):  # in any order
        weights.fill(unit, source)
    found = by_name(weights)
    wanted = {
        name for name in expected
        if any(name.startswith(f"model.layers.{layer}.") for layer in range(*layers))
        or (layers[0] == 0 and name == "model.embed_tokens.weight")
        or (layers[1] == 3 and name in ("model.norm.weight", "lm_head.weight"))
    }  # fmt: skip
    assert set(found) == wanted
    assert all(torch.equal(found[name], expected[name]) for name in wanted)


def test_parameters_lie_apart_and_units_beside_each_other() -> None:
    weights = weights_of(TINY)
    spans = sorted(span for unit in weights.layout.units for span in weights.segments(unit))
    assert all(offset % ALIGN_BYTES == 0 for offset, _ in spans)
    assert all(offset + size <= after for (offset, size), (after, _) in pairwise(spans))
    assert spans[-1][0] + spans[-1][1] <= weights.region.offset + weights.layout.size_bytes
    floats = sum(one.numel() for one in build_model(TINY, SEED).parameters())
    assert sum(weights.layout.unit_bytes(unit) for unit in weights.layout.units) == 4 * floats


def test_no_two_layers_and_no_two_seeds_have_equal_parameters() -> None:
    """Otherwise nobody would notice that those of two layers were mixed up."""
    source, other = model_spec(TINY).source(1), model_spec(TINY).source(2)
    drawn = {}
    for unit in weights_of(TINY).layout.units:
        for place in weights_of(TINY).layout.places(unit):
            drawn[place.name] = source.read(place.name, place.shape)
            assert not torch.equal(drawn[place.name], other.read(place.name, place.shape))
    for name, tensor in drawn.items():
        assert not any(torch.equal(tensor, one) for key, one in drawn.items() if key != name)


@pytest.mark.parametrize("model", [TINY, TIED], ids=["own head", "tied head"])
@pytest.mark.parametrize("layers", [(0, 3), (0, 2), (1, 3)])
def test_bytes_of_a_peer_are_parameters_at_once(model: dict, layers: tuple[int, int]) -> None:
    """As a transport brings them: bytes from one arena into another, unit by unit."""
    theirs, ours = FlatMemory(1 << 22), FlatMemory(1 << 22)
    ours.take(4096)  # so that nothing lies at the same offset
    source, target = (
        weights_of(model, (0, 3), ArenaMemory(theirs)),
        weights_of(model, layers, ArenaMemory(ours)),
    )
    read = 0
    for unit in source.layout.units:
        source.fill(unit, model_spec(model).source(SEED))
    for unit in target.layout.units:
        for remote, local, size in target.copies(unit, source.segments(unit)):
            ours.buffer[local : local + size] = theirs.buffer[remote : remote + size]
            read += size
        assert unit not in target.whole
        target.came(unit)
    there = by_name(source)
    assert all(torch.equal(one, there[name]) for name, one in by_name(target).items())
    if layers == (0, 3):
        floats = sum(one.numel() for one in build_model(model, SEED).parameters())
        assert read == 4 * floats, "a table that is shared comes once"


def test_peers_of_another_model_are_refused() -> None:
    wider = weights_of({**TINY, "intermediate_size": 192})
    with pytest.raises(ValueError, match="unit 2 has other bytes at the peer"):
        weights_of(TINY).copies(2, wider.segments(2))


def test_a_host_cache_fills_a_stretch() -> None:
    cache, stretch = weights_of(TINY), weights_of(TINY, (1, 3))
    with pytest.raises(ValueError, match="unit 2 is not whole there"):
        stretch.copy_from(2, cache)
    for unit in cache.layout.units:
        cache.fill(unit, model_spec(TINY).source(SEED))
    for unit in stretch.layout.units:
        stretch.copy_from(unit, cache)
    expected = build_model(TINY, SEED).state_dict()
    assert all(torch.equal(one, expected[name]) for name, one in by_name(stretch).items())
    assert stretch.whole == {2, 3, HEAD}


def test_layers_run_once_they_are_whole() -> None:
    runner = ModelRunner(TINY, SEED, 2, filled=False)
    kv = runner.new_kv(8)
    with pytest.raises(ValueError, match=r"units \[0\] are not whole"):
        runner.prefill([1, 2, 3], 0, 3, kv)
    for layers, unit in enumerate([0, 1, 2]):
        runner.weights.fill(unit, runner.source)
        assert runner.weights.whole_layers == layers
    hidden = runner.embed([1, 2, 3])
    runner.prefill_layers(hidden, start=0, tokens=3, known_tokens=3, kv=kv, layers=LayerRange(0, 2))
    with pytest.raises(ValueError, match=r"units \[3\] are not whole"):
        runner.prefill_layers(hidden, start=0, tokens=3, known_tokens=3, kv=kv, layers=LayerRange(0, 3))
    with pytest.raises(ValueError, match=r"units \[4\] are not whole"):
        runner.greedy(hidden)
    runner.weights.forget([2])
    assert runner.weights.whole_layers == 1


def test_a_runner_says_which_layers_it_has() -> None:
    with pytest.raises(ValueError, match=r"layers \[1, 4\) of a model that has 3"):
        ModelRunner(TINY, SEED, 1, layers=LayerRange(1, 4))
    with pytest.raises(ValueError, match=r"unit 0 is not among those of layers \[1, 3\)"):
        weights_of(TINY, (1, 3)).segments(0)


@pytest.mark.parametrize("model", FAMILIES.values(), ids=FAMILIES)
def test_a_checkpoint_is_read_as_transformers_reads_it(model: dict, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM

    write_checkpoint(model, SEED, tmp_path)
    expected = AutoModelForCausalLM.from_pretrained(tmp_path).state_dict()
    weights = weights_of({"checkpoint": str(tmp_path)})
    for unit in weights.layout.units:
        weights.fill(unit, model_spec({"checkpoint": str(tmp_path)}).source(0))
    found = by_name(weights)
    assert set(found) == set(expected)
    assert all(torch.equal(found[name], expected[name]) for name in found)
    drawn = build_model(model, SEED)
    assert all(torch.equal(one, expected[name]) for name, one in drawn.state_dict().items())


@pytest.mark.parametrize("key", ["rope_theta", "rope_parameters"])
def test_configurations_of_older_checkpoints_are_understood(tmp_path: Path, key: str) -> None:
    """Before version 5 of transformers the base of the rotation stood beside the other keys."""
    write_checkpoint(TINY, SEED, tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    del config["rope_parameters"]
    config[key] = 5000.0 if key == "rope_theta" else {"rope_type": "default", "rope_theta": 5000.0}
    (tmp_path / "config.json").write_text(json.dumps(config))
    built = build_model({"checkpoint": str(tmp_path)}, 0)
    assert built.model.rotary_emb.inv_freq[1].item() == pytest.approx(5000 ** (-2 / 16))


def test_a_checkpoint_runs_like_the_model_it_was_written_from(tmp_path: Path) -> None:
    write_checkpoint(TIED, SEED, tmp_path)
    tokens = [reference_tokens(build_model(model, SEED), (5, 6, 7), 8, 2)
              for model in (TIED, {"checkpoint": str(tmp_path)})]  # fmt: skip
    assert tokens[0] == tokens[1] and len(set(tokens[0])) > 1


def test_checkpoints_that_do_not_fit_are_refused_in_words(tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"config\.json cannot be read"):
        model_spec({"checkpoint": str(tmp_path)})
    write_checkpoint(TINY, SEED, tmp_path)
    with pytest.raises(UserError, match=r"model\.hidden_size is 32, but .*config\.json says 64"):
        model_spec({"checkpoint": str(tmp_path), "hidden_size": 32})
    config = json.loads((tmp_path / "config.json").read_text())
    (tmp_path / "config.json").write_text(json.dumps({**config, "vocab_size": 500}))
    with pytest.raises(UserError, match=r"embed_tokens.weight in .* has shape \[512, 64\]"):
        build_model({"checkpoint": str(tmp_path)}, 0)
    (tmp_path / "config.json").write_text(json.dumps({**config, "num_hidden_layers": 4}))
    with pytest.raises(UserError, match=r"has no parameter model\.layers\.3"):
        build_model({"checkpoint": str(tmp_path)}, 0)
    (tmp_path / "model.safetensors").write_bytes(b"\0" * 20)
    with pytest.raises(UserError, match="cannot be read as safetensors"):
        build_model({"checkpoint": str(tmp_path)}, 0)
    (tmp_path / "model.safetensors").unlink()
    with pytest.raises(UserError, match=r"has neither model\.safetensors nor"):
        build_model({"checkpoint": str(tmp_path)}, 0)


def test_checkpoints_of_several_files_are_read(tmp_path: Path) -> None:
    from safetensors.torch import load_file, save_file

    write_checkpoint(TINY, SEED, tmp_path)
    tensors = load_file(tmp_path / "model.safetensors")
    (tmp_path / "model.safetensors").unlink()
    names = sorted(tensors)
    half = {name: "a.safetensors" if index % 2 else "b.safetensors" for index, name in enumerate(names)}
    for file in ("a.safetensors", "b.safetensors"):
        save_file({name: tensors[name] for name in names if half[name] == file}, tmp_path / file)
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": half}))
    expected = build_model(TINY, SEED).state_dict()
    found = build_model({"checkpoint": str(tmp_path)}, 0).state_dict()
    assert all(torch.equal(found[name], expected[name]) for name in expected)


@pytest.mark.parametrize(
    "keys, words",
    [({"dtype": "float16"}, "model.dtype is 'float16'"), ({"device": "tpu"}, "model.device is 'tpu'")],
)
def test_other_dtypes_and_devices_are_refused_in_words(keys: dict, words: str) -> None:
    with pytest.raises(UserError, match=words):
        model_spec({**TINY, **keys})


def test_a_run_tells_workers_of_its_checkpoint(tmp_path: Path) -> None:
    model = partial(ModelConfig, tp=1, prefill=OF_MODEL, decode=OF_MODEL)
    tiny = worker_model(model(name="tiny_llama"))
    write_checkpoint(tiny, SEED, tmp_path)
    told = worker_model(model(name="tiny_llama", checkpoint=str(tmp_path), dtype="bfloat16"))
    spec = model_spec(told)
    assert (spec.checkpoint, spec.dtype, spec.layers) == (tmp_path, torch.bfloat16, 4)
    with pytest.raises(UserError, match=r"model\.num_hidden_layers is 30, but .* says 4"):
        model_spec(worker_model(model(name="smollm2_135m", checkpoint=str(tmp_path))))
