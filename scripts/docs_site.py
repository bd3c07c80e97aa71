"""The documentation as static pages that open offline: ``python -m scripts.docs_site`` (make docs)."""

import itertools
import json
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import astuple, dataclass
from html import escape
from pathlib import Path, PurePosixPath
from string import Template
from typing import Final

from markdown_it import MarkdownIt
from markdown_it.token import Token

ROOT: Final = Path(__file__).resolve().parents[1]
# Page of the repository -> page of the site; of docs/ every page is taken.
_OTHERS: Final = {
    "README.md": "index.html",
    "CONTRIBUTING.md": "CONTRIBUTING.html",
    "CHANGELOG.md": "CHANGELOG.html",
    "benchmarks/README.md": "benchmarks/README.html",
}
# Folder -> ending of its files that the site has unchanged.
_AS_THEY_ARE: Final = {
    "docs/pictures": ".png",
    "docs/pictures/pages": ".png",
    "docs/fidelity": ".svg",
    "notebooks": ".ipynb",
}
# Pages that the README of their own folder lists.
_LISTED_ELSEWHERE: Final = ("/decisions/", "/lab/", "docs/README.md")
# Of docs/README.md: the heading of a kind of pages, or a page with the question that it answers.
_NAV: Final = re.compile(r"^## ([\w-]+)|^\| \[([\w./-]+)\]\(([\w./-]+)\) \| (.+) \|$", re.MULTILINE)
_NOT_IN_A_SLUG: Final = re.compile(r"[^\w\- ]")
_FILES: Final = Path(__file__).resolve().parent / "site_files"
_COPIED: Final = ("style.css", "search.js")
# Pages are opened as files as well: "self" is no origin there.
_POLICY: Final = "default-src 'none'; style-src 'self' file:; script-src 'self' file:; img-src 'self' file:"


class SiteError(Exception):
    """A page that leads nowhere, in one sentence."""


@dataclass(frozen=True, slots=True)
class Page:
    """source: path in the repository; target: path in the site; both POSIX and relative."""

    source: str
    target: str


def pages(root: Path) -> list[Page]:
    """README first, then docs/ in order of name, then the rest."""
    docs = sorted(path.relative_to(root).as_posix() for path in (root / "docs").rglob("*.md"))
    found = [Page(name, str(PurePosixPath(name).with_suffix(".html"))) for name in docs]
    others = [Page(name, target) for name, target in _OTHERS.items()]
    return [others[0], *found, *others[1:]]


@dataclass(frozen=True, slots=True)
class Entry:
    """A page in the menu: what it is called, where it lies in the site, which question it answers."""

    name: str
    target: str
    question: str = ""


@dataclass(frozen=True, slots=True)
class Section:
    """A heading and the text below it, for the search: the page's target and title, the heading's anchor."""

    target: str
    anchor: str
    title: str
    heading: str
    text: str


def build(root: Path, out: Path) -> list[Path]:
    """Write every page and picture; what was written. SiteError for a link that leads nowhere."""
    every = pages(root)
    targets = {page.source: page.target for page in every}
    anchors = {page.source: set(_anchors((root / page.source).read_text("utf-8"))) for page in every}
    wrong = [one for page in every for one in _wrong(root, page, targets, anchors)]
    if wrong:
        raise SiteError("; ".join(wrong))
    menu = _menu(root, targets)
    template = Template((_FILES / "page.html").read_text("utf-8"))
    written = []
    for page in every:
        body, title = _rendered(root, page, targets)
        whole = _whole(page, title=title, body=body, menu=menu, template=template)
        written.append(_written(out / page.target, whole))
    written += [_written(out / "site" / name, (_FILES / name).read_text("utf-8")) for name in _COPIED]
    found = [astuple(one) for page in every for one in _sections(root, page)]
    written.append(_written(out / "site/sections.js", f"const SECTIONS = {json.dumps(found)};\n"))
    for file in sorted(file for folder in _AS_THEY_ARE for file in (root / folder).glob("*")):
        source = file.relative_to(root)
        if _is_copied(PurePosixPath(source)):
            (out / source).parent.mkdir(parents=True, exist_ok=True)
            written.append(Path(shutil.copyfile(file, out / source)))
    return written


def _is_copied(source: PurePosixPath) -> bool:
    return _AS_THEY_ARE.get(str(source.parent)) == source.suffix


def _written(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text, encoding="utf-8")
    return path


def slug(heading: str) -> str:
    """As GitHub names the anchor of a heading."""
    return _NOT_IN_A_SLUG.sub("", heading.lower()).strip().replace(" ", "-")


def _parser() -> MarkdownIt:
    return MarkdownIt("commonmark").enable(["table", "strikethrough"])


def _anchors(text: str) -> Iterator[str]:
    return (anchor for _, anchor in _headings(_parser().parse(text)))


def _headings(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    """Each opening token with its anchor; one that is there already gets a number."""
    seen: dict[str, int] = {}
    for token, inline in itertools.pairwise(tokens):
        if token.type != "heading_open":
            continue
        name = slug("".join(part.content for part in inline.children or ()))
        count = seen.get(name, 0)
        seen[name] = count + 1
        yield token, f"{name}-{count}" if count else name


def _wrong(
    root: Path, page: Page, targets: Mapping[str, str], anchors: Mapping[str, set[str]]
) -> Iterator[str]:
    """A sentence for every link of the page that leads nowhere."""
    for _, link in _links(_parser().parse((root / page.source).read_text("utf-8"))):
        source, anchor = _source(root, page, link)
        if _is_copied(PurePosixPath(source)) and (root / source).is_file():
            continue
        if source and source not in targets:
            yield f"{page.source}: {link} is no page of the site"
        elif source and anchor and anchor not in anchors[source]:
            yield f"{page.source}: {source} has no heading #{anchor}"


def _links(tokens: list[Token]) -> Iterator[tuple[Token, str]]:
    for token in tokens:
        for part in token.children or ():
            for name in ("href", "src"):
                if isinstance(link := part.attrGet(name), str):
                    yield part, link


def _source(root: Path, page: Page, link: str) -> tuple[str, str]:
    """The file of the repository that a link names, and the heading; no file for one to elsewhere."""
    if link.startswith(("http://", "https://")):
        return "", ""
    path, _, anchor = link.partition("#")
    source = _joined(PurePosixPath(page.source).parent, path) if path else page.source
    return (f"{source}/README.md" if (root / source).is_dir() else source), anchor


def _rendered(root: Path, page: Page, targets: Mapping[str, str]) -> tuple[str, str]:
    """The page's HTML and its title."""
    parser = _parser()
    tokens = parser.parse((root / page.source).read_text("utf-8"))
    for token, anchor in _headings(tokens):
        token.attrSet("id", anchor)
    for part, link in _links(tokens):
        source, anchor = _source(root, page, link)
        if source:
            target = _relative(page.target, targets.get(source, source))
            part.attrSet("src" if part.tag == "img" else "href", f"{target}#{anchor}" if anchor else target)
    html = parser.renderer.render(tokens, parser.options, {})
    html = html.replace("<table>", '<div class="table"><table>').replace("</table>", "</table></div>")
    title = next((tokens[at + 1].content for at, one in enumerate(tokens) if one.tag == "h1"), page.source)
    return html, title


def _joined(folder: PurePosixPath, path: str) -> str:
    parts: list[str] = []
    for part in (*folder.parts, *PurePosixPath(path).parts):
        if part == "..":
            parts.pop()
        elif part != ".":
            parts.append(part)
    return "/".join(parts)


def _relative(here: str, target: str) -> str:
    """From one page of the site to another."""
    return "../" * (len(PurePosixPath(here).parts) - 1) + target


def _menu(root: Path, targets: Mapping[str, str]) -> dict[str, list[Entry]]:
    """Pages by the headings of docs/README.md, in its order; then those that it does not list."""
    groups = {"": [Entry("ServeTwin", "index.html")]}
    kind = ""
    for heading, _, path, question in _NAV.findall((root / "docs/README.md").read_text("utf-8")):
        if heading:
            kind = heading
        else:
            source = _file(root, f"docs/{path}")
            entry = Entry(_title(root, source), targets[source], re.sub(r"[`*]", "", question))
            groups.setdefault(kind, []).append(entry)
    listed = {entry.target for entries in groups.values() for entry in entries}
    others = [
        Entry(_title(root, source), target)
        for source, target in targets.items()
        if target not in listed and not any(folder in source for folder in _LISTED_ELSEWHERE)
    ]
    return {**groups, "More": others}


def _file(root: Path, source: str) -> str:
    """The page of a folder is its README."""
    return f"{source.rstrip('/')}/README.md" if (root / source).is_dir() else source


def _title(root: Path, source: str) -> str:
    heading = re.search(r"^# (.+)$", (root / source).read_text("utf-8"), re.MULTILINE)
    return re.sub(r"[`*]", "", heading[1]) if heading else PurePosixPath(source).stem


def _sections(root: Path, page: Page) -> Iterator[Section]:
    """A section for each heading of a page, with the text up to the next one."""
    tokens = _parser().parse((root / page.source).read_text("utf-8"))
    headings = {id(token): anchor for token, anchor in _headings(tokens)}
    title, anchor, heading, texts = _title(root, page.source), "", "", list[str]()
    for at, token in enumerate(tokens):
        if id(token) in headings:
            if texts:
                yield Section(page.target, anchor, title, heading or title, " ".join(texts))
            anchor, heading, texts = headings[id(token)], _plain(tokens[at + 1]), []
        elif token.type in ("inline", "fence", "code_block") and tokens[at - 1].type != "heading_open":
            texts.append(_plain(token))
    yield Section(page.target, anchor, title, heading or title, " ".join(texts))


def _plain(token: Token) -> str:
    """The words of a paragraph, a cell, a heading or a block of code."""
    words = "".join(part.content or " " for part in token.children) if token.children else token.content
    return " ".join(words.split())


def _whole(page: Page, *, title: str, body: str, menu: Mapping[str, list[Entry]], template: Template) -> str:
    groups = ""
    for kind, entries in menu.items():
        links = "".join(_link(page, entry, ' aria-current="page"') for entry in entries)
        groups += f"<h2>{escape(kind)}</h2>{links}" if kind else links
    return template.substitute(
        root="../" * (len(PurePosixPath(page.target).parts) - 1),
        policy=_POLICY,
        title=escape(title),
        body=body,
        turn=_turn(page, [entry for entries in menu.values() for entry in entries]),
        menu=groups,
    )


def _link(page: Page, entry: Entry, here: str) -> str:
    mark = here if entry.target == page.target else ""
    tip = f' title="{escape(entry.question)}"' if entry.question else ""
    return f'<a href="{_relative(page.target, entry.target)}"{mark}{tip}>{escape(entry.name)}</a>'


def _turn(page: Page, entries: list[Entry]) -> str:
    """Links to the page before and the page after, in the order of the menu."""
    at = next((at for at, entry in enumerate(entries) if entry.target == page.target), None)
    if at is None:
        return ""
    beside = [("prev", "← ", "", at - 1), ("next", "", " →", at + 1)]
    return "".join(
        f'<a rel="{which}" href="{_relative(page.target, entries[other].target)}">'
        f"{before}{escape(entries[other].name)}{after}</a>"
        for which, before, after, other in beside
        if 0 <= other < len(entries)
    )


def main(words: list[str]) -> int:
    """Exit status 0, or 2 for words and links that cannot be used."""
    given = dict(word.partition("=")[::2] for word in words)
    if set(given) - {"out"}:
        print("docs_site takes out=FOLDER", file=sys.stderr)
        return 2
    out = Path(given.get("out", "build/site"))
    try:
        written = build(ROOT, out)
    except SiteError as error:
        print(f"docs_site: {error}", file=sys.stderr)
        return 2
    print(f"{len(written)} files in {out}: open {out / 'index.html'}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
