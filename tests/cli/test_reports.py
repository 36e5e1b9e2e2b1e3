"""The measures of detection agree with scikit-learn's, ties and all."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.metrics import average_precision_score, roc_auc_score

from streamkpca.cli.reports import auroc, average_precision


@given(st.lists(st.tuples(st.booleans(), st.integers(-3, 3)), min_size=2, max_size=60))
def test_both_measures_agree_with_scikit_learn(pairs):
    labels, scores = (np.array(column) for column in zip(*pairs, strict=True))
    if labels.any():
        assert average_precision(labels, scores) == pytest.approx(average_precision_score(labels, scores))
    if labels.any() and not labels.all():
        assert auroc(labels, scores) == pytest.approx(roc_auc_score(labels, scores))


def test_without_both_kinds_of_rows_there_is_no_measure():
    assert np.isnan(auroc([0, 0], [1, 2]))
    assert np.isnan(auroc([1, 1], [1, 2]))
    assert np.isnan(average_precision([0, 0], [1, 2]))
    assert average_precision([1, 1], [1, 2]) == 1
