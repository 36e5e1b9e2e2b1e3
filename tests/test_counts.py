"""What a reader has to carry does not grow."""

import ast

import counts
import pytest

SOURCE = '''
"""Text that is no code."""

A, B = 1, 2
C, D = range(2)

def taken(x): ...
def take(x): ...
def squared_norms(x): ...

class Case:
    @property
    def made(self): ...
    def settled(self): ...
    def _joined_all(self): ...
'''


@pytest.fixture(scope="module")
def found():
    return counts.count()


def test_no_count_is_above_its_limit(found):
    assert found.keys() == counts.LIMITS.keys()
    assert {name: number for name, number in found.items() if number > counts.LIMITS[name]} == {}


def test_what_is_counted():
    tree = ast.parse(SOURCE)
    assert sorted(counts.participles(tree)) == ["_joined_all", "taken"]
    assert counts.crowded(tree) == 1
    assert counts.count_tokens('"""A text."""\n\nx = 1  # why\n') == 3
    assert counts.count_branches(ast.parse("def f(x):\n    return [y for y in x if y] if x else []")) == 2
    assert counts.words_in("Nobody is at the door; np.floor(x) is none, nor is a space.") == 2
