"""Every kind of page at desk and phone width, light and dark: ``python -m scripts.page_pictures``.

Writes docs/pictures/pages/NAME_WIDTH_SCHEME.png, to be looked at after a change of the pages. Needs a browser
and pillow, which matplotlib brings.
"""

import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from scripts import browser, docs_site
from scripts.docs_pictures import PICTURES, ROOT, with_few_colors
from servetwin.cli import main as cli
from servetwin.explore.runs import Runs
from servetwin.explore.server import Explorer, Server

FOLDER: Final = PICTURES / "pages"
WIDTHS: Final = (390, 1200)
_HEIGHT: Final = 1000  # of a page's top
_SMALL: Final = ("trace=azure_conv_like", "trace.requests=500", "trace.rate_per_s=20")
_COMMANDS: Final = {
    "report": ("simulate", *_SMALL, "system=blitzscale", "cluster=blitz_b"),
    "plan": ("plan", *_SMALL, "gpu=a100", "slo.ttft_p99_ms=500", "price.a100=2EUR"),
    "sweep": ("sweep", *_SMALL[:2], "trace.rate_per_s=10,20,30", "system=vllm,round_robin", "seed=0,1",
              "cluster=a100_x2", "processes=1"),
}  # fmt: skip
_DONE: Final = "document.getElementById('result').getAttribute('aria-busy') === 'false'"


def addresses(folder: Path, server: Server) -> Iterator[tuple[str, str, str]]:
    """Yield (name, address, what is true once it is complete) of each kind of page."""
    docs_site.build(ROOT, folder / "site")
    yield "readme", (folder / "site" / "index.html").as_uri(), "true"
    for name, words in _COMMANDS.items():
        assert cli.run([*words, f"out={folder / name}"]) == 0, name
        yield name, (folder / name / "report.html").as_uri(), "true"
    yield "explore", server.address, _DONE


def photograph(shown: browser.Browser, address: str, complete: str, name: str, folder: Path) -> None:
    """Write the top of a page at each width and scheme."""
    for width in WIDTHS:
        for scheme in ("light", "dark"):
            shown.open(address, width, scheme == "dark")
            while not shown.evaluate(complete):
                time.sleep(0.1)
            shown.picture(folder / "shot.png", width, _HEIGHT)
            path = FOLDER / f"{name}_{width}_{scheme}.png"
            path.write_bytes(with_few_colors(folder / "shot.png"))


def main() -> None:
    """Make the pages, photograph them."""
    program = browser.installed()
    if program is None:
        raise SystemExit(f"no browser here: install one of {', '.join(browser.BROWSERS)}")
    FOLDER.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        with Server(Explorer(Runs(folder / "runs"), {}), 0) as server, browser.Browser(program) as shown:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            for page, address, complete in addresses(folder, server):
                photograph(shown, address, complete, page, folder)
            server.shutdown()


if __name__ == "__main__":
    main()
