"""Count what a reader of the package has to carry: lines, names that are no verbs, crowded lines, words to avoid.

Run::

    python tests/counts.py

It prints each count beside its limit; `test_counts.py` compares them. A limit may only fall: whoever makes a count
smaller lowers its limit here.
"""

import ast
import io
import re
import tokenize
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "streamkpca"

# Lines of code, without blank lines, comments and docstrings, by package.
LINES = {
    "(top)": 665,
    "_core": 742,
    "adapters": 355,
    "changes": 634,
    "checkpoint": 589,
    "cli": 1_371,
    "components": 1_650,
    "dictionary": 1_262,
    "export": 1_221,
    "kernels": 1_649,
    "models": 1_281,
    "monitoring": 1_489,
    "plots": 340,
    "rows": 483,
    "stream": 1_333,
    "tables": 1_738,
}
# Counts over the whole package, and over the manual for words.
LIMITS = {
    "aliases of Array": 0,
    "functions named by participles": 0,
    "lines of code": sum(LINES.values()),
    "lines of docstrings": 6_452,
    "lines of several constants": 0,
    "lines of tests": 20_338,
    "words to avoid": 0,
}

# Participles that do not end in -ed or -ing.
IRREGULAR = set(
    "begun bound brought built chosen drawn found given gone grown held kept known laid left lost made met seen sent "
    "shown shrunk spent sunk taken thought told torn won worn written".split()
)
# Words of the field that look like participles; the name of a function that returns such a thing may begin with them.
TERMS = set(
    "captured closed deciding explained fixed held leading normalised nothing reading recorded rounding scaled squared "
    "unshared weighted".split()
)
# Names that users call, kept for them.
PUBLIC = {"expected", "settled"}
# Metaphors, and turns that have to be read twice.
WORDS = (
    "jury", "tenure", "pace", "door", "floor", "nobody", "so many", "is said", "foreign number", "likeness", "passages",
)  # fmt: skip


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def modules() -> Iterator[tuple[str, Path]]:
    """Yield the files of the package, each with its package or, at the top, its own name."""
    for path in sorted(PACKAGE.rglob("*.py")):
        parts = path.relative_to(PACKAGE).parts
        yield (parts[0] if len(parts) > 1 else "(top)"), path


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield node.body[0]


def lines_of(path: Path) -> tuple[int, int]:
    """Count the lines of code, and those of docstrings."""
    text = path.read_text("utf-8")
    documented = {n for node in docstrings(ast.parse(text)) for n in range(node.lineno, node.end_lineno + 1)}
    blank = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}
    tokens = [token for token in tokenize.generate_tokens(io.StringIO(text).readline) if token.type not in blank]
    code = {n for token in tokens for n in range(token.start[0], token.end[0] + 1)}
    return len(code - documented), len(documented)


def is_participle(name: str) -> bool:
    first = name.strip("_").partition("_")[0]
    looks = re.fullmatch(r"\w{2,}(ed|ing)", first) is not None or first in IRREGULAR
    return looks and first not in TERMS and name not in PUBLIC


def participles(tree: ast.Module) -> list[str]:
    """List functions that a participle names, but for properties."""
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
    called = [f for f in functions if not any("property" in ast.unparse(d) for d in f.decorator_list)]
    return [function.name for function in called if is_participle(function.name)]


def crowded(tree: ast.Module) -> int:
    """Count the statements of a module that assign several constants; ``range`` numbers cases and has no choice."""
    several = [node for node in tree.body if isinstance(node, ast.Assign) and isinstance(node.targets[0], ast.Tuple)]
    return sum(not ast.unparse(node.value).startswith("range(") for node in several)


def words_in(text: str) -> int:
    return sum(len(re.findall(rf"(?<![.\w]){word}\b", text, re.IGNORECASE)) for word in WORDS)


def count() -> tuple[Counter[str], Counter[str]]:
    """Return the lines of code by package, and the other counts."""
    lines, counts = Counter(), Counter()
    for package, path in modules():
        text, tree = path.read_text("utf-8"), parse(path)
        code, documented = lines_of(path)
        lines[package] += code
        counts["lines of code"] += code
        counts["lines of docstrings"] += documented
        counts["functions named by participles"] += len(participles(tree))
        counts["lines of several constants"] += crowded(tree)
        counts["aliases of Array"] += len(re.findall(r"^Array = ", text, re.MULTILINE)) * (path.name != "arrays.py")
        counts["words to avoid"] += words_in(text)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        counts["words to avoid"] += words_in(page.read_text("utf-8"))
    counts["lines of tests"] = sum(lines_of(path)[0] for path in (ROOT / "tests").rglob("*.py"))
    return lines, counts


def main() -> None:
    lines, counts = count()
    for title, found, limits in (("lines of code by package", lines, LINES), ("all in all", counts, LIMITS)):
        print(f"{title:<40}{'count':>8}{'limit':>8}")
        for name, number in sorted(found.items()):
            print(
                f"  {name:<38}{number:>8,}{limits.get(name, 0):>8,}{'  MORE' if number > limits.get(name, 0) else ''}"
            )
    for package, path in modules():
        for name in participles(parse(path)):
            print(f"  participle: {package}/{path.name}: {name}")


if __name__ == "__main__":
    main()
