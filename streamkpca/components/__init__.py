"""What a refit makes of the moments: weights, axes, and the snapshot that answers.

* `weights`: Tipping's sparse maximum-likelihood weights, by one of three optimisers, and their noise variance: chosen
  automatically, searched for a number of active atoms, or followed along a path. `ascent` holds the default optimiser,
  with compiled steps in `_loops`; `likelihood` the Gaussian model that all three maximise.
* `spectrum`: principal axes and eigenvalues from moments, and bounds of the eigenvalues.
* `refit`: all of this in one call, from candidates and moments to a snapshot.
* `snapshot`: the immutable result, which projects rows and measures their distance; `preimages` inverts projections.
* `novelty`: the novelty score, which keeps its scale where kernel values vanish; `explanations` shares it among the
  features.
* `charts`: limits of control charts.
* `certificates`: intervals of the captured energy, and novelty thresholds.
"""
