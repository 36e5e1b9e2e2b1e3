"""What the fork server imports, so that each service starts at once."""

import numpy as np
from sensor_services import import_example

from streamkpca import StreamingKernelPCA, kernels

import_example()
rows = np.random.default_rng(0).normal(size=(1100, 3))
model = StreamingKernelPCA(kernel=kernels.RBF(), max_atoms=24, on_bad_rows="skip").partial_fit(rows)
for row in rows[:300]:
    model.partial_fit([row])
model.novelty_threshold(0.99)
model.novelty(rows[:1])
model.contributions(rows[:1])
