"""The picture of docs/how-to/EXPLORE.md: ``python -m scripts.explore_picture``. Needs a browser."""

import tempfile
import threading
import time
from pathlib import Path
from typing import Final

from scripts import browser
from scripts.docs_pictures import PICTURES, with_few_colors
from servetwin.explore.runs import Runs
from servetwin.explore.server import Explorer, Server

PICTURE: Final = PICTURES / "explore.png"
SHOWN: Final = {"gpu": "blitz_b", "gpus": "16", "system": "blitzscale", "price": "2.5"}
_WIDTH, _HEIGHT = 1240, 900
_DONE: Final = "document.getElementById('result').getAttribute('aria-busy') === 'false'"


def photograph(server: Server, program: str, path: Path) -> None:
    """Write the page as it is after its first run."""
    with browser.Browser(program) as shown:
        shown.open(server.address, _WIDTH)
        while not shown.evaluate(_DONE):
            time.sleep(0.1)
        shown.picture(path, _WIDTH, _HEIGHT)


def main() -> None:
    """Serve the page, photograph it, keep few colours."""
    program = browser.installed()
    if program is None:
        raise SystemExit(f"no browser here: install one of {', '.join(browser.BROWSERS)}")
    with tempfile.TemporaryDirectory() as folder, Server(Explorer(Runs(Path(folder)), SHOWN), 0) as server:
        answering = threading.Thread(target=server.serve_forever, daemon=True)
        answering.start()
        photograph(server, program, shot := Path(folder) / "shot.png")
        server.shutdown()
        data = with_few_colors(shot)
    PICTURE.write_bytes(data)
    print(f"{PICTURE.name}: {len(data):,} bytes")


if __name__ == "__main__":
    main()
