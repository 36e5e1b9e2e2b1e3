"""Which kernel, and how wide?
===========================

It depends on what the model is for. Kernels are compared by cross-validation with two figures, neither of which needs
labels:

* **Telling odd rows from usual ones**: the area under the ROC curve of `novelty`, for rows that the model has not seen
  and for copies of them in which one number is another row's. 0.5 is chance.
* **Reconstructing rows from few axes**: `score`, the R^2 of rows that are found again from their projections.

They choose differently. PCA has the least squared error of all linear methods, so kernels hardly reconstruct rows
better, and wide ones come near it. But odd rows are not far from the axes only: where features depend on each other in
curved ways, a local kernel tells them from usual rows and PCA's squared prediction error (SPE) does not. The default
width is made for that.

The script needs the extras ``plots`` and ``sklearn``.
"""

import numpy as np
from sklearn.decomposition import PCA
from sklearn.metrics import roc_auc_score
from sklearn.model_selection import GridSearchCV, cross_val_score

from streamkpca import StreamingKernelPCA, plots
from streamkpca.kernels import RBF, Laplacian, Linear, Matern, Polynomial

# %%
# The rows
# --------
#
# Twenty sensors depend on the same two causes, each along a curve of its own.

random = np.random.default_rng(0)
slopes, phases = random.normal(size=(2, 20)), random.uniform(0, 2 * np.pi, 20)
rows = np.sin(3 * random.uniform(-1, 1, size=(3000, 2)) @ slopes + phases) + random.normal(scale=0.05, size=(3000, 20))

# %%
# The figures
# -----------
#
# Scorers of scikit-learn take a fitted model, and rows that were held out.


def with_foreign_numbers(rows):
    """Copy rows, with one number of each replaced by that of another row."""
    random, copies, each = np.random.default_rng(1), rows.copy(), np.arange(len(rows))
    columns = random.integers(rows.shape[1], size=len(rows))
    copies[each, columns] = rows[random.permutation(each), columns]
    return copies


def area(score, rows):
    """Return the area under the ROC curve of a score of rows, for copies with permuted features."""
    scores = np.concatenate([score(rows), score(with_foreign_numbers(rows))])
    return roc_auc_score(np.repeat([0, 1], len(rows)), scores)


scorers = {
    "novelty": lambda model, rows, y=None: area(model.novelty, rows),
    "reconstruction": lambda model, rows, y=None: model.score(rows),
}

# %%
# The models
# ----------
#
# A kernel is a parameter of `GridSearchCV`, and so are its own parameters, such as ``kernel__gamma``.

gamma = RBF().settled(rows).gamma
kernels = {f"RBF, {factor:g} x default gamma": RBF(factor * gamma) for factor in (0.1, 0.3, 1, 3, 10)}
kernels |= {"linear": Linear(), "polynomial, degree 2": Polynomial(2), "polynomial, degree 3": Polynomial(3)}
kernels |= {"Matern": Matern(1.5), "Laplacian": Laplacian()}
model = StreamingKernelPCA(10, max_atoms=128)
search = GridSearchCV(model, {"kernel": list(kernels.values())}, cv=3, scoring=scorers, refit="novelty").fit(rows)


def area_of_spe(pca, rows, y=None):
    """Measure PCA's squared prediction error as novelty is measured."""
    return area(lambda X: ((X - pca.inverse_transform(pca.transform(X))) ** 2).sum(axis=1), rows)


spe = cross_val_score(PCA(10), rows, cv=3, scoring=area_of_spe).mean()

# %%
# The result
# ----------

novelty, reconstruction = (search.cv_results_[f"mean_test_{name}"] for name in scorers)
names = np.array(list(kernels))
order = np.argsort(novelty)
print("telling odd rows, reconstructing rows, kernel")
for i in order[::-1]:
    print(f"{novelty[i]:>16.3f} {reconstruction[i]:>18.3f}    {names[i]}")
print(f"{spe:>16.3f}                       PCA's squared prediction error")

figure = plots.make_figure(width=10, height=4.4)
left, right = figure.subplots(1, 2, sharey=True)
left.plot(novelty[order], names[order], "o")
left.axvline(spe, color="#555555", linestyle="--", label="PCA's SPE")
left.set(title="telling odd rows: more is better", xlabel="area under the ROC curve, .5 is chance")
left.legend(loc="upper left")
right.plot(1 - reconstruction[order], names[order], "o", color="#D55E00")
right.set(title="reconstructing rows: less is better", xlabel="share of the variance that is missed", xscale="log")
for axes in (left, right):
    axes.grid(linewidth=0.4)
figure.savefig("choose_kernel.png", dpi=110)
