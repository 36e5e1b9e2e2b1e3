"""Outliers in a table that nobody has cleaned
===========================================

A model of healthy rows and a detector of outliers answer different questions.

A table has 600 rows and 30 outliers among them: alone, as a small group, and inside a ring. A `StreamingKernelPCA` that
is fitted to it learns what it is given: outliers become atoms, since they leave most unexplained, and then they are not
novel. `OutlierDetector` is made for such tables. It learns twice, the second time without the rows that are oddest at
the first, and compares all of them with what is left.

It needs the extras ``plots`` and ``sklearn``.
"""

import numpy as np
from sklearn.metrics import roc_auc_score

from streamkpca import OutlierDetector, StreamingKernelPCA, plots

# %%
# The table
# ---------

random = np.random.default_rng(0)
angle = random.uniform(0.0, 2.0 * np.pi, 400)
ring = np.column_stack([np.cos(angle), np.sin(angle)]) + random.normal(scale=0.06, size=(400, 2))
cloud = random.normal([2.4, 0.6], [0.25, 0.12], size=(200, 2))
inside = random.normal(scale=0.12, size=(10, 2))
group = random.normal([2.4, -0.9], 0.04, size=(10, 2))
alone = np.column_stack([random.uniform(-1.6, 3.4, 10), random.uniform(1.4, 1.8, 10)])
rows = np.vstack([ring, cloud, inside, group, alone])
is_outlier = np.arange(len(rows)) >= 600

# %%
# Two fits to the same rows
# -------------------------

model = StreamingKernelPCA().fit(rows)
detector = OutlierDetector(contamination=0.05).fit(rows)

# %%
# The result
# ----------

areas = {
    "novelty of a model that learned them": roc_auc_score(is_outlier, model.novelty(rows)),
    "OutlierDetector": roc_auc_score(is_outlier, detector.decision_scores_),
}
for name, area in areas.items():
    print(f"area under the ROC curve, {name}: {area:.3f}")
found = detector.labels_ == 1
print(f"of {found.sum()} rows beyond the threshold, {is_outlier[found].sum()} are outliers")

# %%
# The picture
# -----------
#
# Blue is familiar, yellow is odd, and white is odder than nine rows in ten. Outliers are circled in red, and crosses
# mark the 32 oddest rows.

x, y = np.meshgrid(np.linspace(-1.9, 3.6, 221), np.linspace(-1.6, 2.1, 149))
points = np.column_stack([x.ravel(), y.ravel()])
figure = plots.make_figure(width=12, height=4.6)
surfaces = {"novelty, as learned": model.novelty(points), "OutlierDetector": -detector.score_samples(points)}
of_rows = (model.novelty(rows), detector.decision_scores_)
for panel, (name, surface), scores in zip(figure.subplots(1, 2, sharex=True, sharey=True), surfaces.items(), of_rows):
    # Ranks among the table's rows, so that both have the same scale.
    ranks = np.searchsorted(np.sort(scores), surface).reshape(x.shape) / len(rows)
    panel.contourf(x, y, ranks, np.linspace(0.0, 0.9, 10), cmap="YlGnBu_r", alpha=0.75)
    panel.plot(*rows[~is_outlier].T, ".", color="black", markersize=2)
    panel.plot(*rows[is_outlier].T, "o", color="tab:red", fillstyle="none", markersize=6)
    odd = scores >= np.sort(scores)[-found.sum()]
    panel.plot(*rows[odd].T, "x", color="black", markersize=4)
    panel.set(title=name, aspect="equal", xticks=[], yticks=[])
figure.savefig("outliers_in_a_table.png", dpi=110)
