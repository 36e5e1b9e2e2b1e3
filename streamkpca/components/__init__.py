"""What a refit makes of the moments: weights, axes, and the snapshot that answers.

* `weights`: Tipping's sparse maximum-likelihood weights, by one of three optimisers. `ascent` holds the default one,
  with compiled steps in `_loops`; `likelihood` the Gaussian model that they all maximise.
* `noise`: the noise variance: chosen automatically, searched for a number of active atoms, or followed along a path.
* `spectrum`: principal axes and eigenvalues from moments.
* `refit`: all of this in one call, from candidates and moments to a snapshot.
* `snapshot`: the immutable result, which projects rows and measures their distance; `preimages` inverts projections.
* `certificates`: bounds of the eigenvalues, the captured energy and novelty thresholds.
"""
