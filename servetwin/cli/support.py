"""``servetwin support``: its help text and the command."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import telling

USAGE: Final = """servetwin support: which step times and how much KV memory a combination has

  servetwin support                                  every model on every GPU, with the best rung; and what is
                                                     measured, derived or assumed of each, with its error
  servetwin support model=M   or   gpu=G             one model on every GPU, or one GPU with every model
  servetwin support model=M gpu=G [tp=N] [profile=FILE_OR_FOLDER] [engine=vllm_v1]
  servetwin support cluster=C [plot=FILE.png]        hosts, links, rates of a cluster, and what loads take
                                                     (overwrite=true replaces FILE.png)

M is a model of the catalogue, a config.json or the folder that holds one; without tp the smallest that fits.
C is a cluster of the catalogue, one of another size (blitz_a_16x8: 16 hosts of 8 GPUs), or a YAML file.
"""


def support(words: Sequence[str]) -> int:
    """Print the data on the combination in ``words`` (``support_answer.answer``); exit status 0."""
    if any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0
    from servetwin.cli.support_answer import answer

    return answer(words)
