"""Pima diabetes: 40 kernels do the work of 200
============================================

This reproduces figure 4 of M. E. Tipping, "Sparse kernel principal component analysis" (NIPS 13, 2001): 200 women,
seven standardised measurements, kernel ``exp(-|x - x'|^2 / 10^2)``, no centring, a noise variance that leaves 40
kernels active. For 1 to 25 axes it compares the root mean square error of reconstruction in feature space, and the
errors that a linear support vector machine on the projections makes on 332 other women.

Where ours differs: the weights are found one at a time instead of by the paper's rule (14), which arrives at the same
ones, and several ranges of the noise variance leave 40 kernels. `n_active` finds the one that is met first when the
noise is lowered from where few are active.

Pass the folder with Ripley's two tables, Pima.tr.csv and Pima.te.csv of the R package MASS. It needs the extras
``plots`` and ``sklearn``::

    python pima.py FOLDER
"""

import sys

import numpy as np
from sklearn.model_selection import GridSearchCV
from sklearn.svm import SVC

from streamkpca import KernelPCA, SparseKernelPCA, plots
from streamkpca.kernels import RBF

# %%
# The rows
# --------

if len(sys.argv) != 2:
    raise SystemExit("usage: python pima.py FOLDER, one with Pima.tr.csv and Pima.te.csv")


def read(name):
    """Read measurements and diagnoses, without the rows' names before them."""
    table = np.loadtxt(f"{sys.argv[1]}/{name}", dtype=str, delimiter=",", quotechar='"', skiprows=1)
    return table[:, 1:8].astype(float), table[:, 8] == "Yes"


women, is_diabetic = read("Pima.tr.csv")
others, truth = read("Pima.te.csv")
rows = (women - women.mean(axis=0)) / women.std(axis=0)
test = (others - women.mean(axis=0)) / women.std(axis=0)

# %%
# The models
# ----------
#
# In the span of the same 40 kernels there are the axes of the paper (likelihood) and the best ones (ritz).

AXES = 25
kernel = RBF(1 / 10**2)
models = {"full": KernelPCA(AXES, kernel=kernel, center=False).fit(rows)}
for axes in ("ritz", "likelihood"):
    models[axes] = SparseKernelPCA(AXES, kernel=kernel, n_active=40, axes=axes, center=False).fit(rows)
print(f"noise variance {models['ritz'].noise_variance_:.4f}")

# %%
# The errors
# ----------
#
# The support vector machine's constant C is cross-validated on the full projections.

C = {"C": [1, 3, 10, 30, 100]}
machine = GridSearchCV(SVC(kernel="linear"), C).fit(models["full"].transform(rows), is_diabetic).best_estimator_

numbers = range(1, AXES + 1)
rms, wrong = {}, {}
for name, model in models.items():
    learned, asked = model.transform(rows), model.transform(test)
    rms[name] = [np.sqrt(model.reconstruction_error(rows, n_components=q).mean()) for q in numbers]
    answers = [machine.fit(learned[:, :q], is_diabetic).predict(asked[:, :q]) for q in numbers]
    wrong[name] = [(answer != truth).sum() for answer in answers]

print(f"axes {' '.join(f'{name:>10}' for name in models)}   errors on {len(test)} women: {', '.join(models)}")
for i, q in enumerate(numbers):
    print(f"{q:>4}", *(f"{rms[name][i]:>10.4f}" for name in models), *(f"{wrong[name][i]:>6}" for name in models))

figure = plots.make_figure(width=11, height=4.4)
left, right = figure.subplots(1, 2)
for name in models:
    left.plot(numbers, rms[name], ".-", label=name)
    right.plot(numbers, 100 * np.array(wrong[name]) / len(test), ".-", label=name)
left.set(xlabel="axes", ylabel="RMS error of reconstruction", yscale="log")
right.set(xlabel="axes", ylabel="test error of a linear SVM, %")
left.set_yticks([0.05, 0.1, 0.2, 0.3], ["0.05", "0.1", "0.2", "0.3"], minor=False)
left.minorticks_off()
left.legend()
figure.savefig("pima.png", dpi=130)
