"""The documentation as static pages that open offline: ``python -m scripts.docs_site`` (make docs)."""

import itertools
import re
import shutil
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path, PurePosixPath
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
_PICTURES: Final = "docs/pictures"
_NAV: Final = re.compile(r"^\| \[([\w./-]+)\]\(([\w./-]+)\) \| (.+) \|$", re.MULTILINE)
_NOT_IN_A_SLUG: Final = re.compile(r"[^\w\- ]")
STYLE: Final = """
:root{color-scheme:light dark;--bg:#fff;--side:#f6f7f9;--ink:#16202c;--soft:#5b6878;--line:#e3e7ec;
--code:#f3f5f8;--link:#2563c9}
@media(prefers-color-scheme:dark){:root{--bg:#11161d;--side:#161c25;--ink:#e6ebf1;--soft:#98a5b5;
--line:#2c3643;--code:#1a212b;--link:#6ea3f5}}
*{box-sizing:border-box}body{margin:0;background:var(--bg);color:var(--ink);
font:16px/1.6 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;display:grid;
grid-template-columns:270px minmax(0,1fr)}
nav{background:var(--side);border-right:1px solid var(--line);padding:20px 18px 60px;font-size:14px;
height:100vh;overflow-y:auto;position:sticky;top:0;grid-area:1/1}
nav a{display:block;padding:3px 8px;border-radius:6px;color:var(--ink)}nav a.here{background:var(--line)}
.pages{display:none}
main{padding:28px 44px 80px;max-width:1080px;grid-area:1/2;min-width:0;overflow-wrap:break-word}
a{color:var(--link);text-decoration:none}main a:hover{text-decoration:underline}
h1{font-size:28px;line-height:1.25;letter-spacing:-.01em}h2{font-size:21px;margin-top:38px}
h3{font-size:17px;margin-top:28px}h1 a,h2 a,h3 a,h4 a{color:inherit}
pre{background:var(--code);border:1px solid var(--line);border-radius:8px;padding:12px 14px;overflow-x:auto;
font:13px/1.5 ui-monospace,SFMono-Regular,Menlo,Consolas,monospace}
code{font:.88em ui-monospace,SFMono-Regular,Menlo,Consolas,monospace;background:var(--code);
border-radius:4px;padding:1px 4px}pre code{background:none;padding:0;font:inherit}
.table{overflow-x:auto}table{border-collapse:collapse;font-size:14.5px;font-variant-numeric:tabular-nums}
th,td{border-bottom:1px solid var(--line);padding:6px 12px 6px 0;text-align:left;vertical-align:top}
th{color:var(--soft);font-weight:600}img{max-width:100%;border:1px solid var(--line);border-radius:8px}
@media(max-width:820px){body{display:block}nav{position:static;height:auto;border:0;
border-top:1px solid var(--line);padding:16px}.pages{display:block}main{padding:12px 16px 60px}}
""".strip()
_POLICY: Final = "default-src 'none'; style-src 'unsafe-inline'; img-src 'self' file:"


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


def build(root: Path, out: Path) -> list[Path]:
    """Write every page and picture; what was written. SiteError for a link that leads nowhere."""
    every = pages(root)
    targets = {page.source: page.target for page in every}
    anchors = {page.source: set(_anchors((root / page.source).read_text("utf-8"))) for page in every}
    menu = _menu(root, targets)
    written = []
    wrong = [one for page in every for one in _wrong(root, page, targets, anchors)]
    if wrong:
        raise SiteError("; ".join(wrong))
    for page in every:
        body, title = _rendered(root, page, targets)
        path = out / page.target
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_whole(page, title, body, menu), encoding="utf-8")
        written.append(path)
    for picture in sorted((root / _PICTURES).glob("*.png")):
        target = out / _PICTURES / picture.name
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(picture, target)
        written.append(target)
    return written


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
        if source.startswith(f"{_PICTURES}/") and (root / source).is_file():
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


def _menu(root: Path, targets: Mapping[str, str]) -> list[tuple[str, str, str]]:
    """(name, page of the site, question) as docs/README.md lists them."""
    found = [("ServeTwin", "index.html", "")]
    for name, path, question in _NAV.findall((root / "docs/README.md").read_text("utf-8")):
        told = re.sub(r"[`*]", "", question)
        found.append((name.removesuffix(".md").rstrip("/"), targets[f"docs/{path}"], told))
    listed = {target for _, target, _ in found}
    found += [
        (PurePosixPath(target).stem, target, "")
        for source, target in targets.items()
        if PurePosixPath(source).parent.name == "docs" and source != "docs/README.md" and target not in listed
    ]
    return [
        *found,
        ("CONTRIBUTING", targets["CONTRIBUTING.md"], ""),
        ("CHANGELOG", targets["CHANGELOG.md"], ""),
    ]


def _whole(page: Page, title: str, body: str, menu: list[tuple[str, str, str]]) -> str:
    entries = ""
    for name, target, question in menu:
        here = ' class="here"' if target == page.target else ""
        tip = f' title="{escape(question)}"' if question else ""
        entries += f'<a href="{_relative(page.target, target)}"{here}{tip}>{escape(name)}</a>'
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(title)}</title><style>{STYLE}</style></head><body>"
        f'<main><a class="pages" href="#pages">Pages</a>{body}</main><nav id="pages">{entries}</nav>'
        "</body></html>\n"
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
