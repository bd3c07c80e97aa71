"""``servetwin story``: its help text and the command."""

from collections.abc import Sequence
from typing import Final

from servetwin.cli.process import telling

USAGE: Final = """servetwin story: what happened to one request or one instance of a run, from its journal

  servetwin story DIR                     what the journal in DIR holds: its requests and instances
  servetwin story DIR request=17          everything that happened to request 17
  servetwin story DIR instance=3          everything that happened to instance 3
  servetwin story DIR request=17 json=true     the same as JSON lines: time_ns, what, why

DIR is the out= of a run with journal=true, simulated or real; of a run that was cut it is told up to there.
"""


def story(words: Sequence[str]) -> int:
    """Print the story that ``words`` request (``story_text.tell``); exit status 0."""
    if any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0
    from servetwin.cli.story_text import tell

    return tell(words)
