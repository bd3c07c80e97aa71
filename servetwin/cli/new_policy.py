"""``servetwin new-policy``: writes a template for the user's own policy."""

from collections.abc import Sequence
from pathlib import Path

from servetwin.cli.flags import asked_for_json
from servetwin.cli.process import tell
from serving.vocabulary.errors import UserError


def new_policy(words: Sequence[str]) -> int:
    """Write the template; exit status 0."""
    words, as_json = asked_for_json(words)
    if len(words) != 2:
        raise UserError("new-policy takes a group and a name: write servetwin new-policy dispatch MyPolicy")
    from servetwin.config.policy import new_policy as stub

    made = stub.new_policy(words[0], words[1], Path.cwd())
    lines = (
        f"{made.module.name}: the policy; change it",
        f"{made.test.name}: python -m pytest {made.test.name}",
        f"run it: servetwin simulate {' '.join(made.words)} out=out/{made.module.stem}",
    )
    tell({"module": str(made.module), "test": str(made.test), "words": made.words}, lines, as_json)
    return 0
