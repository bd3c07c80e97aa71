"""House rules that a machine can check, over every product file."""

import ast
import io
import tokenize
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("serving", "policies", "hwmodels", "simcore", "realexec", "traces", "servetwin", "experiments")
SILENT_PACKAGES = ("serving", "policies", "hwmodels", "simcore")
MAX_FILE_LINES = 500
# One state machine each: every write to its fields is in one file, which a shorter limit would cut in two.
LONGER_FILES = {"serving/engine/engine.py": 555}
MAX_FUNCTION_LINES = 70
LONG_FUNCTION_LINES = 25
MAX_LONG_SHARE = 0.10
UNFINISHED_WORDS = ("TODO", "FIXME", "XXX", "NotImplementedError", "NotImplemented")

Function = ast.FunctionDef | ast.AsyncFunctionDef
FILES = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
SILENT_FILES = [path for path in FILES if path.relative_to(ROOT).parts[0] in SILENT_PACKAGES]


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"), str(path))


def name_of(path: Path) -> str:
    return path.relative_to(ROOT).as_posix()


def functions_of(path: Path) -> Iterator[tuple[str, int]]:
    """(place, lines from ``def`` to the last line) of every function, nested ones too."""
    for node in ast.walk(tree_of(path)):
        if isinstance(node, Function):
            assert node.end_lineno is not None
            yield f"{name_of(path)}:{node.lineno} {node.name}", node.end_lineno - node.lineno + 1


def without_docstring(node: ast.Module | ast.ClassDef, prefix: str) -> Iterator[str]:
    """Public classes, functions and methods that say nothing about themselves.

    What a protocol only declares (``...``) is said by the protocol's own docstring.
    """
    declares = isinstance(node, ast.ClassDef) and any(ast.unparse(base) == "Protocol" for base in node.bases)
    for child in node.body:
        if not isinstance(child, ast.ClassDef | Function) or child.name.startswith("_"):
            continue
        if ast.get_docstring(child) is None and not (
            declares and [ast.unparse(line) for line in child.body] == ["..."]
        ):
            yield f"{prefix}:{child.lineno} {child.name}"
        if isinstance(child, ast.ClassDef):
            yield from without_docstring(child, prefix)


def test_every_package_is_looked_at() -> None:
    assert {path.relative_to(ROOT).parts[0] for path in FILES} == set(PACKAGES)


def test_files_stay_small() -> None:
    lengths = {name_of(path): len(path.read_text(encoding="utf-8").splitlines()) for path in FILES}
    assert [found for found in lengths.items() if found[1] > LONGER_FILES.get(found[0], MAX_FILE_LINES)] == []


def test_no_function_is_long() -> None:
    found = [found for path in FILES for found in functions_of(path)]
    assert [place for place, lines in found if lines > MAX_FUNCTION_LINES] == []


def test_most_functions_are_short() -> None:
    lengths = [lines for path in FILES for _, lines in functions_of(path)]
    long = sum(lines > LONG_FUNCTION_LINES for lines in lengths)
    assert long <= MAX_LONG_SHARE * len(lengths), f"{long} of {len(lengths)} functions are long"


def test_every_module_is_documented() -> None:
    trees = {name_of(path): tree_of(path) for path in FILES}
    assert [name for name, tree in trees.items() if tree.body and not ast.get_docstring(tree)] == []


def test_everything_public_is_documented() -> None:
    assert [place for path in FILES for place in without_docstring(tree_of(path), name_of(path))] == []


def test_libraries_do_not_print() -> None:
    calls = [
        f"{name_of(path)}:{node.lineno}"
        for path in SILENT_FILES
        for node in ast.walk(tree_of(path))
        if isinstance(node, ast.Name) and node.id == "print"
    ]
    assert calls == []


def test_nothing_is_left_unfinished() -> None:
    found = [
        f"{name_of(path)}:{token.start[0]}: {word}"
        for path in FILES
        for token in tokenize.generate_tokens(io.StringIO(path.read_text(encoding="utf-8")).readline)
        if token.type in (tokenize.NAME, tokenize.COMMENT, tokenize.STRING)
        for word in UNFINISHED_WORDS
        if word in token.string
    ]
    assert found == []
