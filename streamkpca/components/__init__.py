"""From the moments of rows to weights, axes, and the snapshot that answers.

* `weights`: Tipping's sparse maximum-likelihood weights by one of three optimisers, and the searches for their noise
  variance; `ascent` holds the default optimiser, `likelihood` the Gaussian model that all three maximise.
* `spectrum`: principal axes and eigenvalues from moments, and bounds of the eigenvalues.
* `refit`: all of this in one call, from candidates and moments to a snapshot.
* `snapshot`: the immutable result; `preimages`, `novelty`, `completion` and `expectation`
  are its answers.
* `relation`: how surprising each number of a row is, given its others, by linear prediction.
* `certificates`: intervals of the captured energy.
"""
