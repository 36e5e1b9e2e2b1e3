/* How rare a row is, and what is expected of its numbers: a part of C files, see c_rarity.py. */

/* In how many healthy rows a view finds one as odd, given the logarithm of a score, on the scale of kpca_levels: that of
   level k is once in 2^k rows. Rarity is a power in between, and grows with the distance beyond the last one. */
static double kpca_rank(int view, double logarithm)
{
    const double *level = kpca_levels[view];
    double rarity = 2, share;
    int k;
    if (!(logarithm > level[0])) return 1;
    for (k = 2; k < kpca_n_levels && logarithm >= level[1]; ++k) {
        rarity *= 2;
        ++level;
    }
    share = (logarithm - level[0]) / (level[1] - level[0]);
    return rarity * (share > 1 ? share : exp((share - 1) * 0.69314718055994531));
}

/* A row is as rare as its rarer view, and two views that differ are rare more often than one. */
static double kpca_rarer(double place, double relation)
{
    const double rarity = (place > relation ? place : relation) / kpca_rarity_divisor[0];
    return rarity > 1 ? rarity : 1;
}

/* Standardise a number; what is missing counts as the mean. */
static double kpca_standardise(int k, double x)
{
    const double z = x * kpca_inverse_scales[k], most = 1e9;
    return z >= most ? most : z <= -most ? -most : z == z ? z : 0;
}

/* Predict each number of a standardised row by the others, where expected is no null pointer, and tell how surprising
   it is: a number of terms, where that is none. Returns their sum. */
static double kpca_relate(const double z[kpca_d], double *expected, double *terms)
{
    const double *row = kpca_precision;
    double sum = 0;
    int j, k;
    for (j = 0; j < kpca_d; row += ++j) {
        const double *entry = row + j;
        double others = 0, off, term;
        for (k = 0; k < j; ++k) others += row[k] * z[k];
        for (k = j + 1; k < kpca_d; ++k) {
            entry += k;
            others += *entry * z[k];
        }
        others *= -row[j];
        off = (z[j] - others) * kpca_inverse_units[j];
        term = log(1 + off * off);
        if (expected != 0) expected[j] = others;
        if (terms != 0) terms[j] = term;
        sum += term;
    }
    return sum;
}

/* The position of the largest term. */
static int kpca_most_surprising(const double terms[kpca_d])
{
    int j, most = 0;
    for (j = 1; j < kpca_d; ++j) most = terms[j] > terms[most] ? j : most;
    return most;
}
