"""``servetwin plan``: its help text and the command."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import telling

USAGE: Final = """servetwin plan: fewest GPUs, highest rate or cheapest layout that meets an objective

  servetwin plan trace=T model=M gpu=h100 slo.ttft_p99_ms=500             fewest GPUs (docs/PLAN.md)
  servetwin plan ... gpu=h100,a100 model.tp=4,8 system=vllm,vllm_full     the best of several layouts
  servetwin plan ... find=rate gpus=16                                    the highest rate that 16 GPUs serve
  servetwin plan ... find=cheapest price.h100=2.5EUR price.a100=1.3EUR    least money

Objective, one or more: slo.{ttft,tpot,itl,e2e}_{mean,p50,p90,p95,p99,max}_ms=N (at most),
slo.attainment=0.99 (at least; of slo.ttft_ms and slo.tpot_ms). Other keys are those of servetwin simulate;
several values (A,B) make layouts of their own.

  gpu=a100                GPUs without links, or a cluster that has them, such as blitz_a (split systems)
  model.tp=1,2,4,8        what was not given is tried
  split=0.25,0.5          share of the instances that prefill, where prefill and decode are apart
  max_gpus=256            no more than these
  prices=FILE.yaml        per_gpu_hour, source, date and currency by GPU
  currency=EUR            of all prices, if they name none
  headroom=true           by how much the rate may grow at the answer
  window_s=60             the busiest stretch that is told
  halving=true            of more than 4 layouts the worse half is dropped by the first eighth of the requests
  processes=2  out=DIR    (plan.json, report.html)  json=true

Each answer is given as modelled and at both ends of the step times' error (docs/HOW_FAR_OFF.md).
"""


def plan(words: Sequence[str]) -> int:
    """Exit status 0, or 1 if nothing meets the objective."""
    if not words or any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0 if words else 2
    from servetwin.cli.plan_answer import answer

    return answer(words)
