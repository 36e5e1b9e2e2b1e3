/* The answers of a model: the template that c_answers.py fills. Every name begins with kpca_, and numbers become those
   of single precision where that is wanted. */

/* @uses@
void kpca_transform(const double x[kpca_d], double y[kpca_q]);
    writes the projection of a row onto the principal axes; x and y must not overlap.
double kpca_reconstruction_error(const double x[kpca_d]);
    returns the squared distance to the span of the atoms, in units of k(x, x), never negative.
double kpca_novelty(const double x[kpca_d]);
    returns that on a scale that goes on growing far away, -e log(1 - that / e) with e = k(x, x), if e is the same
    for all rows; else that itself.
double kpca_rarity(const double x[kpca_d]);
    returns in how many healthy rows one is as odd, by its place or by the relation of its numbers.
int kpca_explain(const double x[kpca_d], double expected[kpca_d], double terms[kpca_d]);
    writes what is expected of each number, given the others, and how surprising it is, and returns the
    position of the most surprising one. Numbers that are NaN count as means.
*/

#include <math.h>

#ifdef __cplusplus
extern "C" {
#endif
/* @heads@ */
#ifdef __cplusplus
}
#endif

/* @tables@ */

#if kpca_HAS_COSINES
/* Scale a row to length 1, without overflow; a row of zeros stays. */
static void kpca_scale(double *u, int n)
{
    int k;
    double largest = 0.0, sum = 0.0;
    for (k = 0; k < n; ++k) largest = fabs(u[k]) > largest ? fabs(u[k]) : largest;
    if (!(largest > 0.0)) return;
    for (k = 0; k < n; ++k) {
        u[k] /= largest;
        sum += u[k] * u[k];
    }
    sum = sqrt(sum);
    for (k = 0; k < n; ++k) u[k] /= sum;
}
#endif

/* @kernel@ */

/* Project a row onto the principal axes. */
void kpca_transform(const double x[kpca_d], double y[kpca_q])
{
    int i, j;
    double u[kpca_width];
    kpca_prepare(x, u);
    for (j = 0; j < kpca_q; ++j) y[j] = -kpca_offset[j];
    for (i = 0; i < kpca_k; ++i) {
        const double value = kpca_kernel(u, kpca_atoms[kpca_ACTIVE(i)]);
        for (j = 0; j < kpca_q; ++j) y[j] += value * kpca_projection[i][j];
    }
}

/* Turn kernel values into the coordinates of a row in the span of the atoms; return the sum of their squares. */
static double kpca_solve(double values[kpca_s])
{
    const double *factor = kpca_factor;
    double explained = 0.0;
    int i, j;
    for (i = 0; i < kpca_s; ++i) {
        for (j = 0; j < i; ++j) values[i] -= *factor++ * values[j];
        values[i] *= *factor++;
        explained += values[i] * values[i];
    }
    return explained;
}

/* Squared distance of a row to the span of the atoms: k(x, x) less the squares of its coordinates there. */
double kpca_reconstruction_error(const double x[kpca_d])
{
    int i;
    double u[kpca_width], values[kpca_s], error;
    kpca_prepare(x, u);
    for (i = 0; i < kpca_s; ++i) values[i] = kpca_kernel(u, kpca_atoms[i]);
    error = kpca_OWN - kpca_solve(values);
    return error < 0.0 ? 0.0 : error;
}

#if kpca_HAS_LOGARITHMS
/* Novelty of a row: minus k(x, x) log of the explained share of k(x, x), from logarithms of kernel values. Where all are
   so low that they cannot differ, infinity less infinity would be NaN. */
double kpca_novelty(const double x[kpca_d])
{
    int i;
    double u[kpca_width], values[kpca_s], top, score;
    kpca_prepare(x, u);
    for (i = 0; i < kpca_s; ++i) values[i] = kpca_log_kernel(u, kpca_atoms[i]);
    top = values[0];
    for (i = 1; i < kpca_s; ++i) top = values[i] > top ? values[i] : top;
    for (i = 0; i < kpca_s; ++i) values[i] = top < kpca_LEAST_LOG ? 1.0 : exp(values[i] - top);
    score = -kpca_OWN * (2.0 * top + log(kpca_solve(values)) - kpca_LOG_OWN);
    return score < 0.0 ? 0.0 : score > kpca_MOST ? kpca_MOST : score;
}
#else
/* Novelty of a row: its reconstruction error. */
double kpca_novelty(const double x[kpca_d])
{
    return kpca_reconstruction_error(x);
}
#endif

/* @rarity@ */

/* Rarity of a row: that of its novelty or of the surprise of its numbers, whichever is higher. */
double kpca_rarity(const double x[kpca_d])
{
    double z[kpca_d], surprise;
    const double novelty = kpca_novelty(x);
    int k;
    if (novelty != novelty) return novelty;
    for (k = 0; k < kpca_d; ++k) z[k] = kpca_standardise(k, x[k] - kpca_mean[k]);
    surprise = kpca_relate(z, 0, 0);
    return kpca_rarer(kpca_rank(0, log(novelty > 1e-30 ? novelty : 1e-30)),
        kpca_rank(1, log(surprise > 1e-30 ? surprise : 1e-30)));
}

/* Expected numbers of a row, each given the others, and how surprising the numbers are. */
int kpca_explain(const double x[kpca_d], double expected[kpca_d], double terms[kpca_d])
{
    double z[kpca_d];
    int k;
    for (k = 0; k < kpca_d; ++k) z[k] = kpca_standardise(k, x[k] - kpca_mean[k]);
    (void)kpca_relate(z, expected, terms);
    for (k = 0; k < kpca_d; ++k) expected[k] = expected[k] / kpca_inverse_scales[k] + kpca_mean[k];
    return kpca_most_surprising(terms);
}
