"""``servetwin compare``: its help text and the command."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import telling

USAGE: Final = """servetwin compare: runs beside each other, or how far a run is from a measured one

  servetwin compare DIR DIR ...                 runs: paired differences, settings, first other decision
  servetwin compare DIR DIR ... page=FILE.html  the same as one page (overwrite=true replaces one);
                                                json=true for programs
  servetwin compare SWEEP SWEEP ...             sweeps, by points that both have; page=, json=true too

  servetwin compare DIR MEASURED                error by metric, percentile and load regime, and where it lies
  servetwin compare DIR MEASURED json=true      the same as one JSON document
  servetwin compare DIR MEASURED format=NAME    if the format is not told right from the content
  servetwin compare DIR MEASURED run=0          which run of a file that holds several

  servetwin compare DIR REAL REAL ...           a simulated run and repeats of the real one: does it differ
                                                more than they do? Exit status 1: it does, or nobody can tell

  servetwin compare RUN RUN ... against RUN RUN ...
                                                the same requests measured by two clients: do they differ more
                                                than repeats of one client? Exit status 1: they do; json=true

DIR is the out= of a run; with series.period_s=1 it has what load regimes are told from. MEASURED has
per-request timings of the same workload: csv, jsonl (columns of ours), vllm_bench, guidellm, aiperf,
llmservingsim, llmservingsim_csv, or servetwin (the out= of another run, such as that of realexec).
docs/COMPARE.md describes them.
"""


def compare(words: Sequence[str]) -> int:
    """Print the comparison that ``words`` request (``compare_text.answer``); exit status 0."""
    if any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0
    from servetwin.cli.compare_text import answer

    return answer(words)
