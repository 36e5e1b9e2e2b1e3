/* How rare a row is, and what is expected of its numbers: a part of C files, see views.py. */

/* In how many healthy rows a view finds one as odd, given the logarithm of a score, on the scale of kpca_levels: that of
   level k is once in 2^k rows. Rarity is a power in between, and grows with the distance beyond the last one. */
static kpca_number kpca_rank(int view, kpca_number logarithm)
{
    const kpca_number *level = kpca_levels[view];
    kpca_number rarity = 2, share;
    int k;
    if (!(logarithm > level[0])) return 1;
    for (k = 2; k < kpca_n_levels && logarithm >= level[1]; ++k) {
        rarity *= 2;
        ++level;
    }
    share = (logarithm - level[0]) / (level[1] - level[0]);
    return rarity * (share > 1 ? share : kpca_exp((share - 1) * (kpca_number)0.69314718055994531));
}

/* A row is as rare as its rarer view, and two views that differ are rare more often than one. */
static kpca_number kpca_rarer(kpca_number place, kpca_number relation)
{
    const kpca_number rarity = (place > relation ? place : relation) / kpca_rarity_divisor[0];
    return rarity > 1 ? rarity : 1;
}

/* Standardise a number; what is missing counts as the mean. */
static kpca_number kpca_standardise(int k, kpca_number x)
{
    const kpca_number z = x * kpca_inverse_scales[k], most = (kpca_number)1e9;
    return z >= most ? most : z <= -most ? -most : z == z ? z : 0;
}

/* Predict each number of a standardised row by the others, where expected is no null pointer, and tell how surprising
   it is: a number of terms, where that is none. Returns their sum. */
static kpca_number kpca_relate(const kpca_number z[kpca_d], kpca_number *expected, kpca_number *terms)
{
    const kpca_number *row = kpca_precision;
    kpca_number sum = 0;
    int j, k;
    for (j = 0; j < kpca_d; row += ++j) {
        const kpca_number *entry = row + j;
        kpca_number others = 0, off, term;
        for (k = 0; k < j; ++k) others += row[k] * z[k];
        for (k = j + 1; k < kpca_d; ++k) {
            entry += k;
            others += *entry * z[k];
        }
        others *= -row[j];
        off = (z[j] - others) * kpca_inverse_units[j];
        term = kpca_log(1 + off * off);
        if (expected != 0) expected[j] = others;
        if (terms != 0) terms[j] = term;
        sum += term;
    }
    return sum;
}

/* The position of the largest term. */
static int kpca_most_surprising(const kpca_number terms[kpca_d])
{
    int j, most = 0;
    for (j = 1; j < kpca_d; ++j) most = terms[j] > terms[most] ? j : most;
    return most;
}
