"""Who may import whom, and what may be imported only when it is used."""

import ast
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ALLOWED = {
    "rendering": set(),
    "data": set(),
    "models": set(),
    "envs": {"rendering", "data"},
    "runs": {"envs", "models", "rendering", "data"},
    "agent": {"envs", "models", "runs", "rendering", "data"},
    "analysis": {"runs", "envs", "rendering", "data"},
}
"""The packages of this repository that each may import, beside itself."""
OURS = {*ALLOWED, "training", "benchmarks"}
COMMAND = {"command", "verbs", "reports", "judges", "studies"}
"""The modules of the command in roomscout/, which may import anything and which no package may import."""
HEAVY = {
    "torch": {"models", "training", "benchmarks"},
    "transformers": {"models", "training", "benchmarks"},
    "open3d": {"rendering", "benchmarks"},
    "trimesh": {"rendering", "data", "benchmarks"},
    "pyrender": {"rendering", "benchmarks"},
}
"""Libraries that take seconds to import, and the packages that may."""


@cache
def imports(path: Path) -> set[str]:
    """The packages that a file imports, anywhere in it: ours by the name of their folder, others by their own."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            found.add(node.module)
    return {name.removeprefix("roomscout.").partition(".")[0] for name in found}


@pytest.mark.parametrize("package", ALLOWED)
def test_a_package_imports_only_what_the_table_allows(package: str):
    files = sorted((ROOT / package).rglob("*.py"))
    assert files
    wrong = {
        str(path.relative_to(ROOT)): sorted(bad)
        for path in files
        if (bad := (imports(path) & OURS) - ALLOWED[package] - {package})
    }
    assert not wrong


@pytest.mark.parametrize("package", ALLOWED)
def test_no_package_imports_the_command(package: str):
    assert {path.stem for path in (ROOT / "roomscout").glob("[!_]*.py")} == COMMAND | {"processes"}
    assert not [path for path in (ROOT / package).rglob("*.py") if imports(path) & COMMAND]


@pytest.mark.parametrize("library", HEAVY)
def test_heavy_libraries_stay_where_they_belong(library: str):
    files = [path for package in OURS for path in (ROOT / package).rglob("*.py")]
    users = {path.relative_to(ROOT).parts[0] for path in files if library in imports(path)}
    assert users <= HEAVY[library]


@pytest.mark.parametrize("engine", ["openai", "vllm"])
def test_a_package_of_an_engine_imports_no_library_before_it_is_used(engine: str):
    assert imports(ROOT / "models" / engine / "__init__.py") <= {"dataclasses", "pathlib"}


def test_modules_of_the_repository_import_each_other_in_no_circle():
    """Also not through imports inside functions, which would only hide a circle."""
    files = {
        ".".join(path.relative_to(ROOT).with_suffix("").parts).removesuffix(".__init__"): path
        for package in OURS
        for path in (ROOT / package).rglob("*.py")
    }
    edges = {name: {other for other in used_modules(path) if other in files} - {name} for name, path in files.items()}
    while free := [name for name, others in edges.items() if not others & edges.keys()]:
        for name in free:
            del edges[name]
    assert not edges, f"in or before a circle: {sorted(edges)}"


def used_modules(path: Path) -> set[str]:
    """Modules that a file imports, as dotted names; of a package, the module that is named from it. Imports for type
    hints alone do not count."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("roomscout.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = node.module.removeprefix("roomscout.")
            submodules = {f"{module}.{alias.name}" for alias in node.names}
            there = {name for name in submodules if (ROOT / (name.replace(".", "/") + ".py")).exists()}
            found |= there or {module}
    return found
