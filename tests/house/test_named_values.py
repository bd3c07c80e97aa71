"""More than five values have names: in calls, definitions and data classes; no local tuple is splatted."""

import ast
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

ROOT: Final = Path(__file__).parents[2]
PACKAGES: Final = (
    "serving",
    "policies",
    "simcore",
    "hwmodels",
    "realexec",
    "traces",
    "servetwin",
    "experiments",
    "nativecore",
)
MOST: Final = 5

# Built or called for most events: ns per call with positional values and with names (CPython 3.11, least of
# timeit.repeat(call, number=500, repeat=4000)). A static run takes about 30,000 ns per request.
HOT: Final = {
    "Run": "270 and 527",
    "Ran": "244 and 463",
    "Batch": "231 and 438",
    "BatchQuestion": "230 and 406",
    "finished": "36 and 55",  # of every Recorder
}
# What others call or build by position, in policies and packages of their own.
OUTSIDE: Final = {"ScaleDecision": "policies of users answer with it"}
# Values that go on to one of several methods.
FORWARDING: Final = {"ask": "serving.protocols.policy_faults: the arguments of the policy's method"}
# The standard library's own order.
LIBRARY: Final = ("datetime", "pack", "redirect_request", "submit", "zip")
EXEMPT: Final = frozenset(LIBRARY) | frozenset(HOT) | frozenset(OUTSIDE) | frozenset(FORWARDING)


def name_of(node: ast.expr) -> str:
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""


def calls_without_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and name_of(node.func) not in EXEMPT:
            count = sum(not isinstance(value, ast.Starred) for value in node.args)
            if count > MOST:
                yield node.lineno, f"{name_of(node.func)} is called with {count} positional values"


def definitions_without_names(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name not in EXEMPT:
            found = [value.arg for value in (*node.args.posonlyargs, *node.args.args)]
            count = len(found) - (found[:1] in (["self"], ["cls"]))
            if count > MOST:
                yield node.lineno, f"{node.name} takes {count} positional values"
        elif isinstance(node, ast.ClassDef) and node.name not in EXEMPT:
            count = positional_fields(node)
            if count > MOST:
                yield node.lineno, f"{node.name} has {count} positional fields: write kw_only=True"


def positional_fields(node: ast.ClassDef) -> int:
    """Of a data class. The hot path builds facts by position (``HOT``), so only their calls are checked."""
    made = [decorator for decorator in node.decorator_list if "dataclass" in ast.unparse(decorator)]
    if not made or "kw_only=True" in ast.unparse(made[0]):
        return 0
    count = 0
    for line in node.body:
        if isinstance(line, ast.AnnAssign) and "ClassVar" not in (kind := ast.unparse(line.annotation)):
            if kind == "KW_ONLY":
                break
            made_without = isinstance(line.value, ast.Call) and any(
                word.arg in ("init", "kw_only") for word in line.value.keywords
            )
            count += not made_without
    return count


def splatted_tuples(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for function in ast.walk(tree):
        if not isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef):
            continue
        tuples = set(tuples_of(function))
        for node in ast.walk(function):
            if isinstance(node, ast.Call) and name_of(node.func)[:1].isupper():
                for value in node.args:
                    if isinstance(value, ast.Starred) and (
                        isinstance(value.value, ast.Tuple) or name_of(value.value) in tuples
                    ):
                        yield node.lineno, f"{name_of(node.func)} takes *{ast.unparse(value.value)}"


def tuples_of(function: ast.AST) -> Iterator[str]:
    """The names to which the function assigns a tuple that it writes out."""
    for node in ast.walk(function):
        if isinstance(node, ast.Assign):
            for target in node.targets:
                if isinstance(target, ast.Name) and isinstance(node.value, ast.Tuple):
                    yield target.id
                elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                    pairs = zip(target.elts, node.value.elts, strict=False)
                    yield from [
                        name.id
                        for name, value in pairs
                        if isinstance(name, ast.Name) and isinstance(value, ast.Tuple)
                    ]


def faults(text: str) -> list[tuple[int, str]]:
    tree = ast.parse(text)
    return sorted({*calls_without_names(tree), *definitions_without_names(tree), *splatted_tuples(tree)})


@pytest.mark.parametrize("package", PACKAGES)
def test_more_than_five_values_have_names(package: str) -> None:
    paths = sorted((ROOT / package).rglob("*.py"))
    found = [
        f"{path.relative_to(ROOT)}:{line}: {what}"
        for path in paths
        for line, what in faults(path.read_text(encoding="utf-8"))
    ]
    assert paths and not found, "\n".join(found)


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("f(1, 2, 3, 4, 5, 6)", "f is called with 6 positional values"),
        ("def f(self, a, b, c, d, e, g): ...", "f takes 6 positional values"),
        (
            "@dataclass\nclass A:\n" + "".join(f"    {n}: int\n" for n in "abcdef"),
            "A has 6 positional fields",
        ),
        ("def f():\n    how = 1, 2\n    return Open(*how)", "Open takes *how"),
        ("def f():\n    a, how = 1, (1, 2)\n    return Open(*how)", "Open takes *how"),
        ("def f():\n    return Open(*(1, 2))", "Open takes *(1, 2)"),
    ],
)
def test_each_fault_is_found(text: str, what: str) -> None:
    assert [found for _, found in faults(text) if found.startswith(what)]


@pytest.mark.parametrize(
    "text",
    [
        "f(1, 2, 3, 4, 5, g=6)",
        "Run(1, 2, 3, 4, 5, 6)",
        "def f(self, a, b, c, d, e, *, g): ...",
        "@dataclass(kw_only=True)\nclass A:\n" + "".join(f"    {n}: int\n" for n in "abcdef"),
        "def f(rest):\n    return Open(*rest)",
    ],
)
def test_named_values_are_no_fault(text: str) -> None:
    assert not faults(text)
