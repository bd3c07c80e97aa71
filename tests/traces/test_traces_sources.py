"""The catalogue of recorded traces: complete, consistent, and silent about what is not known."""

import hashlib
import os
import re
from pathlib import Path
from urllib.parse import urlsplit

import pytest

from traces.errors import TraceError
from traces.fetching.fetch import fetch
from traces.fetching.sources import SOURCES, Source, source_of, terms
from traces.find import FILE_NAMES
from traces.formats import FORMATS

EVERY = pytest.mark.parametrize("source", SOURCES.values(), ids=list(SOURCES))


def test_the_names_that_were_promised_are_there() -> None:
    azure = ["azure_code", "azure_conv", "azure_code_2024", "azure_conv_2024", "azure_multimodal"]
    burstgpt = ["burstgpt_1", "burstgpt_2", "burstgpt_1_no_fails", "burstgpt_2_no_fails", "burstgpt_3"]
    mooncake = ["mooncake_conversation", "mooncake_toolagent", "mooncake_synthetic"]
    functions = ["azure_functions_2019", "azure_functions_2021"]
    sharegpt = ["sharegpt", "sharegpt_llama3_1_8b_300", "sharegpt_qwen3_32b_300"]
    sharegpt.append("sharegpt_qwen3_30b_a3b_300")
    assert list(SOURCES) == azure + burstgpt + mooncake + functions + sharegpt
    assert {source.format for source in SOURCES.values()} <= set(FORMATS)


def test_no_two_sources_share_a_name_a_file_or_a_hash() -> None:
    sources = list(SOURCES.values())
    for field in ("name", "file_name", "sha256", "url"):
        values = [getattr(source, field) for source in sources if getattr(source, field) is not None]
        assert len(set(values)) == len(values)


def test_the_files_that_are_looked_for_have_the_names_in_the_catalogue() -> None:
    for name, file_name in FILE_NAMES.items():
        assert SOURCES[name].file_name == file_name


@EVERY
def test_an_entry_is_whole(source: Source) -> None:
    assert SOURCES[source.name] is source and re.fullmatch(r"[a-z0-9_]+", source.name)
    assert re.fullmatch(r"[\w.-]+\.(csv|csv\.gz|txt|json|jsonl)", source.file_name)
    assert source.licence and source.citation
    assert urlsplit(source.page).scheme == "https" and urlsplit(source.page).hostname


@EVERY
def test_what_has_an_address_has_a_size_a_hash_and_who_says_so(source: Source) -> None:
    pins = (source.url, source.bytes, source.sha256, source.hash_source)
    assert all(pin is None for pin in pins) or all(pin is not None for pin in pins)
    assert source.pinned == (source.url is not None)
    if source.url is not None:
        assert source.bytes is not None and source.sha256 is not None
        assert source.url.startswith("https://") and source.url.endswith("/" + source.file_name)
        assert source.bytes > 0 and re.fullmatch(r"[0-9a-f]{64}", source.sha256)


@EVERY
def test_terms_name_file_licence_paper_and_page(source: Source) -> None:
    text = terms(source)
    for part in (source.name, source.file_name, source.licence, source.citation, source.page, source.note):
        assert part in text
    assert (source.sha256 or "sha256") in text or "sha256" not in text
    assert text == text.strip() and all(line == line.rstrip() for line in text.splitlines())


@pytest.mark.parametrize("name", ["azure_code", "azure_conv"])
def test_the_copies_at_hand_are_the_pinned_ones(name: str) -> None:
    source = SOURCES[name]
    folders = os.environ.get("SERVETWIN_TRACES", "").split(os.pathsep)
    path = next(
        (Path(f) / source.file_name for f in folders if f and (Path(f) / source.file_name).is_file()), None
    )
    if path is None:
        pytest.skip(f"{source.file_name} is in no folder of SERVETWIN_TRACES")
    data = path.read_bytes()
    assert (len(data), hashlib.sha256(data).hexdigest()) == (source.bytes, source.sha256)
    assert fetch(source, path.parent) == path


def test_an_unknown_name_is_answered_with_the_known_ones() -> None:
    with pytest.raises(TraceError, match=r"trace 'burstgpt_4' is unknown: write burstgpt_\d, or another of"):
        source_of("burstgpt_4")
    with pytest.raises(TraceError, match=r"trace 'zzzz' is unknown: write one of azure_code, azure_conv, "):
        source_of("zzzz")
    assert source_of("azure_conv").bytes == 719_188


def test_the_catalogue_cannot_be_written_to() -> None:
    with pytest.raises(TypeError):
        SOURCES["mine"] = SOURCES["sharegpt"]  # type: ignore[index]
    with pytest.raises(AttributeError):
        SOURCES["sharegpt"].url = "https://example.org"  # type: ignore[misc]
