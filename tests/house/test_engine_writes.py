"""Nobody outside serving/engine writes what an engine holds: others call its verbs."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("serving", "policies", "simcore", "realexec", "servetwin", "experiments")
OWN = "serving/engine/"
ENGINE = ast.parse((ROOT / OWN / "engine.py").read_text(encoding="utf-8"))
# Who has an engine in hand imports it, for the type at least, or what leads to one.
LEADING_TO_ONE = ("serving.engine.engine", "serving.controller")
CHANGES = {
    "append", "appendleft", "clear", "extend", "extendleft", "insert", "pop", "popitem", "popleft", "remove",
    "reverse", "rotate", "setdefault", "sort", "update",
}  # fmt: skip
LEDGER_CHANGES = {
    "forget", "preempt", "release", "reserve", "resume", "retire", "start_decoding",
}  # fmt: skip
LEDGER_FIELDS = {"steps_done"}  # which may be read


def fields() -> frozenset[str]:
    """The engine's attributes, as its ``__slots__`` names them."""
    (slots,) = [
        node.value
        for node in ast.walk(ENGINE)
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__slots__"
    ]
    return frozenset(ast.literal_eval(slots))


def flat(target: ast.expr) -> Iterator[ast.expr]:
    if isinstance(target, ast.Tuple | ast.List):
        for one in target.elts:
            yield from flat(one)
    else:
        yield target.value if isinstance(target, ast.Starred) else target


class Writes(ast.NodeVisitor):
    """(line, what is written to): fields that an engine has, of any object but ``self``.

    Other names that a function has for such a field are followed.
    """

    def __init__(self) -> None:
        self.fields = fields()
        self.names: dict[str, str] = {}  # in this function -> the field it stands for
        self.found: list[tuple[int, str]] = []

    def field(self, node: ast.expr) -> str | None:
        """The field that an expression reads, of any object but ``self``."""
        if isinstance(node, ast.Name):
            return self.names.get(node.id)
        own = isinstance(node, ast.Attribute) and ast.unparse(node.value) == "self"
        return node.attr if isinstance(node, ast.Attribute) and node.attr in self.fields and not own else None

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        before, self.names = self.names, {}
        for one in ast.walk(node):
            if isinstance(one, ast.Assign):
                for target in one.targets:
                    self.follow(target, one.value)
        self.generic_visit(node)
        self.names = before

    def follow(self, target: ast.expr, value: ast.expr) -> None:
        if isinstance(target, ast.Tuple) and isinstance(value, ast.Tuple):
            for each, what in zip(target.elts, value.elts):
                self.follow(each, what)
        elif isinstance(target, ast.Name) and isinstance(value, ast.Attribute) and self.field(value):
            self.names[target.id] = value.attr

    def generic_visit(self, node: ast.AST) -> None:
        targets: list[ast.expr] = []
        if isinstance(node, ast.Assign | ast.Delete):
            targets = node.targets
        elif isinstance(node, ast.AugAssign | ast.AnnAssign):
            targets = [node.target]
        for target in (one for each in targets for one in flat(each)):
            bare = isinstance(target, ast.Name) and not isinstance(node, ast.AugAssign)
            inner = target.value if isinstance(target, ast.Subscript) else target
            if not bare and self.field(inner) is not None:
                self.found.append((target.lineno, ast.unparse(target)))
        if isinstance(node, ast.Attribute):
            field = self.field(node.value)
            changes = LEDGER_CHANGES if field == "ledger" else CHANGES
            if field == "ledger" and isinstance(node.ctx, ast.Store):
                changes = changes | LEDGER_FIELDS
            if field is not None and node.attr in changes:
                self.found.append((node.lineno, ast.unparse(node)))
        super().generic_visit(node)


def writes_in(source: str) -> list[tuple[int, str]]:
    writes = Writes()
    writes.visit(ast.parse(source))
    return writes.found


def test_nobody_else_writes_what_an_engine_holds() -> None:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    sources = {path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    having = [
        name
        for name, source in sources.items()
        if not name.startswith(OWN) and any(f"from {module} import" in source for module in LEADING_TO_ONE)
    ]
    assert {"serving/kv/handover.py", "serving/live/scaling.py", "serving/elastic/deployment.py"} <= set(
        having
    )
    assert [f"{name}:{line}: {what}" for name in having for line, what in writes_in(sources[name])] == []


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("engine.max_num_seqs = 3", "engine.max_num_seqs"),
        ("self._engines[replica].outgoing += batch", "self._engines[replica].outgoing"),
        ("del engine.running[request]", "engine.running[request]"),
        ("engine.attached.append(progress)", "engine.attached.append"),
        ("outgoing, tokens = source.outgoing, 0; outgoing.popleft()", "outgoing.popleft"),
        ("ledger = engine.ledger; ledger.release(request)", "ledger.release"),
        ("release = source.ledger.release", "source.ledger.release"),
        ("engine.ledger.steps_done += 1", "engine.ledger.steps_done"),
        ("waiting = engine.waiting; waiting += batch", "waiting"),
        ("a, engine.state = b, idle", "engine.state"),
    ],
)
def test_each_way_to_write_is_seen(line: str, what: str) -> None:
    assert writes_in(f"def f(self, engine, source):\n    {line}") == [(2, what)]


@pytest.mark.parametrize(
    "line",
    [
        "self.waiting.append(request)",
        "tokens = engine.ledger.free_blocks",
        "steps = engine.ledger.steps_done",
        "waiting = tuple(engine.waiting)",
        "outgoing = engine.outgoing; outgoing = []",
        "engine.release([request])",
    ],
)
def test_what_reads_or_asks_is_no_write(line: str) -> None:
    assert writes_in(f"def f(self, engine):\n    {line}") == []
