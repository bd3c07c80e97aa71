"""The recorded traces that are known by name: file, format, publisher, licence, size and hash.

Nothing of them lies in this repository: the files belong to their publishers. A source can be fetched when
its address, size and hash are pinned here; the others name the page where a person finds the file.
"""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from difflib import get_close_matches
from types import MappingProxyType
from typing import Final

from traces.errors import TraceError

OUR_COPY: Final = "the copy this project's numbers were made with, equal in size to the publisher's"
LFS_POINTERS: Final = "the publisher's own, from the Git LFS pointers of the repository"
THIRD_PARTY: Final = "recorded by a third party from the release"


@dataclass(frozen=True, slots=True, kw_only=True)
class Source:
    """One recorded trace.

    name: what the user calls it. file_name: what it is looked for as (or that with .gz). format: one of
    ``traces.formats.FORMATS``. url, bytes, sha256: where the file is and what it must be, None where nothing
    is pinned; hash_source: who says so. licence, citation: the publisher's terms and the paper to name. page:
    where a person reads about the file and finds it. note: what else to know before use, or empty.
    """

    name: str
    file_name: str
    format: str
    url: str | None = None
    bytes: int | None = None
    sha256: str | None = None
    hash_source: str | None = None
    licence: str
    citation: str
    page: str
    note: str = ""

    @property
    def pinned(self) -> bool:
        """Whether size and hash are known, so that a copy from anywhere can be judged."""
        return self.bytes is not None and self.sha256 is not None


def source_of(name: str) -> Source:
    """The source called ``name``; TraceError that lists the names when there is none."""
    if name in SOURCES:
        return SOURCES[name]
    near = get_close_matches(name, SOURCES, n=1)
    hint = f"{near[0]}, or another of " if near else "one of "
    raise TraceError(f"trace {name!r} is unknown: write {hint}{', '.join(SOURCES)}")


def terms(source: Source) -> str:
    """Licence, citation and origin as lines for a person; the last line has no newline."""
    lines = [
        f"{source.name}: {source.file_name}",
        f"licence: {source.licence}",
        f"cite: {source.citation}",
        f"page: {source.page}",
    ]
    if source.sha256 is not None:
        lines.append(f"sha256: {source.sha256} ({source.hash_source})")
    if source.note:
        lines.append(f"note: {source.note}")
    return "\n".join(lines)


_AZURE_DOCS: Final = "https://github.com/Azure/AzurePublicDataset/blob/master/"
_AZURE_RAW: Final = "https://raw.githubusercontent.com/Azure/AzurePublicDataset/790921015d50dd6aae7f7e47f39ba0e235ad6b08/data/"
_AZURE_LICENCE: Final = "CC-BY 4.0"


def _azure_2023(what: str, size_bytes: int, sha256: str) -> Source:
    file_name = f"AzureLLMInferenceTrace_{what}.csv"
    return Source(
        name=f"azure_{what}",
        file_name=file_name,
        format="azure",
        url=_AZURE_RAW + file_name,
        bytes=size_bytes,
        sha256=sha256,
        hash_source=OUR_COPY,
        licence=_AZURE_LICENCE,
        citation=(
            "P. Patel, E. Choukse, C. Zhang, A. Shah, I. Goiri, S. Maleki, R. Bianchini. Splitwise: Efficient"
            " generative LLM inference using phase splitting. ISCA 2024"
        ),
        page=_AZURE_DOCS + "AzureLLMInferenceDataset2023.md",
    )


def _azure_2024(what: str) -> Source:
    return Source(
        name=f"azure_{what}_2024",
        file_name=f"AzureLLMInferenceTrace_{what}_1week.csv",
        format="azure",
        licence=_AZURE_LICENCE,
        citation=(
            "J. Stojkovic, C. Zhang, I. Goiri, J. Torrellas, E. Choukse. DynamoLLM: Designing LLM inference"
            " clusters for performance and energy efficiency. HPCA 2025"
        ),
        page=_AZURE_DOCS + "AzureLLMInferenceDataset2024.md",
        note="one week of May 2024",
    )


_AZURE_MULTIMODAL: Final = Source(
    name="azure_multimodal",
    file_name="AzureLMMInferenceTrace_multimodal.csv.gz",
    format="azure",
    licence=_AZURE_LICENCE,
    citation=(
        "H. Qiu, A. Biswas, Z. Zhao, et al. ModServe: Modality- and stage-aware resource disaggregation for"
        " scalable multimodal model serving. SoCC 2025"
    ),
    page=_AZURE_DOCS + "AzureLMMInferenceDataset2025.md",
    note="the prompt tokens include those of the images",
)
_AZURE_FUNCTIONS_2019: Final = Source(
    name="azure_functions_2019",
    file_name="invocations_per_function_md.anon.d01.csv",
    format="azure_functions_2019",
    licence=_AZURE_LICENCE,
    citation=(
        "M. Shahrad, R. Fonseca, I. Goiri, et al. Serverless in the wild: Characterizing and optimizing the"
        " serverless workload at a large cloud provider. USENIX ATC 2020"
    ),
    page=_AZURE_DOCS + "AzureFunctionsDataset2019.md",
    note="unpack the file of one day (d01 to d14) from azurefunctions-dataset2019.tar.xz; it has no lengths",
)
_AZURE_FUNCTIONS_2021: Final = Source(
    name="azure_functions_2021",
    file_name="AzureFunctionsInvocationTraceForTwoWeeksJan2021.txt",
    format="azure_functions_2021",
    licence=_AZURE_LICENCE,
    citation=(
        "Y. Zhang, I. Goiri, G. I. Chaudhry, R. Fonseca, S. Elnikety, C. Delimitrou, R. Bianchini. Faster and"
        " cheaper serverless computing on harvested resources. SOSP 2021"
    ),
    page=_AZURE_DOCS + "AzureFunctionsInvocationTrace2021.md",
    note="unpack it from AzureFunctionsInvocationTraceForTwoWeeksJan2021.rar; it has no lengths",
)


def _burstgpt(suffix: str, file_name: str, size_bytes: int, sha256: str, release: str = "v1.1") -> Source:
    return Source(
        name=f"burstgpt_{suffix}",
        file_name=file_name,
        format="burstgpt",
        url=f"https://github.com/HPMLL/BurstGPT/releases/download/{release}/{file_name}",
        bytes=size_bytes,
        sha256=sha256,
        hash_source=LFS_POINTERS,
        licence="CC-BY 4.0",
        citation=(
            "Y. Wang, et al. BurstGPT: A real-world workload dataset to optimize LLM serving systems."
            " KDD 2025, arXiv 2401.17644"
        ),
        page="https://github.com/HPMLL/BurstGPT",
    )


def _mooncake(what: str, note: str = "") -> Source:
    return Source(
        name=f"mooncake_{what}",
        file_name=f"{what}_trace.jsonl",
        format="mooncake",
        licence="Apache-2.0",
        citation=(
            "R. Qin, et al. Mooncake: Trading more storage for less computation, a KVCache-centric"
            " architecture for serving LLM chatbot. FAST 2025"
        ),
        page="https://github.com/kvcache-ai/Mooncake/tree/main/FAST25-release/traces",
        note=note,
    )


_SHAREGPT: Final = Source(
    name="sharegpt",
    file_name="ShareGPT_V3_unfiltered_cleaned_split.json",
    format="sharegpt",
    licence="unclear: the people whose conversations these are gave no licence; ask before you pass them on",
    citation="ShareGPT conversations, collected by their users and cleaned by the dataset's uploader",
    page="https://huggingface.co/datasets/anon8231489123/ShareGPT_Vicuna_unfiltered",
    note="about 650 MB of text; it has no arrivals",
)


def _llmservingsim(name: str, file_name: str) -> Source:
    return Source(
        name=name,
        file_name=file_name,
        format="llmservingsim",
        licence="MIT",
        citation=(
            "J. Cho, et al. LLMServingSim: A HW/SW co-simulation infrastructure for LLM inference serving at"
            " scale. IISWC 2024"
        ),
        page="https://github.com/casys-kaist/LLMServingSim",
        note="lengths and arrivals of one workload; no public file has this name, so put it there by hand",
    )


_ALL: Final = (
    _azure_2023("code", 320_117, "54e9a6d2a4bd06ba1e060304b900abbc74cbea53de96506e60fe5bb4f2277fb6"),
    _azure_2023("conv", 719_188, "2f1e5b666d4e3055fdbba98598ce2ec307767b9064e03e2fa46676dbcc7d0bf8"),
    _azure_2024("code"),
    _azure_2024("conv"),
    _AZURE_MULTIMODAL,
    _burstgpt(
        "1",
        "BurstGPT_1.csv",
        52_283_111,
        "4bb3783693d0a435686fbfc885615d2349bd067239079fa4b749f2e679e12122",
    ),
    _burstgpt(
        "2",
        "BurstGPT_2.csv",
        144_819_209,
        "44bf5942b03fca42c01a226a545ad3a750ec62688faecd67b6831c56a8928bf7",
    ),
    _burstgpt(
        "1_no_fails",
        "BurstGPT_without_fails_1.csv",
        51_429_517,
        "a4d068a7113ec0290e74063a1b3447dc6001a30e4298eb313581b71006dda1f4",
    ),
    _burstgpt(
        "2_no_fails",
        "BurstGPT_without_fails_2.csv",
        142_376_815,
        "56193aa9b2bb26128ded43d2d29a960df6bf5af062bcfc9b005f3fcaa4e6e501",
    ),
    replace(
        _burstgpt(
            "3",
            "BurstGPT_3.csv",
            231_682_327,
            "2299986a07388aa303ec2c41d1131e756db650a39ed6ef9dfe7cc3d7f9a43b8f",
            release="v2.0",
        ),
        hash_source=THIRD_PARTY,
    ),
    _mooncake("conversation"),
    _mooncake("toolagent"),
    _mooncake("synthetic", "made from public datasets, not recorded"),
    _AZURE_FUNCTIONS_2019,
    _AZURE_FUNCTIONS_2021,
    _SHAREGPT,
    _llmservingsim("sharegpt_llama3_1_8b_300", "workloads_sharegpt-llama-3.1-8b-300-sps10.csv"),
    _llmservingsim("sharegpt_qwen3_32b_300", "workloads_sharegpt-qwen3-32b-300-sps10.csv"),
    _llmservingsim("sharegpt_qwen3_30b_a3b_300", "workloads_sharegpt-qwen3-30b-a3b-300-sps10.csv"),
)
SOURCES: Final[Mapping[str, Source]] = MappingProxyType({source.name: source for source in _ALL})
"""name -> source, in the order in which they are listed."""
