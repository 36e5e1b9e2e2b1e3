"""From the moments of rows to weights, axes, and the snapshot that answers.

* `weights`: Tipping's sparse maximum-likelihood weights by one of three optimisers, and the searches for their noise
  variance; `likelihood` has the Gaussian model that all three maximise, and the default one, coordinate ascent.
* `spectrum`: principal axes and eigenvalues from moments, and bounds of the eigenvalues.
* `refit`: all of this in one call, from candidates and moments to a snapshot.
* `snapshot`: the immutable result and its novelty score; `preimages` and `expectation` are other answers.
* `relation`: how surprising each number of a row is, given its others, by linear prediction.
* `certificates`: intervals of the captured energy.
"""
