"""Workloads and systems of Llumnix's experiments, in the words of ``servetwin simulate``.

Numbers are of sections 6.1 to 6.5 of the paper and of its artefact (AlibabaPAI/llumnix, branch osdi24ae).
"""

from dataclasses import dataclass
from typing import Final

from experiments.common.set_up import Case, SetUp, Words, last_words
from traces.synthetic.llumnix_like import FIGURE_11_RATES_PER_S

PAPER_REQUESTS: Final = 10_000
"""The number of requests of each run of Figures 11 to 15; runs with fewer are not compared with the paper."""
# Its lengths go beyond LLaMA's context, so the length is written; 12,800 tokens a pass is the artefact's.
_LONG: Final[Words] = ("engine.max_model_len=12800", "engine.max_new_tokens=6144", "uncertainty=off")
ENGINE: Final[Words] = ("engine.max_num_batched_tokens=12800", *_LONG)
# vLLM keeps memory for the pass and gives the rest to KV: on an A10 862, 832, 831 and 792 blocks with 4,400,
# 7,500, 8,700 and 12,000 tokens a pass (the table of the artefact's simulator, vllm/simulator/profiling.py).
# With 12,800 783 are left: a layer of LLaMA-7B holds 90.6 kB per token at its widest (gate and up projection,
# their product, three vectors of the hidden size; float16). The 13,616 tokens that section 6.1 names are 851.
KV_BLOCKS: Final = {12_800: 783, 12_000: 792}


def _cluster(pass_tokens: int) -> Words:
    tokens = (
        f"engine.max_num_batched_tokens={pass_tokens}",
        f"engine.kv_tokens={KV_BLOCKS[pass_tokens] * 16}",
    )
    return ("cluster=llumnix", "model=llama_7b", "engine=vllm_0_1_7", *tokens, *_LONG)


CLUSTER: Final = _cluster(12_800)
CLUSTER_12000: Final = _cluster(12_000)
"""The cluster and engine of Figures 13 to 15."""
LLUMNIX: Final = "llumnix"
INFAAS: Final = "infaas_pp"
ROUND_ROBIN: Final = "round_robin"
_TABLE_1: Final = "lengths drawn from the percentiles of Table 1"


@dataclass(frozen=True, slots=True)
class PaperWorkload:
    """A trace as the paper titles it. migrate_out: the artefact's threshold for it, in blocks per request.

    recorded: it is one of conversations, of which the paper has percentiles alone. printed: its figure is
    among the points that may be here.
    """

    title: str
    trace: str
    migrate_out: int = 3
    recorded: bool = False
    printed: bool = True

    @property
    def rates_per_s(self) -> tuple[float, ...]:
        """The rates of Figure 11 for this trace."""
        return FIGURE_11_RATES_PER_S[self.trace]

    def at(
        self,
        rate_per_s: float,
        requests: int,
        gap_cv: float = 1.0,
        words: Words = CLUSTER,
        priority_share: float = 0.0,
    ) -> SetUp:
        """So many requests at this rate, a share of them drawn to have a high priority."""
        trace = [f"trace={self.trace}", f"trace.rate_per_s={rate_per_s:g}", f"trace.requests={requests}"]
        name = f"{self.title} at {rate_per_s:g}/s"
        if gap_cv != 1:
            trace.append(f"trace.gap_cv={gap_cv:g}")
            name += f", CV {gap_cv:g}"
        if priority_share:
            trace.append(f"trace.priority_ratio={priority_share:g}")
            name += f", {priority_share:.0%} high"
        stand_in = _TABLE_1 if self.recorded else ""
        return SetUp(name, words, tuple(trace), rate="written", stand_in=stand_in)


WORKLOADS: Final = (
    PaperWorkload("ShareGPT", "llumnix_sharegpt", recorded=True),
    PaperWorkload("BurstGPT", "llumnix_burstgpt", recorded=True),
    PaperWorkload("S-S", "llumnix_ss"),
    PaperWorkload("M-M", "llumnix_mm", migrate_out=10),
    PaperWorkload("L-L", "llumnix_ll"),
    PaperWorkload("S-L", "llumnix_sl", migrate_out=10, printed=False),
    PaperWorkload("L-S", "llumnix_ls", printed=False),
)
BY_TITLE: Final = {workload.title: workload for workload in WORKLOADS}


def system(
    name: str,
    set_up: SetUp,
    workload: PaperWorkload,
    *,
    extra: Words = (),
    columns: Words = (),
    label: str = "",
) -> Case:
    """Llumnix without priorities, whose words ``extra`` may change, or a baseline without migration."""
    words: Words = (f"system={name}",)
    if name == LLUMNIX:
        words = ("system=llumnix_base", f"system.migration.migrate_out_threshold={workload.migrate_out}")
    return Case(label or name, set_up, last_words((*words, *extra)), columns=columns)
