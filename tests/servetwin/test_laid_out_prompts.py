"""Engines that lay each chunk of a prompt out in the whole prompt: what a chunk costs, and a run with it."""

import json
from pathlib import Path

import pytest

from hwmodels.errors import HardwareError
from hwmodels.importers.step_profile_file import Row, read_step_profile, write_step_profile
from hwmodels.profiles.step_profile import PromptBlocks
from hwmodels.step_times.whole_step import fitted_whole_steps
from realexec.model.chunk_cuts import FEWEST_CUT, KEY_BLOCK, SMALL_PRODUCT_ROWS
from servetwin.cli import main as cli
from tests.worlds.step_profiles import CACHED, CONTEXTS, PROMPTS, SEQUENCES, STAMP

BLOCKS = PromptBlocks(512, 1024, 16)
SMALL = (
    "cluster=a100_x2", "engine.max_num_seqs=32", "engine.max_num_batched_tokens=512", "trace=file",
    "engine.max_model_len=2048", "engine.max_new_tokens=512", "engine.kv_tokens=16000",
    "engine.asynchronous=false",
)  # fmt: skip
TOKEN_S, SQUARE_S, LAYING_S = 4e-5, 2e-9, 3e-3


def law_s(new: int, cached: int, known: int) -> float:
    """A chunk: its own tokens, and the square of the positions that the kernel is shown."""
    attended = BLOCKS.attended(new + cached, known)
    laying_s = LAYING_S if attended > new else 0.0
    return 0.004 + TOKEN_S * -(-new // 16) * 16 + SQUARE_S * attended**2 + laying_s


def decode_s(sequences: int, context: int) -> float:
    return 0.008 + 1e-5 * sequences + 3e-8 * context


def rows() -> list[Row]:
    """Prompts end with each measured chunk."""
    found: list[Row] = [
        (0, 0, 0, n, n * context, 3, decode_s(n, n * context)) for n in SEQUENCES for context in CONTEXTS
    ]
    return found + [
        (new, 1, cached, 0, 0, 3, law_s(new, cached, new + cached)) for new in PROMPTS for cached in CACHED
    ]


def profile(path: Path) -> Path:
    write_step_profile(path, STAMP, includes_overhead=True, rows=rows(), apart=True, blocks=BLOCKS)
    return path


@pytest.mark.parametrize(
    "end, known, attended",
    [(256, 256, 256), (256, 408, 408), (256, 5000, 1024), (1024, 5000, 1024), (1025, 5000, 1536)],
)
def test_a_chunk_attends_to_its_prompt_up_to_a_cut(end: int, known: int, attended: int) -> None:
    assert BLOCKS.attended(end, known) == attended


def test_workers_cut_where_the_model_says() -> None:
    torch_free = PromptBlocks(KEY_BLOCK, FEWEST_CUT, SMALL_PRODUCT_ROWS)
    assert torch_free == BLOCKS
    pytest.importorskip("torch")
    from realexec.model.decoder_layer import attended_positions

    for end, known in ((1, 9), (256, 408), (700, 900), (1024, 1025), (1025, 5000), (2048, 2049)):
        assert attended_positions(end, known) == BLOCKS.attended(end, known)


def test_the_fit_finds_what_a_chunk_costs_in_prompts_that_go_on(tmp_path: Path) -> None:
    found = read_step_profile(profile(tmp_path / "p")).profile
    assert found.blocks == BLOCKS
    model, _ = fitted_whole_steps(found.steps, found.apart, found.blocks)
    for new, cached, known in ((256, 0, 256), (256, 0, 900), (250, 512, 900), (512, 512, 5000)):
        told_s = model.dense_s(new, 1, 0) + model.prefill_attention_s(new, cached)
        assert told_s + model.beyond_s(cached, new + cached, known) == pytest.approx(
            law_s(new, cached, known)
        )


def test_a_run_pays_for_the_whole_prompt_in_every_chunk(tmp_path: Path) -> None:
    """900 tokens, 512 at a time."""
    (tmp_path / "t.csv").write_text("arrival_s,prompt_tokens,output_tokens\n0,900,2\n")
    words = (f"trace.path={tmp_path / 't.csv'}", f"engine.profile={profile(tmp_path / 'p')}")
    bare = [*SMALL, "engine.front_end=none", f"out={tmp_path / 'run'}"]
    assert cli.run(["simulate", *bare, *words]) == 0
    summary = json.loads((tmp_path / "run" / "summary.json").read_text())
    expected_s = law_s(512, 0, 900) + law_s(388, 512, 900)
    assert summary["ttft_ms"]["mean"] == pytest.approx(1e3 * expected_s, rel=1e-6)


@pytest.mark.parametrize("told", ["512", "[512, 1024]", "[512, 1024, 0]", "[512, 1024.0, 16]"])
def test_blocks_that_are_none_are_refused(tmp_path: Path, told: str) -> None:
    meta = profile(tmp_path / "p") / "meta.yaml"
    meta.write_text(meta.read_text().replace("[512, 1024, 16]", told))
    with pytest.raises(HardwareError, match=r"prompt_blocks is .*write three whole numbers"):
        read_step_profile(meta.parent)
