"""max_num_seqs and max_num_batched_tokens of vllm_v1 are those of vLLM 0.19.0, unless they are written."""

from pathlib import Path

import pytest

from hwmodels.catalogue import gpu_names, load_gpu
from servetwin.cli.support import support
from servetwin.config.compose.compose import load_config
from servetwin.config.compose.key_list import key_list
from servetwin.config.compose.resolved import load_resolved, resolved_yaml
from servetwin.config.config import RunConfig
from servetwin.config.vllm_defaults import batch_defaults
from servetwin.run.simulate import prepare
from serving.vocabulary.errors import UserError

LARGE = {
    "h100", "h200", "a800", "rtx_pro_6000", "b200", "b300", "gb200", "gb300", "mi300x", "mi355x"
}  # fmt: skip


def simulated(*words: str) -> RunConfig:
    return load_config([*words, "out=unused"], "simulate")


def limits(config: RunConfig) -> tuple[int, int]:
    return config.engine.max_num_seqs, config.engine.max_num_batched_tokens


@pytest.mark.parametrize("gpu", gpu_names())
def test_the_rule_by_memory_name_and_usage(gpu: str) -> None:
    """EngineArgs.get_batch_defaults of vLLM 0.19.0: at least 70 GiB, and no A100 by its name."""
    served, offline = (batch_defaults(load_gpu(gpu), usage) for usage in ("openai_api_server", "llm_class"))
    expected = ((1024, 8192), (1024, 16384)) if gpu in LARGE else ((256, 2048), (256, 8192))
    assert (tuple(served.values()), tuple(offline.values())) == expected
    assert list(served) == ["max_num_seqs", "max_num_batched_tokens"]


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ((), (256, 2048)),
        (("cluster=h100_x8",), (1024, 8192)),
        (("cluster=dgx_h200",), (1024, 8192)),
        (("cluster=a100_40g_x8",), (256, 2048)),
        (("cluster=l40s_x8", "engine.usage_context=llm_class"), (256, 8192)),
        (("cluster=h100_x8", "engine.usage_context=llm_class"), (1024, 16384)),
        # what is written wins, each alone
        (("cluster=h100_x8", "engine.max_num_seqs=300"), (300, 8192)),
        (("cluster=h100_x8", "engine.max_num_batched_tokens=4096"), (1024, 4096)),
        # sequences that nobody wrote are no more than the tokens of a step
        (("cluster=h100_x8", "engine.max_num_batched_tokens=512"), (512, 512)),
        (("engine.max_num_batched_tokens=128",), (128, 128)),
        # presets with limits of their own
        (("cluster=h100_x8", "engine=vllm_v0"), (256, 4096)),
        (("cluster=h100_x8", "engine=distserve"), (128, 4096)),
        (("cluster=h100_x8", "engine=own_workers"), (256, 2048)),
    ],
)
def test_a_run_has_them(words: tuple[str, ...], expected: tuple[int, int]) -> None:
    config = simulated(*words)
    assert limits(config) == expected
    if config.system.batcher.name == "chunked_prefill":
        assert (*config.system.batcher.params.values(),)[:2] == expected, "the batcher's follow"


def test_the_usage_is_in_config_yaml_only_where_it_is_another(tmp_path: Path) -> None:
    for words in (("cluster=h100_x8",), ("cluster=h100_x8", "engine.usage_context=llm_class")):
        config, path = simulated(*words), tmp_path / "config.yaml"
        path.write_text(resolved_yaml(config))
        assert ("usage_context" in path.read_text()) == (len(words) > 1)
        assert load_resolved(path) == config


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("engine.usage_context=batch",), "write one of openai_api_server, llm_class"),
        (("engine=vllm_v0", "engine.usage_context=llm_class"), "does nothing with engine=vllm_v0"),
    ],
)
def test_a_usage_that_says_nothing_is_refused(words: tuple[str, ...], told: str) -> None:
    with pytest.raises(UserError, match=told):
        simulated(*words)


def test_a_default_beyond_the_step_times_is_called_one() -> None:
    config = simulated(
        "cluster=rtx_pro_6000_x1", "model=llama3_1_8b", "trace=azure_conv_like", "trace.requests=2"
    )
    with pytest.raises(UserError) as caught:
        prepare(config)
    assert "engine.max_num_seqs=1024, vLLM's default on rtx_pro_6000, is beyond the 256" in str(caught.value)
    assert "write engine.max_num_seqs=256 or less" in str(caught.value)


def test_help_and_support_show_them(capsys: pytest.CaptureFixture[str]) -> None:
    assert "engine.max_num_seqs=256 " in key_list("simulate")
    assert support(["model=llama3_8b", "gpu=h100"]) == 0
    assert "at most 1024 sequences and 8192 tokens in a step" in capsys.readouterr().out
