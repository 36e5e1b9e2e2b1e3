import subprocess
import sys

import pytest
from sklearn.exceptions import NotFittedError as PeerNotFittedError

from streamkpca.errors import NotFittedError, not_fitted


@pytest.mark.parametrize("kind", [NotFittedError, ValueError, AttributeError, PeerNotFittedError])
def test_callers_can_catch_it_as_any_of_these_classes(kind):
    with pytest.raises(kind, match="needs a fitted"):
        raise not_fitted("KernelPCA", "transform")


def test_without_scikit_learn_it_is_the_plain_class_and_nothing_is_imported():
    code = (
        "import sys\n"
        "from streamkpca.errors import NotFittedError, not_fitted\n"
        "assert type(not_fitted('A', 'b')) is NotFittedError\n"
        "assert not any(name.split('.')[0] == 'sklearn' for name in sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True)


def test_a_half_imported_scikit_learn_does_no_harm(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn.exceptions", None)
    assert type(not_fitted("A", "b")) is NotFittedError
