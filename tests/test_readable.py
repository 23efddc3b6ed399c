"""Calm code: one statement does one thing, a record documents each field at the field, and names are nouns."""

import ast
import tokenize
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
FOLDERS = [f"roomscout/{path.parent.name}" for path in sorted((ROOT / "roomscout").glob("*/__init__.py"))]
FOLDERS += ["roomscout", "explorer", "benchmarks", "examples"]
NO_NOUNS = {"each", "found", "asked", "known", "given", "shown", "here"}
MOST_NAMES_THAT_ARE_NO_NOUNS = 400
"""How often the package binds one of NO_NOUNS."""
FEW_FIELDS = 4
"""A record of so few fields may explain them together."""
COMPREHENSIONS = (ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
COMPUTED = (*COMPREHENSIONS, ast.Call, ast.Subscript, ast.BinOp, ast.BoolOp, ast.Compare, ast.IfExp, ast.JoinedStr)


def files_of(folder: str) -> list[Path]:
    """The Python files of a package and below it; of roomscout itself, those beside the packages."""
    found = (ROOT / folder).glob("*.py") if folder == "roomscout" else (ROOT / folder).rglob("*.py")
    return sorted(found)


@cache
def parsed(path: Path) -> ast.Module:
    return ast.parse(path.read_text())


def places(folder: str, is_wrong) -> list[str]:
    """Where the folder has a node that is wrong."""
    return [
        f"{path.relative_to(ROOT)}:{node.lineno}"
        for path in files_of(folder)
        for node in ast.walk(parsed(path))
        if is_wrong(node)
    ]


def is_constant(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def assigns_several(node: ast.AST) -> bool:
    """Whether a statement assigns several values of which one is computed; a swap does not."""
    if not (isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)):
        return False
    if not isinstance(node.value, ast.Tuple):
        return False
    values = node.value.elts
    if sorted(map(ast.unparse, node.targets[0].elts)) == sorted(map(ast.unparse, values)):
        return False
    computed = [value for value in values if any(isinstance(part, COMPUTED) for part in ast.walk(value))]
    return bool(computed) or sum(not is_constant(value) for value in values) > 1


def is_chained(node: ast.AST) -> bool:
    return isinstance(node, ast.Assign) and len(node.targets) > 1


def loops_over_an_attribute(node: ast.AST) -> bool:
    if isinstance(node, COMPREHENSIONS):
        targets = [part.target for part in node.generators]
    else:
        targets = [node.target] if isinstance(node, ast.For) else []
    return any(isinstance(part, ast.Attribute) for target in targets for part in ast.walk(target))


def passes_a_choice(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and any(isinstance(argument, ast.IfExp) for argument in node.args)


def depth(node: ast.AST) -> int:
    """How many comprehensions lie in one another here."""
    below = max(map(depth, ast.iter_child_nodes(node)), default=0)
    return below + isinstance(node, COMPREHENSIONS)


@pytest.mark.parametrize("folder", FOLDERS)
@pytest.mark.parametrize("is_wrong", [assigns_several, is_chained, loops_over_an_attribute, passes_a_choice])
def test_one_statement_does_one_thing(folder: str, is_wrong):
    assert not places(folder, is_wrong)


@pytest.mark.parametrize("folder", FOLDERS)
def test_comprehensions_are_nested_at_most_twice(folder: str):
    assert not places(folder, lambda node: isinstance(node, COMPREHENSIONS) and depth(node) > 2)


def fields_of(record: ast.ClassDef) -> list[tuple[ast.AnnAssign, bool]]:
    """The fields of a record, and whether a docstring follows each; empty for other classes."""
    decorators = map(ast.unparse, record.decorator_list)
    bases = {ast.unparse(base) for base in record.bases}
    if not (bases & {"NamedTuple", "TypedDict"} or any("dataclass" in decorator for decorator in decorators)):
        return []
    following = [*record.body[1:], ast.Pass()]
    return [
        (field, isinstance(below, ast.Expr) and isinstance(below.value, ast.Constant))
        for field, below in zip(record.body, following, strict=True)
        if isinstance(field, ast.AnnAssign) and "ClassVar" not in ast.unparse(field.annotation)
    ]


def undocumented(path: Path) -> Iterator[str]:
    """The fields of large records that neither a docstring below nor a comment in their line documents."""
    records = [node for node in ast.walk(parsed(path)) if isinstance(node, ast.ClassDef)]
    large = [fields for fields in map(fields_of, records) if len(fields) > FEW_FIELDS]
    if not large:
        return
    with path.open("rb") as file:
        comments = {token.start[0] for token in tokenize.tokenize(file.readline) if token.type == tokenize.COMMENT}
    for fields in large:
        for field, has_docstring in fields:
            if not has_docstring and field.end_lineno not in comments:
                yield f"{path.relative_to(ROOT)}:{field.lineno} {ast.unparse(field.target)}"


@pytest.mark.parametrize("folder", FOLDERS)
def test_a_large_record_documents_each_field_at_the_field(folder: str):
    assert not [place for path in files_of(folder) for place in undocumented(path)]


def test_most_names_are_nouns():
    bound: Counter[str] = Counter()
    for path in (ROOT / "roomscout").rglob("*.py"):
        for node in ast.walk(parsed(path)):
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
                bound[node.id] += 1
            elif isinstance(node, ast.arg):
                bound[node.arg] += 1
    assert sum(bound[name] for name in NO_NOUNS) <= MOST_NAMES_THAT_ARE_NO_NOUNS
