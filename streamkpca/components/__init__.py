"""From the moments of rows to weights, axes, and the snapshot that answers.

likelihood : the Gaussian model of Tipping's sparse weights
weights : three optimizers of it
noise : the noise variance, which decides how many weights are zero
spectrum : principal axes and eigenvalues from moments
refit : all of this in one call, from candidates and moments to a snapshot
snapshot : the immutable result, and its novelty score
preimages : rows whose images are near points of feature space
expectation : numbers of a row that are expected, given the others
relation : how surprising each number of a row is, given its others, by linear prediction
certificates : bounds of the eigenvalues, and intervals of the captured energy
_loops : the compiled loops of weights, novelty and expectation
"""
