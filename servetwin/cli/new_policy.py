"""``servetwin new-policy``: writes a template for the user's own policy."""

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell, telling
from serving.vocabulary.errors import UserError

USAGE: Final = """servetwin new-policy: a policy of your own to start from, in the folder you are in

  servetwin new-policy GROUP NAME    GROUP: dispatch, admission, batcher, scaler, provision, live or migration

Example: servetwin new-policy dispatch MyDispatch
writes my_dispatch.py, a class that works, and test_my_dispatch.py, which pytest runs
(docs/WRITE_A_POLICY.md)
"""


def new_policy(words: Sequence[str]) -> int:
    """Write the template; exit status 0."""
    if not words or any(word in ("-h", "--help", "help") for word in words):
        with telling():
            print(USAGE, end="")
        return 0 if words else 2
    words, as_json = asked_for_json(words)
    if len(words) != 2:
        raise UserError("new-policy takes a group and a name: write servetwin new-policy dispatch MyPolicy")
    from servetwin.config.policy import new_policy as stub

    made = stub.new_policy(words[0], words[1], Path.cwd())
    lines = (
        f"{made.module.name}: the policy; change it",
        f"{made.test.name}: pytest {made.test.name}",
        f"run it: servetwin simulate {' '.join(made.words)} out=out/{made.module.stem}",
    )
    tell({"module": str(made.module), "test": str(made.test), "words": made.words}, lines, as_json)
    return 0
