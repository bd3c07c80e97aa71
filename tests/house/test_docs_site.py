"""The documentation as a site: every link of a page leads to a page, a heading or a picture that is there."""

import json
import re
import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts import browser, docs_pictures, docs_site, explore_picture, scalers_picture

ROOT = Path(__file__).resolve().parents[2]


class Found(HTMLParser):
    """Names of headings, and where links and pictures lead."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self.ids: set[str] = set()
        self.links: list[str] = []
        self.loaded: list[str] = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = {name: value or "" for name, value in attrs}
        self.ids |= {given["id"]} if "id" in given else set()
        self.links += [given[name] for name in ("href", "src") if name in given]
        if tag in ("script", "link", "iframe", "img"):
            self.loaded.append(given.get("src", tag))


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("site")
    assert docs_site.main([f"out={out}"]) == 0
    return out


def pages(site: Path) -> Iterator[tuple[Path, Found]]:
    for path in sorted(site.rglob("*.html")):
        yield path, Found(path)


def test_every_link_of_the_site_leads_somewhere(site: Path) -> None:
    found = {path.resolve(): one for path, one in pages(site)}
    assert len(found) > 40
    for path, one in found.items():
        for link in one.links:
            if link.startswith(("http://", "https://")):
                continue
            name, _, anchor = link.partition("#")
            target = (path.parent / name).resolve() if name else path
            assert target.is_file() and target.is_relative_to(site), f"{path.name}: {link}"
            assert not anchor or anchor in found[target].ids, f"{path.name}: {link}"


def test_every_page_is_in_the_menu_and_loads_nothing_from_elsewhere(site: Path) -> None:
    first = set(Found(site / "index.html").links)
    for path, one in pages(site):
        name = path.relative_to(site).as_posix()
        if "decisions/" not in name and "lab/" not in name and name != "docs/README.html":
            assert name in first, name
        assert all(not place.startswith("http") and place != "script" for place in one.loaded), name


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A page\n\n## A page\n\n[up](#a-page-1)\n", encoding="utf-8")
    assert len(docs_site.build(tmp_path, tmp_path / "out")) == 5 + len(
        ("style.css", "search.js", "sections.js")
    )
    (tmp_path / "docs/README.md").write_text("[a](../README.md#b) [c](d.md) ![e](pictures/f.png)", "utf-8")
    with pytest.raises(docs_site.SiteError) as wrong:
        docs_site.build(tmp_path, tmp_path / "out")
    assert "README.md has no heading #b" in str(wrong.value)
    assert "d.md is no page" in str(wrong.value) and "pictures/f.png is no page" in str(wrong.value)


def test_pages_follow_each_other_in_the_order_of_the_menu(site: Path) -> None:
    """From the first page by "next" to the last one; each names the page before it."""
    menu = [link for link in Found(site / "index.html").links if link.endswith(".html")]
    path, seen = site / "index.html", list[str]()
    while path is not None:
        seen.append(path.relative_to(site).as_posix())
        turn = path.read_text("utf-8").partition('<div class="turn">')[2].partition("</div>")[0]
        links = dict(re.findall(r'rel="(\w+)" href="([^"]+)"', turn))
        if len(seen) > 1:
            assert (path.parent / links["prev"]).resolve() == (site / seen[-2]).resolve()
        path = (path.parent / links["next"]).resolve() if "next" in links else None
    assert len(seen) == len(set(seen)) > 40 and set(seen) <= {"index.html", *menu}


def test_sections_for_the_search_lead_to_headings(site: Path) -> None:
    text = (site / "site/sections.js").read_text("utf-8").removeprefix("const SECTIONS = ").rstrip(";\n")
    sections = json.loads(text)
    ids = {path.relative_to(site).as_posix(): one.ids for path, one in pages(site)}
    assert len(sections) > 300
    for page, anchor, title, heading, _ in sections:
        assert title and heading and (not anchor or anchor in ids[page]), (page, anchor)


@pytest.mark.parametrize("dark", [False, True], ids=["light", "dark"])
def test_the_site_is_whole_on_a_phone_and_a_desk(site: Path, shown: browser.Browser, dark: bool) -> None:
    for name in ("index.html", "docs/reference/CONFIGURATION.html", "docs/how-to/PLAN.html"):
        for width in (390, 1200):
            look = shown.look(site / name, width, dark)
            assert look.errors == [] and look.width <= width, (name, width, look.errors, look.cut)


def test_the_search_finds_a_section_and_leads_there(site: Path, shown: browser.Browser) -> None:
    """By the keyboard: "/" goes to the field, words list sections, Escape empties it."""
    shown.look(site / "docs/how-to/PLAN.html", 390)
    shown.evaluate("document.dispatchEvent(new KeyboardEvent('keydown', {key: '/', bubbles: true}))")
    assert shown.evaluate("document.activeElement.id") == "asked"
    typed = "asked.value = '{}', asked.dispatchEvent(new Event('input'))"
    shown.evaluate(typed.format("capacity req"))
    links = shown.evaluate("[...found.querySelectorAll('a')].map(a => a.href)")
    assert 0 < len(links) <= 12 and all(link.startswith("file:") for link in links)
    assert any("METRICS" in link for link in links)
    shown.evaluate(typed.format("nosuchwordanywhere"))
    assert "write fewer or other words" in shown.evaluate("found.textContent")
    shown.evaluate("asked.dispatchEvent(new KeyboardEvent('keydown', {key: 'Escape'}))")
    assert shown.evaluate("found.childElementCount") == 0


def test_pages_have_every_picture_with_the_commands_that_make_it() -> None:
    shown = {
        "docs/papers/GALLERY.md": (docs_pictures.GALLERY + docs_pictures.PHONE, "../pictures"),
        "README.md": (docs_pictures.README, "docs/pictures"),
    }
    assert len(docs_pictures.GALLERY) == 6 and len(docs_pictures.README) == 2
    for page, (pictures, folder) in shown.items():
        text = (ROOT / page).read_text(encoding="utf-8")
        lines = [
            shlex.split(line, comments=True)
            for line in text.replace("\\\n", " ").splitlines()
            if line.startswith("    servetwin")
        ]
        for picture in pictures:
            path = docs_pictures.PICTURES / f"{picture.name}.png"
            assert path.read_bytes().startswith(b"\x89PNG")
            assert path.stat().st_size <= docs_pictures.MOST_BYTES
            assert f"]({folder}/{picture.name}.png)" in text
            for command in picture.commands:
                assert shlex.split(command) in lines, command
    there = {path.stem for path in docs_pictures.PICTURES.glob("*.png")}
    others = [scalers_picture.PICTURE, explore_picture.PICTURE]
    assert there == {picture.name for picture in docs_pictures.EVERY} | {path.stem for path in others}
    assert all(path.stat().st_size <= docs_pictures.MOST_BYTES for path in others)
