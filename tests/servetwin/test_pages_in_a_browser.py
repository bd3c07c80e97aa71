"""Pages in a headless browser: nothing is cut, nothing is fetched, nothing fails, and the filter filters."""

from pathlib import Path

import pytest

from scripts import browser
from servetwin.cli import main as cli
from tests.worlds.production import ANSWERS

FEW = ("trace.requests=60", "trace.rate_per_s=20", "uncertainty=off")
SCALED = (
    "system=blitzscale",
    "trace=azure_code_like",
    "cluster=blitz_b",
    "journal=true",
    "series.period_s=1",
)
PAGES = (
    "run/report.html",
    "ranges/report.html",
    "compare.html",
    "sweep/report.html",
    "plan/report.html",
    "advise/report.html",
)
WIDTHS = (390, 768, 1200, 1600)

pytestmark = pytest.mark.skipif(
    browser.installed() is None, reason=f"no browser here: install one of {', '.join(browser.BROWSERS)}"
)


@pytest.fixture(scope="module")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    at = tmp_path_factory.mktemp("pages")
    even = ("trace=azure_conv_like", "trace.requests=60", "trace.rate_per_s=20", "cluster=a100_x2")
    assert cli.run(["simulate", *SCALED, *FEW, f"out={at / 'run'}"]) == 0
    assert cli.run(["simulate", *even, "journal=true", f"out={at / 'ranges'}"]) == 0
    assert cli.run(["compare", str(at / "ranges"), str(at / "run"), f"page={at / 'compare.html'}"]) == 0
    swept = ("system=vllm,round_robin", "seed=0,1", "trace.rate_per_s=20,400", *even[:2], even[3])
    assert cli.run(["sweep", *swept, "processes=1", f"out={at / 'sweep'}"]) == 0
    asked = ("gpu=a100,h100", "model.tp=1", "slo.ttft_p99_ms=800", "max_gpus=4", "processes=1")
    assert cli.run(["plan", *even[:3], *asked, "headroom=false", f"out={at / 'plan'}"]) == 0
    kept = (f"log={ANSWERS}", "model=tiny_llama", "cluster=local_3x1", "engine.kv_tokens=16384")
    assert cli.run(["advise", *kept, "processes=1", f"out={at / 'advise'}"]) == 0
    return at


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
@pytest.mark.parametrize("page", PAGES)
def test_a_page_is_whole_at_every_width(pages: Path, shown: browser.Browser, page: str, dark: bool) -> None:
    for width in WIDTHS:
        look = shown.look(pages / page, width, dark)
        assert look.errors == [], (page, width)
        assert look.requested == [], (page, width)
        assert look.width <= width, (page, width, look.cut)
        assert look.cut == [], (page, width)


def test_dark_and_light_differ(pages: Path, shown: browser.Browser) -> None:
    colors = []
    for dark in (False, True):
        shown.look(pages / PAGES[0], 768, dark)
        colors.append(shown.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert colors[0] != colors[1]


def test_decisions_are_filtered_by_words_and_kind(pages: Path, shown: browser.Browser) -> None:
    shown.look(pages / PAGES[0], 1200)
    count = "document.querySelectorAll('#decided tr[data-kind]:not([hidden])').length"
    kind = "const k=document.getElementById('of-kind');k.value='{}';k.dispatchEvent(new Event('change'))"
    text = "const t=document.getElementById('with-text');t.value='{}';t.dispatchEvent(new Event('input'))"
    every = shown.evaluate(count)
    shown.evaluate(f"{{{kind.format('AllocateGpus')}}}")
    allocated = shown.evaluate(count)
    assert 0 < allocated < every
    shown.evaluate(f"{{{text.format('no such words')}}}")
    assert shown.evaluate(count) == 0
    shown.evaluate(f"{{{text.format('')};{kind.format('')}}}")
    assert shown.evaluate(count) == every


def test_a_fault_of_a_page_is_seen(tmp_path: Path, shown: browser.Browser) -> None:
    """The measure itself: a page that asks for a file, is too wide and fails."""
    page = tmp_path / "bad.html"
    page.write_text(
        '<main><p style="width:900px">wide</p><div style="width:20px"><span style="white-space:nowrap">'
        'cut off words of a card</span></div><img src="file:///none.png"></main><script>missing()</script>'
    )
    look = shown.look(page, 390)
    assert look.width > 390 and look.errors and look.requested
    assert not shown.look(page, 1600).width > 1600
