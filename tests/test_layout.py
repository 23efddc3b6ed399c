"""Who may import whom, and what may be imported only when it is used."""

import ast
import sys
from functools import cache
from pathlib import Path

import pytest

CHECKOUT = Path(__file__).parents[1]
ROOT = CHECKOUT / "roomscout"
ALLOWED = {
    "base": set(),
    "data": {"base"},
    "models": {"base"},
    "rendering": {"base"},
    "rooms": {"base", "data", "rendering"},
    "scoring": {"base", "data"},
    "envs": {"base", "data", "rendering"},
    "runs": {"base", "data", "scoring", "envs", "models", "rendering"},
    "agent": {"base", "data", "scoring", "rendering", "rooms", "models", "envs", "runs"},
    "edge": {"base", "data", "rendering", "models", "envs", "runs", "agent"},
    "cluster": {"base", "data", "models", "rendering", "runs", "agent", "edge"},
    "analysis": {"base", "data", "scoring", "rendering", "envs", "runs", "agent"},
}
"""The packages that each may import, beside itself."""
FREE = {"training", "command"}
"""Packages that may import anything, and that no other may import."""
OURS = {*ALLOWED, *FREE}
BESIDE = {"benchmarks", "examples", "explorer"}
"""Folders of a checkout that are not in the wheel; they may import anything, and the package imports none of them."""
GPU_MEASUREMENT = "benchmarks.gpu.__main__"
ON_A_GPU_MACHINE = {
    *("torch", "transformers", "numpy", "PIL", "pydantic", "rich", "pytest"),  # docs/development/speed.md
    *("huggingface_hub", "safetensors", "yaml", "annotated_types", "typing_extensions", "jinja2"),  # which these bring
}
"""The libraries that the tests and measurements for GPUs may import."""
HEAVY = {
    "torch": {"models", "training", "rendering"},
    "transformers": {"models", "training"},
    "open3d": {"rendering"},
    "trimesh": {"rendering"},
    "pyrender": {"rendering"},
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


def test_nothing_in_the_package_imports_what_the_wheel_lacks():
    assert all((CHECKOUT / folder / "README.md").exists() for folder in BESIDE)
    assert not {str(path) for path in ROOT.rglob("*.py") if imports(path) & BESIDE}


@pytest.mark.parametrize("library", HEAVY)
def test_heavy_libraries_stay_where_they_belong(library: str):
    files = [path for package in OURS for path in (ROOT / package).rglob("*.py")]
    users = {path.relative_to(ROOT).parts[0] for path in files if library in imports(path)}
    assert users <= HEAVY[library]


def test_the_gpu_measurements_import_only_the_libraries_that_it_names():
    waiting, ours, others = [GPU_MEASUREMENT], set(), set()
    while waiting:
        path = file_of(waiting.pop())
        ours.add(path)
        for name in used_modules(path, when_imported=True):
            if name.partition(".")[0] not in {*OURS, *BESIDE, "roomscout"}:
                others.add(name.partition(".")[0])
            elif file_of(name) not in ours:
                waiting.append(name)
    assert ROOT / "models" / "transformers" / "loading.py" in ours
    assert others - sys.stdlib_module_names <= ON_A_GPU_MACHINE


def file_of(module: str) -> Path:
    """The file of a module of this repository, by its dotted name without "roomscout."; it need not exist."""
    folder = CHECKOUT if module.partition(".")[0] in BESIDE else ROOT
    path = ROOT if module == "roomscout" else folder / module.replace(".", "/")
    return path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def test_modules_of_the_repository_import_each_other_in_no_circle():
    """Also not through imports inside functions, which would only hide a circle."""
    packages = [ROOT / package for package in OURS] + [CHECKOUT / folder for folder in BESIDE]
    files = {
        ".".join(path.relative_to(package.parent).with_suffix("").parts).removesuffix(".__init__"): path
        for package in packages
        for path in package.rglob("*.py")
    }
    edges = {name: {other for other in used_modules(path) if other in files} - {name} for name, path in files.items()}
    while free := [name for name, others in edges.items() if not others & edges.keys()]:
        for name in free:
            del edges[name]
    assert not edges, f"in or before a circle: {sorted(edges)}"


def used_modules(path: Path, when_imported: bool = False) -> set[str]:
    """Modules that a file imports, as dotted names; of a package, the module that is named from it. Imports for type
    hints alone do not count, and with `when_imported` neither do those inside functions."""
    tree = ast.parse(path.read_text())
    for node in ast.walk(tree):
        typing = isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        if typing or (when_imported and isinstance(node, ast.FunctionDef)):
            node.body = []
    found = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name.removeprefix("roomscout.") for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            module = node.module.removeprefix("roomscout.")
            submodules = {f"{module}.{alias.name}" for alias in node.names}
            there = {name for name in submodules if file_of(name).exists()}
            found |= there or {module}
    return found


def test_modules_of_tests_have_different_names():
    """Pytest imports them by name alone: of two with one name, it collects only the first."""
    modules = [path for path in Path(__file__).parent.rglob("*.py") if not (path.parent / "__init__.py").exists()]
    names = [path.name for path in modules if path.name != "conftest.py"]
    assert len(names) > 100 and sorted(names) == sorted(set(names))
