"""Serves a local page with a handful of controls that simulates again at every change."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

from servetwin.cli.flags import asked_for_json
from servetwin.cli.own_keys import check_range, split_own
from servetwin.cli.process import telling
from servetwin.config.overrides import Wanted, parse_words, wanted_by
from servetwin.explore.controls import state_of
from servetwin.explore.runs import Runs
from servetwin.explore.server import serve

_OWN: Final[Mapping[str, Wanted]] = {"port": wanted_by(int), "open": wanted_by(bool)}


def explore(words: Sequence[str]) -> int:
    """Exit status 0 after Ctrl-C. UserError for unusable words and a port that is taken."""
    words, as_json = asked_for_json(words)
    own, rest = split_own(words, _OWN)
    first = {word.key: word.text for word in parse_words(rest)}
    state_of(first).words()
    port = check_range("port", own.get("port", 0), 0, 65535)
    with TemporaryDirectory(prefix="servetwin-explore-") as folder:
        try:
            serve(Runs(Path(folder)), first, port=port, tell=lambda address: _tell(address, own, as_json))
        except KeyboardInterrupt:
            return 0
    return 0


def _tell(address: str, own: Mapping[str, Any], as_json: bool) -> None:
    hint = "open it in a browser of this machine; Ctrl-C ends it"
    with telling():
        print(json.dumps({"address": address}) if as_json else f"{address}\n{hint}", flush=True)
    if own.get("open"):
        import webbrowser

        webbrowser.open(address)
