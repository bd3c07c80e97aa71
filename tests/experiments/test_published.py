"""Where published tables exist they are named, with the words of the import and of a run that fits them."""

import os
from pathlib import Path

import pytest

from hwmodels.catalogue import gpu_names, llm_names, load_llm
from hwmodels.errors import HardwareError
from hwmodels.importers import IMPORTERS, ImportRequest, import_profile
from hwmodels.importers.published import PUBLISHED, Published, published_for
from servetwin.assemble.hardware import hardware_of
from servetwin.cli.support import support
from servetwin.config.compose.compose import load_config
from tests.worlds.measured_profile import measured, section

PROFILES = os.environ.get("SERVETWIN_PROFILES")
FOLDERS = {"llmservingsim": "llmservingsim", "aiconfigurator": "aiconfigurator"}


def told(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    assert support(words) == 0
    return section(capsys.readouterr().out, "ladder")


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (
            ("model=llama3_8b", "gpu=h100", "tp=1"),
            "ai-dynamo/aiconfigurator at commit 095f58a has tables, measured with vLLM 0.19.0: fetch its "
            "folder h100_sxm, write 'servetwin profile import format=aiconfigurator path=FOLDER gpu=h100 "
            "model=llama3_8b tp=1 out=FILE', profile=FILE here, and in a run engine.profile=FILE "
            "engine.version=0.19.0",
        ),
        (("model=qwen_72b", "gpu=a100_80g", "tp=4"), "in a run engine.profile=FILE engine.version=0.14.0"),
        (("model=llama3_1_8b", "gpu=rtx4090", "tp=1"), "folder RTX4090/meta-llama/Llama-3.1-8B"),
        (("model=qwen3_32b", "gpu=rtx_pro_6000", "tp=2"), "aiconfigurator=SECOND gpu=rtx_pro_6000"),
        # nobody published these: a card, a number of heads, another card
        (("model=llama3_8b", "gpu=l40s", "tp=1"), "measure the layers of llama3_8b on l40s at tp=1"),
        (("model=opt_66b", "gpu=h200", "tp=4"), "measure the layers of opt_66b on h200 at tp=4"),
        (("model=qwen2_5_72b", "gpu=a40", "tp=4"), "measure the layers of qwen2_5_72b"),
    ],
)
def test_support_names_tables_that_can_be_imported(
    capsys: pytest.CaptureFixture[str], words: tuple[str, ...], expected: str
) -> None:
    assert expected in told(capsys, *words)


def test_every_entry_is_of_the_catalogue_and_of_an_importer() -> None:
    for one in PUBLISHED:
        assert one.gpu in gpu_names() and one.format_name in IMPORTERS
        assert set(one.llms) <= set(llm_names())


@pytest.mark.skipif(PROFILES is None, reason="SERVETWIN_PROFILES does not name the measured tables")
@pytest.mark.parametrize("one", PUBLISHED, ids=lambda one: f"{one.format_name} {one.folder}")
def test_what_is_named_can_be_imported_and_has_that_version(one: Published) -> None:
    llm = one.llms[-1] if one.llms else "llama3_8b"
    assert one.covers(one.gpu, load_llm(llm), one.tps[-1])
    path = Path(str(PROFILES)) / FOLDERS[one.format_name] / one.folder
    beside = Path(str(PROFILES)) / "aiconfigurator" / one.beside if one.beside else None
    request = ImportRequest(
        path=path, gpu=one.gpu, llm=llm, tp=one.tps[-1], engine_version=None, aiconfigurator=beside
    )
    assert import_profile(one.format_name, request).stamp.engine_version == one.engine_version


@pytest.mark.skipif(PROFILES is None, reason="SERVETWIN_PROFILES does not name the measured tables")
def test_a_model_whose_heads_nobody_measured_is_not_promised() -> None:
    assert published_for("h200", load_llm("opt_66b"), 4) is None
    path = Path(str(PROFILES)) / "aiconfigurator" / "h200_sxm"
    with pytest.raises(HardwareError, match="no rows with num_heads=18"):
        import_profile(
            "aiconfigurator",
            ImportRequest(
                path=path,
                gpu="h200",
                llm="opt_66b",
                tp=4,
                engine_version=None,
                aiconfigurator=path.parent / "h100_sxm",
            ),
        )


def test_a_profile_that_does_not_fit_says_which_keys_do(tmp_path: Path) -> None:
    """Mistral-24B on an H200 with vLLM 0.19.0, in runs that differ from it."""
    path = measured(tmp_path)
    base = [
        f"engine.profile={path}",
        "engine.max_num_seqs=16",
        "engine.max_num_batched_tokens=2048",
        "out=unused",
    ]
    mine = ["model=mistral_24b", "cluster=h200_x1"]
    cases = [
        (["system=blitz_multicast", "model=mistral_24b", "cluster=dgx_h200"],
         "write engine=vllm_v1 engine.asynchronous=false engine.version=0.19.0, name a profile"),
        ([*mine, "engine.version=0.14.0"], "write engine.version=0.19.0, name"),
        (["model=llama3_8b", "cluster=h100_x2", "model.tp=2"],
         "write cluster=h200_xN model=mistral_24b model.tp=1, name"),
    ]  # fmt: skip
    for words, expected in cases:
        with pytest.raises(HardwareError) as caught:
            hardware_of(load_config([*words, *base], "simulate"))
        assert expected in str(caught.value)
    followed = ["system=blitz_multicast", "model=mistral_24b", "cluster=dgx_h200", "engine=vllm_v1",
                "engine.asynchronous=false", "engine.version=0.19.0"]  # fmt: skip
    hardware_of(load_config([*followed, *base], "simulate"))
    hardware_of(load_config([*mine, *base], "simulate"))
