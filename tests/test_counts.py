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


def test_no_package_has_more_lines_than_its_limit(found):
    lines, _ = found
    assert lines.keys() == counts.LINES.keys()
    assert {name: number for name, number in lines.items() if number > counts.LINES[name]} == {}


def test_no_other_count_is_above_its_limit(found):
    _, others = found
    assert others.keys() == counts.LIMITS.keys()
    assert {name: number for name, number in others.items() if number > counts.LIMITS[name]} == {}


def test_what_is_counted():
    tree = ast.parse(SOURCE)
    assert sorted(counts.participles(tree)) == ["_joined_all", "taken"]
    assert counts.crowded(tree) == 1
    assert counts.words_in("Nobody is at the door; np.floor(x) is none, nor is a space.") == 2
