"""Who may import whom (DESIGN section 3), read from every module's source, and what a run really loads."""

import ast
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

import nativecore
from tests.worlds.loaded_modules import loaded_after

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "nativecore", "serving", "policies", "hwmodels", "simcore", "realexec", "traces", "experiments",
    "servetwin",
)  # fmt: skip


@dataclass(frozen=True)
class Contract:
    """Beside the standard library and the package itself: what its modules may import.

    ``lazy`` only inside a function or class; ``named`` only in the modules listed. ``no_stdlib`` not at all.
    """

    own: frozenset[str] = frozenset()
    third: frozenset[str] = frozenset()
    lazy: frozenset[str] = frozenset()
    named: dict[str, frozenset[str]] = field(default_factory=dict)
    no_stdlib: frozenset[str] = frozenset()


def names(*words: str) -> frozenset[str]:
    return frozenset(words)


CLOCKS_AND_IO = names(
    "asyncio", "concurrent", "datetime", "io", "multiprocessing", "os", "pathlib", "random", "secrets",
    "select", "shutil", "signal", "socket", "subprocess", "sys", "tempfile", "threading", "time", "uuid",
)  # fmt: skip
CLOCKS_AND_PROCESSES = names(
    "asyncio", "datetime", "multiprocessing", "socket", "subprocess", "threading", "time"
)
CATALOGUE_MODULES = names(
    "hwmodels.catalogue", "hwmodels.step_times.linear_catalogue", "hwmodels.step_times.fit",
    "hwmodels.importers.tables", "hwmodels.importers.llmservingsim",
    "hwmodels.gpus.gpu_file", "hwmodels.topology.cluster_file", "hwmodels.yaml_text",
)  # fmt: skip

# The product puts the others together; only the papers and their option files know the product.
PRODUCT = names("serving", "policies", "hwmodels", "simcore", "realexec", "traces")
OPEN = {"servetwin": PRODUCT, "experiments": PRODUCT | {"servetwin"}}

CONTRACTS = {
    # Who finds the compiled core, and so comes before everybody else.
    "nativecore": Contract(lazy=names("mypyc", "setuptools")),
    "serving": Contract(no_stdlib=CLOCKS_AND_IO),
    "policies": Contract(
        own=names("serving"),
        lazy=names("numpy", "networkx", "ortools", "torch"),
        no_stdlib=CLOCKS_AND_IO - {"random"},
    ),
    "hwmodels": Contract(
        third=names("numpy"),
        named={
            "networkx": names("hwmodels.topology.cuts", "hwmodels.topology.graph"),
            "pandas": CATALOGUE_MODULES,
            "yaml": CATALOGUE_MODULES,
            "pyarrow": names("hwmodels.importers.tables"),
            "aiconfigurator_core": names("hwmodels.step_times.aiconfigurator_library"),
        },
        no_stdlib=CLOCKS_AND_PROCESSES | {"random"},
    ),
    "simcore": Contract(
        own=names("serving", "hwmodels"), third=names("simpy", "numpy"), no_stdlib=CLOCKS_AND_IO - {"random"}
    ),
    "realexec": Contract(
        own=names("serving"),
        third=names("torch", "transformers", "safetensors", "numpy", "msgspec"),
        lazy=names("ray"),
        named={
            "nixl": names("realexec.transports.nixl"),
            "yaml": names("realexec.kubernetes.kubeconfig"),
        },
    ),
    "traces": Contract(
        third=names("numpy", "pandas"),
        lazy=names("pyarrow"),
        named={"yaml": names("traces.fetching.sources")},
        no_stdlib=names("random", "time", "asyncio", "threading"),
    ),
}


@dataclass(frozen=True)
class Import:
    module: str  # importing, dotted
    line: int
    target: str  # imported, dotted
    name: str  # what of it, "" for the module
    nested: bool

    @property
    def top(self) -> str:
        return self.target.partition(".")[0]

    def __str__(self) -> str:
        return f"{self.module}:{self.line} imports {self.target}"


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


@cache
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def imports_in(tree: ast.Module, module: str) -> Iterator[Import]:
    """Every import, wherever it stands; one under ``if TYPE_CHECKING`` counts as any other at the top."""
    todo: list[tuple[ast.AST, bool]] = [(tree, False)]
    while todo:
        node, nested = todo.pop()
        within = nested or isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        todo += [(inner, within) for inner in ast.iter_child_nodes(node) if not isinstance(inner, ast.expr)]
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield Import(module, node.lineno, alias.name, "", nested)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module}:{node.lineno}: write the whole name of what is imported"
            for alias in node.names:
                yield Import(module, node.lineno, node.module or "", alias.name, nested)


def paths_of(package: str) -> list[Path]:
    return sorted((ROOT / package).rglob("*.py"))


@cache
def imports_of(package: str) -> list[Import]:
    found: list[Import] = []
    for path in paths_of(package):
        found += imports_in(tree_of(path), module_of(path))
    return found


def breaks(contract: Contract, package: str, found: Import) -> bool:
    top = found.top
    if top in (package, "nativecore") or top in contract.own or top in contract.third:
        return False
    if top in sys.stdlib_module_names:
        return top in contract.no_stdlib
    if top in contract.lazy:
        return not found.nested
    return found.module not in contract.named.get(top, ())


@pytest.mark.parametrize("package", CONTRACTS)
def test_imports_keep_the_contract(package: str) -> None:
    assert paths_of(package)
    assert [str(found) for found in imports_of(package) if breaks(CONTRACTS[package], package, found)] == []


@pytest.mark.parametrize("package", OPEN)
def test_the_product_and_the_papers_import_the_packages_below(package: str) -> None:
    """And whatever is installed."""
    allowed = OPEN[package] | {package, "nativecore"}
    assert [str(one) for one in imports_of(package) if one.top in PACKAGES and one.top not in allowed] == []


def test_every_package_has_a_contract() -> None:
    assert {*CONTRACTS, *OPEN} == set(PACKAGES)
    found = {path.parent.name for path in ROOT.glob("*/__init__.py")}
    assert found - {"tests", "benchmarks", "scripts"} == set(PACKAGES)


@pytest.mark.parametrize(
    ("package", "source", "refused"),
    [
        ("serving", "import json", False),
        ("serving", "import time", True),
        ("serving", "def f():\n    import random", True),
        ("serving", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import numpy", True),
        ("serving", "import serving.vocabulary.units", False),
        ("serving", "import policies", True),
        ("policies", "import numpy", True),
        ("policies", "def f():\n    import numpy", False),
        ("policies", "import simcore", True),
        ("hwmodels", "import serving", True),
        ("hwmodels", "import yaml", True),
        ("simcore", "import simpy.core", False),
        ("simcore", "import policies", True),
        ("realexec", "from hwmodels import rows", True),
        ("traces", "import serving", True),
    ],
)
def test_the_contract_sees_each_kind_of_import(package: str, source: str, refused: bool) -> None:
    found = imports_in(ast.parse(source), f"{package}.made_up")
    assert any(breaks(CONTRACTS[package], package, one) for one in found) == refused


@pytest.mark.parametrize("package", ["serving", "policies", "simcore", "hwmodels"])
def test_randomness_is_handed_in(package: str) -> None:
    """Only the class of a stream may be named, for its type: the module's own functions are global state."""
    drawn = [str(found) for found in imports_of(package) if found.top == "random" and found.name != "Random"]
    assert drawn == []


# The rooms of a package, each below those that may import it; a file at the top is a room of its own.
ROOMS = {
    "serving": (
        "vocabulary", "protocols", "engine", "parameters", "kv", "live", "services", "elastic",
        "controller", "composition", "record",
    ),
    "simcore": (
        "replica", "data_plane", "timers", "paces",
        "capabilities", "faults", "loading_replicas", "lockstep", "pipeline", "stage_passes",
        "sim_report", "stopping", "chunk_starts", "client_timeouts", "simulation",
    ),
    "hwmodels": (
        "errors", "reading", "yaml_text", "gpus", "models", "catalogue", "profiles", "step_times", "fabric",
        "topology", "importers", "loading",
    ),
    "realexec": (
        "system", "wire", "memory", "transports", "verbs", "transport_registry", "model", "worker",
        "launchers", "world", "driver", "calibration", "http", "kubernetes", "telemetry", "probe",
    ),
    "policies": (
        "admission", "passes", "batching", "dispatch", "llumnix", "migration", "migration_defragment",
        "migration_victims", "multicast", "provisioning", "scaling", "live", "quart",
    ),
    "servetwin": (
        "shadowed_packages", "config", "assemble", "results", "story", "report", "run", "sweeps", "compare",
        "export", "planning", "advising", "explore", "plotting", "support", "cli", "api", "__main__",
    ),
    "experiments": ("common", "blitzscale", "llumnix", "quart", "scale", "scalers", "reproduce"),
}  # fmt: skip


# Folders inside a room that are rooms themselves, in the same order.
INNER_ROOMS = {
    "serving.services": (
        "stages", "rounds", "decoding_view", "service", "language", "stock", "staged", "disaggregated",
        "colocated", "pipeline", "aborts",
    ),
}  # fmt: skip


def room_of(module: str, package: str = "") -> str:
    return f"{module}.".split(".")[package.count(".") + 1]


def inner_imports(package: str) -> list[Import]:
    """Of its modules from each other. A package itself is above its rooms: it may import what it offers."""
    inner = [found for found in imports_of(package) if found.top == package and found.target != package]
    return [found for found in inner if found.module != package]


@pytest.mark.parametrize("package", [*ROOMS, *INNER_ROOMS])
def test_rooms_import_only_rooms_below_them(package: str) -> None:
    order, folder = (ROOMS | INNER_ROOMS)[package], package.replace(".", "/")
    paths = [path for path in paths_of(folder) if path.parent != ROOT / folder or path.stem != "__init__"]
    assert {room_of(module_of(path), package) for path in paths} == set(order)
    upwards = [
        str(found)
        for found in inner_imports(package.partition(".")[0])
        if f"{found.module}.".startswith(f"{package}.") and f"{found.target}.".startswith(f"{package}.")
        and order.index(room_of(found.module, package)) < order.index(room_of(found.target, package))
    ]  # fmt: skip
    assert upwards == []


@pytest.mark.parametrize("package", sorted({*CONTRACTS, *OPEN}))
def test_no_files_import_each_other(package: str) -> None:
    import networkx as nx

    modules = {module_of(path) for path in paths_of(package)}
    graph = nx.DiGraph()
    for found in inner_imports(package):
        whole = f"{found.target}.{found.name}"
        graph.add_edge(found.module, whole if whole in modules else found.target)
    cycles = [cycle for cycle in nx.strongly_connected_components(graph) if len(cycle) > 1]
    assert sorted(map(sorted, cycles)) == []


TEST_ROOMS = names("house", "benchmarks", "states") | (set(PACKAGES) - {"nativecore"})


def test_test_modules_lie_in_the_room_of_what_they_test() -> None:
    paths = [path for path in paths_of("tests") if path.stem.startswith("test_")]
    rooms = {ROOT / "tests" / one for one in TEST_ROOMS}
    assert [module_of(path) for path in paths if path.parent not in rooms] == []
    stems = [path.stem for path in paths]
    assert [stem for stem in stems if stems.count(stem) > 1] == [], "a test module is known by its name"


def test_nobody_imports_from_a_test_module() -> None:
    """What two of them use lies in tests/worlds."""
    found = [one for package in ("tests", "benchmarks") for one in imports_of(package) if one.top == "tests"]
    assert found
    assert [str(one) for one in found if ".test_" in f"{one.target}.{one.name}"] == []


CALLS_OF_THE_WORLD = names("open", "print", "input", "breakpoint", "__import__", "eval", "compile", "globals")


def nodes_of(*packages: str) -> Iterator[tuple[str, ast.AST]]:
    """(module, node) of all their files."""
    for path in (path for package in packages for path in paths_of(package)):
        for node in ast.walk(tree_of(path)):
            yield module_of(path), node


def test_serving_does_no_io() -> None:
    used = [f"{module}:{node.lineno} {node.id}" for module, node in nodes_of("serving")
            if isinstance(node, ast.Name) and node.id in CALLS_OF_THE_WORLD]  # fmt: skip
    assert used == []


def test_no_global_state() -> None:
    nodes = nodes_of("serving", "policies", "simcore")
    assert [f"{module}:{node.lineno}" for module, node in nodes if isinstance(node, ast.Global)] == []


HEAVY = {"pandas", "pyarrow", "matplotlib", "hydra", "omegaconf", "torch", "transformers", "scipy", "rich"}


def test_the_simulator_itself_loads_nothing_heavy() -> None:
    loaded = loaded_after("import simcore.simulation, policies, hwmodels.step_times.rows, serving.controller")
    loaded |= loaded_after("import policies.batching, policies.dispatch, policies.admission")
    assert {"simcore", "policies", "hwmodels", "serving", "simpy"} <= loaded
    assert loaded & HEAVY == set()


def test_serving_loads_only_itself() -> None:
    modules = ", ".join(module_of(path) for path in paths_of("serving"))
    third = loaded_after(f"import {modules}") - set(sys.stdlib_module_names)
    third -= {"serving", "nativecore", nativecore.LIBRARY}
    bare = loaded_after("pass")
    assert third <= bare, "what an interpreter loads by itself (site, .pth files) does not count"


def test_the_command_line_loads_nothing_heavy_until_asked() -> None:
    assert loaded_after("import servetwin.cli.main") & HEAVY == set()


def test_a_simulated_run_never_loads_torch(tmp_path: Path) -> None:
    words = ["simulate", "trace=azure_conv_like", "trace.requests=5", f"out={tmp_path / 'run'}"]
    loaded = loaded_after(f"from servetwin.cli.main import run\nassert run({words!r}) == 0")
    assert {"pyarrow", "numpy", "simcore"} <= loaded
    assert loaded & {"torch", "transformers", "realexec", "ortools"} == set()
