"""Count what a reader of the package has to carry: tokens, branches, names that are no verbs, words to avoid.

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

# Counts over the whole package, and over the manual for words.
LIMITS = {
    "aliases of Array": 0,
    "branches of a function": 36,
    "functions named by participles": 0,
    "lines of several constants": 0,
    "tokens": 197_500,
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
# Tokens that a reader does not read.
LAYOUT = {
    tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER,
}  # fmt: skip
BRANCHES = (
    ast.If, ast.For, ast.While, ast.IfExp, ast.BoolOp, ast.comprehension, ast.ExceptHandler, ast.match_case,
)  # fmt: skip
# Metaphors, and turns that have to be read twice.
WORDS = (
    "jury", "tenure", "pace", "door", "floor", "nobody", "so many", "is said", "foreign number", "likeness", "passages",
)  # fmt: skip


def parse(path: Path) -> ast.Module:
    return ast.parse(path.read_text("utf-8"))


def docstrings(tree: ast.Module) -> Iterator[ast.Expr]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef) and ast.get_docstring(node) is not None:
            yield node.body[0]


def count_tokens(text: str) -> int:
    """Count the tokens of code, without comments and docstrings: a long line weighs as much as several short ones."""
    documented = {n for node in docstrings(ast.parse(text)) for n in range(node.lineno, node.end_lineno + 1)}
    # Text with values in it is one token before Python 3.12, and many from then on.
    begin, end = (getattr(tokenize, f"FSTRING_{name}", None) for name in ("START", "END"))
    n = depth = 0
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        is_inside = depth > 0
        depth += (token.type == begin) - (token.type == end)
        n += not is_inside and token.type not in LAYOUT and token.start[0] not in documented
    return n


def count_branches(function: ast.FunctionDef) -> int:
    return sum(isinstance(node, BRANCHES) for node in ast.walk(function))


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


def count() -> Counter[str]:
    """Return all counts."""
    counts = Counter(dict.fromkeys(LIMITS, 0))
    for path in sorted(PACKAGE.rglob("*.py")):
        text, tree = path.read_text("utf-8"), parse(path)
        functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef)]
        most = max(map(count_branches, functions), default=0)
        counts["branches of a function"] = max(counts["branches of a function"], most)
        counts["tokens"] += count_tokens(text)
        counts["functions named by participles"] += len(participles(tree))
        counts["lines of several constants"] += crowded(tree)
        counts["aliases of Array"] += len(re.findall(r"^Array = ", text, re.MULTILINE)) * (path.name != "arrays.py")
        counts["words to avoid"] += words_in(text)
    for page in [ROOT / "README.md", *sorted((ROOT / "docs").rglob("*.md"))]:
        counts["words to avoid"] += words_in(page.read_text("utf-8"))
    return counts


def main() -> None:
    for name, number in sorted(count().items()):
        print(f"{name:<40}{number:>8,}{LIMITS[name]:>8,}{'  MORE' if number > LIMITS[name] else ''}")
    tokens, branches = Counter(), []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        tokens[name.partition("/")[0]] += count_tokens(path.read_text("utf-8"))
        for function in ast.walk(parse(path)):
            if isinstance(function, ast.FunctionDef):
                branches.append((count_branches(function), f"{name}: {function.name}"))
        for participle in participles(parse(path)):
            print(f"participle: {name}: {participle}")
    print("tokens by package:", ", ".join(f"{name} {n:,}" for name, n in sorted(tokens.items())))
    print("most branches:", ", ".join(f"{n} in {name}" for n, name in sorted(branches, reverse=True)[:5]))


if __name__ == "__main__":
    main()
