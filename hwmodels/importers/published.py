"""Published tables that the importers read: their locations, GPUs, models and engine versions."""

from dataclasses import dataclass
from typing import Final

from hwmodels.models.llm_shape import LlmShape

# The commit of these folders. Later ones measure other engine versions.
AICONFIGURATOR: Final = "ai-dynamo/aiconfigurator at commit 095f58a"
LLMSERVINGSIM: Final = "casys-kaist/LLMServingSim"
# The query heads of a rank, head sizes and all-reduces in AIConfigurator's attention tables.
_HEADS: Final = frozenset({1, 2, 4, 8, 12, 16, 24, 32, 40, 48, 64})
_HEAD_DIM: Final = 128
ALL_REDUCE: Final = "the all-reduce"
_RTX_PRO: Final = "rtx_pro_6000_server"
_LLAMA: Final = ("llama3_1_8b", "llama3_8b")


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """Tables of one GPU.

    ``llms``: only these models, named as in the catalogue; empty: a model is composed of measured products
    and attention. ``engine_version``: of vLLM, which a run must imitate. ``beside``: a second folder of
    AIConfigurator, for what these tables lack (``beside_for``).
    """

    source: str
    format_name: str
    folder: str
    gpu: str
    tps: tuple[int, ...]
    engine_version: str
    llms: tuple[str, ...] = ()
    beside: str = ""
    beside_for: str = ""

    def covers(self, gpu: str, llm: LlmShape, tp: int) -> bool:
        """Whether these tables make a profile of the combination."""
        if self.gpu != gpu or tp not in self.tps:
            return False
        if self.llms:
            return llm.name in self.llms
        return llm.head_dim == _HEAD_DIM and {llm.heads / tp, llm.kv_heads / tp} <= _HEADS


PUBLISHED: Final = (
    Published(
        source=LLMSERVINGSIM,
        format_name="llmservingsim",
        folder="RTX4090/meta-llama/Llama-3.1-8B",
        gpu="rtx4090",
        tps=(1,),
        engine_version="0.19.0",
        llms=_LLAMA,
    ),
    Published(
        source=LLMSERVINGSIM,
        format_name="llmservingsim",
        folder="RTXPRO6000/meta-llama/Llama-3.1-8B",
        gpu="rtx_pro_6000",
        tps=(1, 2),
        engine_version="0.19.0",
        llms=_LLAMA,
        beside=_RTX_PRO,
        beside_for=ALL_REDUCE,
    ),
    Published(
        source=LLMSERVINGSIM,
        format_name="llmservingsim",
        folder="RTXPRO6000/Qwen/Qwen3-32B",
        gpu="rtx_pro_6000",
        tps=(2,),
        engine_version="0.19.0",
        llms=("qwen3_32b",),
        beside=_RTX_PRO,
        beside_for=ALL_REDUCE,
    ),
    Published(
        source=AICONFIGURATOR,
        format_name="aiconfigurator",
        folder="a100_sxm",
        gpu="a100_80g",
        tps=(1, 2, 4, 8),
        engine_version="0.14.0",
    ),
    Published(
        source=AICONFIGURATOR,
        format_name="aiconfigurator",
        folder="h100_sxm",
        gpu="h100",
        tps=(1, 2, 4, 8),
        engine_version="0.19.0",
    ),
    Published(
        source=AICONFIGURATOR,
        format_name="aiconfigurator",
        folder="h200_sxm",
        gpu="h200",
        tps=(1, 2, 4, 8),
        engine_version="0.19.0",
        llms=(),
        beside="h100_sxm",
        beside_for="prefill attention, as its own is impossible",
    ),
    Published(
        source=AICONFIGURATOR,
        format_name="aiconfigurator",
        folder=_RTX_PRO,
        gpu="rtx_pro_6000",
        tps=(1, 2, 4, 8),
        engine_version="0.19.0",
    ),
)


def published_for(gpu: str, llm: LlmShape, tp: int) -> Published | None:
    """The first entry that covers the combination: measured for the model before composed."""
    return next((tables for tables in PUBLISHED if tables.covers(gpu, llm, tp)), None)
