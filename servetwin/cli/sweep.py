"""``servetwin sweep``: its help text and the command."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import telling

USAGE: Final = """servetwin sweep: many runs of one command, each kept as it finishes

  servetwin sweep KEY=A,B KEY=range(1,5) ... out=DIR      every combination (docs/SWEEP.md)
  servetwin sweep sweep=NAME-or-FILE ... out=DIR          what a file lists, as Hydra's sweeper.params
  servetwin sweep KEY=interval(0.1,1) search.minimize=ttft_ms.p99 search.trials=40 ... out=DIR    a search

Values are written as for Hydra's --multirun ("seed=range(0,8)" is 0 to 7); KEY is any key or group of
servetwin simulate. The same command again goes on where it was ended, and repeats no point.

  processes=2             processes of this machine (launcher=local)
  launcher=ray            a Ray cluster: ray.address=auto attaches to a running one, else one is started here
  launcher=slurm          slurm.jobs=8 jobs (slurm.partition=NAME; slurm.cluster=local without Slurm)
  folders=true            every run's result folder too, in DIR/runs
  metrics=ttft_ms.p99,tpot_ms.mean    the numbers that decide what is best and are shown (else
                          slo.attainment and ttft_ms.p99 decide)
  json=true               the means over seeds as one JSON document

DIR holds sweep.parquet (a row per point), means.csv (mean and 95 % interval over seeds), report.html,
sweep.json, points.jsonl. uncertainty=off unless you write uncertainty=on, which adds the range of step times
and runs each point three times.

Example: servetwin sweep system=vllm,round_robin seed=0,1,2 trace=azure_conv_like trace.requests=2000 \\
           trace.rate_per_s=20,30,40 cluster=a100_x8 out=out/rates
"""


def sweep(words: Sequence[str]) -> int:
    """Execute the sweep in ``words``; exit status 0, or 2 if every point was refused."""
    if not words or any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0 if words else 2
    from servetwin.cli.sweep_answer import answer

    return answer(words)
