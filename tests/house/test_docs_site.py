"""The documentation as a site: every link of a page leads to a page, a heading or a picture that is there."""

import shlex
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path

import pytest

from scripts import docs_pictures, docs_site, scalers_picture

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
        if "decisions/" not in name and name != "docs/README.html" and not name.startswith("benchmarks/"):
            assert name in first, name
        assert all(not place.startswith("http") and place != "script" for place in one.loaded), name


def test_a_link_that_leads_nowhere_is_told(tmp_path: Path) -> None:
    for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md", "benchmarks/README.md", "docs/README.md"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("# A page\n\n## A page\n\n[up](#a-page-1)\n", encoding="utf-8")
    assert len(docs_site.build(tmp_path, tmp_path / "out")) == 5
    (tmp_path / "docs/README.md").write_text("[a](../README.md#b) [c](d.md) ![e](pictures/f.png)", "utf-8")
    with pytest.raises(docs_site.SiteError) as wrong:
        docs_site.build(tmp_path, tmp_path / "out")
    assert "README.md has no heading #b" in str(wrong.value)
    assert "d.md is no page" in str(wrong.value) and "pictures/f.png is no page" in str(wrong.value)


def test_the_gallery_has_every_picture_with_the_commands_that_make_it() -> None:
    text = (ROOT / "docs/papers/GALLERY.md").read_text(encoding="utf-8")
    lines = [shlex.split(line) for line in text.replace("\\\n", " ").splitlines() if line.startswith("    ")]
    assert len(docs_pictures.GALLERY) == 6
    for picture in docs_pictures.EVERY:
        path = docs_pictures.PICTURES / f"{picture.name}.png"
        assert path.read_bytes().startswith(b"\x89PNG") and path.stat().st_size <= docs_pictures.MOST_BYTES
        assert f"](../pictures/{picture.name}.png)" in text
        for command in picture.commands:
            assert shlex.split(command) in lines, command
    there = {path.stem for path in docs_pictures.PICTURES.iterdir()}
    assert there == {picture.name for picture in docs_pictures.EVERY} | {scalers_picture.PICTURE.stem}
    assert scalers_picture.PICTURE.stat().st_size <= docs_pictures.MOST_BYTES
