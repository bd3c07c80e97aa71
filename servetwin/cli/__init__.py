"""Arguments and output of the commands."""

import sys

from servetwin.shadowed_packages import namesake

# Here, because the commands' own imports would end in a user's module.
if (_sentence := namesake()) is not None:
    print(f"servetwin: {_sentence}", file=sys.stderr)
    raise SystemExit(2)
