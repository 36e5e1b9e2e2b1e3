/* Learning on a device: the template that c_learning.py fills. Every name begins with kpca_. */

/* @uses@
int kpca_update(const float x[kpca_d]);
    scores a row, then learns it; 0 if it is usual, 1 if it is at a novel place, 2 if its numbers break the
    relation, -1 if it was refused and only counted: NaN, infinite, or farther than 1e7 units away.
float kpca_novelty(const float x[kpca_d]);
    scores a row without learning it; NaN if it would be refused.
float kpca_rarity(const float x[kpca_d]);
    in how many rows one is as odd, by its place or by the relation of its numbers; the same.
int kpca_explain(const float x[kpca_d], float expected[kpca_d], float terms[kpca_d]);
    writes what is expected of each number, given the others, and how surprising it is, and returns the
    position of the most surprising one. Numbers that are not finite count as means.
void kpca_reset(void);
    begins again with what the file says; what is saved stays until the next save.
int kpca_load(int (*read)(int slot, uint32_t at, unsigned char bytes[32], uint32_t count));
    restores the newest state of two slots. To be called before the first row. The caller's read fills bytes
    from a position in slot 0 or 1; 0 for success. Returns 0; 1 if the other slot holds a state from home that
    was made from an older one than the newest, and so was not taken; -1 if neither slot holds a whole state
    of this file, and nothing changes, or if one that did could not be read again, and nothing is saved until
    load succeeds; -2 if rows were learned since the last save, and nothing changes: save them, or call reset.
int kpca_save(int (*write)(int slot, uint32_t at, const unsigned char bytes[32], uint32_t count));
    writes the state in order over the slot that does not hold the newest one, which a power cut leaves; 0 for
    success, -1 if write fails, or before load. Erase the slot when position 0 comes.
int kpca_slot(void);
    the slot that the next save overwrites, where a state from home belongs; -1 before load.
*/

#include <math.h>
#include <stdint.h>

/* @heads@ */

/* @tables@ */

enum {
    kpca_words_of_constants = (int)(sizeof kpca_constants / 4),
    kpca_words_of_memory = (int)(sizeof(kpca_memory) / 4)
};

/* The state; the slot of the newest whole copy in storage, -1 until the slots were read; whether rows came since. */
static kpca_memory kpca_now;
static int kpca_newest = -1, kpca_has_learned = 0;

typedef union { float number; uint32_t bits; } kpca_word;

/* exp(x) for x <= 0, to 1e-7; the library's could differ from processor to processor. */
static float kpca_exp(float x)
{
    kpca_word power;
    float y = 1.9875691e-4f;
    int n;
    if (!(x > -86.0f)) return 0.0f;
    n = (int)(x * 1.442695f - 0.5f);
    x -= (float)n * 0.693359375f;
    x += (float)n * 2.1219444e-4f;
    y = y * x + 1.3981999e-3f;
    y = y * x + 8.3334519e-3f;
    y = y * x + 4.1665796e-2f;
    y = y * x + 1.6666665e-1f;
    y = y * x + 5.0e-1f;
    y = y * (x * x) + x + 1.0f;
    power.bits = (uint32_t)(n + 127) << 23;
    return y * power.number;
}

/* log(x) for normal x > 0, to 1e-7. */
static float kpca_log(float x)
{
    kpca_word word;
    float y = 7.0376836e-2f, square;
    int e;
    word.number = x;
    e = (int)(word.bits >> 23) - 127;
    word.bits = (word.bits & 0x7fffffu) | 0x3f800000u;
    x = word.number;
    if (x > 1.4142135f) {
        x *= 0.5f;
        ++e;
    }
    x -= 1.0f;
    square = x * x;
    y = y * x - 1.1514610e-1f;
    y = y * x + 1.1676999e-1f;
    y = y * x - 1.2420141e-1f;
    y = y * x + 1.4249323e-1f;
    y = y * x - 1.6668058e-1f;
    y = y * x + 2.0000715e-1f;
    y = y * x - 2.5000000e-1f;
    y = y * x + 3.3333331e-1f;
    y = y * x * square;
    y -= (float)e * 2.1219444e-4f;
    y -= 0.5f * square;
    return x + y + (float)e * 0.693359375f;
}

/* The root of x > 0, to 1e-7. That of libraries reports errors, which takes a kilobyte of memory with newlib. */
static float kpca_sqrt(float x)
{
    kpca_word word;
    float y;
    word.number = x;
    word.bits = (word.bits >> 1) + 0x1fbd1df5u;
    y = word.number;
    y = 0.5f * (y + x / y);
    y = 0.5f * (y + x / y);
    return 0.5f * (y + x / y);
}

/* A number from 0 up to 1. */
static float kpca_random(void)
{
    kpca_now.seed = kpca_now.seed * 1664525u + 1013904223u;
    return (float)(kpca_now.seed >> 8) * 5.9604645e-8f;
}

static int kpca_start_of(int i)
{
    return i * (i + 1) / 2;
}

static void kpca_copy(float *to, const float *from, int count)
{
    int i;
    for (i = 0; i < count; ++i) to[i] = from[i];
}

/* A row in the kernel's units; 0 if a number is missing or beyond all range. */
static int kpca_scaled(const float x[kpca_d], float u[kpca_d])
{
    int k, is_good = 1;
    for (k = 0; k < kpca_d; ++k) {
        u[k] = (x[k] - kpca_centre[k]) * kpca_scale[k];
        if (!(u[k] >= -1e7f && u[k] <= 1e7f)) is_good = 0;
    }
    return is_good;
}

/* The inner product of two rows, or minus their squared distance. */
static float kpca_base(const float u[kpca_d], const float v[kpca_d])
{
    float sum = 0.0f;
    int k;
    for (k = 0; k < kpca_d; ++k) {
#if kpca_IS_RBF
        const float apart = u[k] - v[k];
        sum -= apart * apart;
#else
        sum += u[k] * v[k];
#endif
    }
    return sum;
}

/* Project a row onto the atoms: coordinates c times exp(top). Returns the sum of their squares. */
static float kpca_coordinates(const float u[kpca_d], float c[kpca_m], float *top)
{
    const float *l = kpca_now.factor;
    const int n = (int)kpca_now.n_atoms;
    float explained = 0.0f;
    int i, j;
    *top = kpca_IS_RBF ? -1e30f : 0.0f;
    for (i = 0; i < n; ++i) {
        c[i] = kpca_base(u, kpca_now.atoms[i]);
        if (kpca_IS_RBF && c[i] > *top) *top = c[i];
    }
    for (i = 0; i < n; ++i) {
        float rest = kpca_IS_RBF ? kpca_exp(c[i] - *top) : c[i];
        for (j = 0; j < i; ++j) rest -= *l++ * c[j];
        rest /= *l++;
        c[i] = rest;
        explained += rest * rest;
    }
    return explained;
}

typedef struct { float energy, residual, novelty; } kpca_score;

/* Score a row and find its coordinates c. Returns 0 if single precision cannot hold them. */
static int kpca_project(const float u[kpca_d], float c[kpca_m], kpca_score *score)
{
    float top, explained = kpca_coordinates(u, c, &top);
#if kpca_IS_RBF
    const float factor = kpca_exp(top);
    const int n = (int)kpca_now.n_atoms;
    int i;
    if (!(explained > 1e-30f && explained < 1e30f)) return 0;
    score->energy = 1.0f;
    score->novelty = -(2.0f * top + kpca_log(explained));
    for (i = 0; i < n; ++i) c[i] *= factor;
    explained *= factor;
    score->residual = 1.0f - explained * factor;
#else
    score->energy = kpca_base(u, u);
    score->residual = score->energy - explained;
    score->novelty = score->residual;
#endif
    if (!(score->residual >= -score->energy)) return 0;
    if (score->residual < 0.0f) score->residual = 0.0f;
    if (score->novelty < 0.0f) score->novelty = 0.0f;
    return 1;
}

/* @rarity@ */

/* The fields of candidates, which come last, are zero at first. Byte by byte: compilers write an assignment of structures
   as thousands of stores. */
static void kpca_begin(void)
{
    const volatile unsigned char *from = (const volatile unsigned char *)&kpca_initial;
    unsigned char *to = (unsigned char *)&kpca_now;
    int i;
    for (i = 0; i < 4 * kpca_words_of_memory; ++i) to[i] = i < (int)sizeof kpca_initial ? from[i] : 0;
}

static int kpca_begun(const float x[kpca_d], float u[kpca_d])
{
    if (kpca_now.n_atoms == 0u) kpca_begin();
    return kpca_scaled(x, u);
}

/* Answers */

float kpca_novelty(const float x[kpca_d])
{
    float u[kpca_d], c[kpca_m];
    kpca_score score;
    if (!kpca_begun(x, u) || !kpca_project(u, c, &score)) return NAN;
    return score.novelty * kpca_unit;
}

/* Standardise a row, for the relation. */
static void kpca_related(const float u[kpca_d], float z[kpca_d])
{
    int k;
    for (k = 0; k < kpca_d; ++k) z[k] = kpca_standardise(k, u[k] - kpca_now.mean[k]);
}

/* How surprising the numbers of a row are, given the others. */
static float kpca_surprise(const float u[kpca_d])
{
    float z[kpca_d];
    kpca_related(u, z);
    return kpca_relate(z, 0, 0);
}

/* In how many rows a view finds one as odd. */
static float kpca_rarity_of(int view, float score)
{
    const float share = score / kpca_now.threshold[view];
    return kpca_rank(view, kpca_log(share > 1e-30f ? share : 1e-30f));
}

float kpca_rarity(const float x[kpca_d])
{
    float u[kpca_d], c[kpca_m];
    kpca_score score;
    if (!kpca_begun(x, u) || !kpca_project(u, c, &score)) return NAN;
    return kpca_rarer(kpca_rarity_of(0, score.novelty), kpca_rarity_of(1, kpca_surprise(u)));
}

int kpca_explain(const float x[kpca_d], float expected[kpca_d], float terms[kpca_d])
{
    float z[kpca_d];
    int k;
    (void)kpca_begun(x, z);
    kpca_related(z, z);
    (void)kpca_relate(z, expected, terms);
    for (k = 0; k < kpca_d; ++k) {
        expected[k] = (expected[k] / kpca_inverse_scales[k] + kpca_now.mean[k]) / kpca_scale[k] + kpca_centre[k];
    }
    return kpca_most_surprising(terms);
}

/* Learning */

/* Return how rare a row is, 0 where it is no alarm, and let the level of a view follow its share of rows: up by a share
   of itself for an alarm, the less the more came before without a break, and down by a smaller share for another row. */
static float kpca_follow(int view, float score)
{
    float *threshold = &kpca_now.threshold[view], *run = &kpca_now.run[view], rarity = 0.0f;
    if (!(score <= *threshold)) {
        rarity = kpca_rarity_of(view, score);
        if (*run < 1e6f) *run += 1.0f;
        *threshold *= 1.0f + kpca_up / kpca_sqrt(*run);
        if (*threshold > 1e30f) *threshold = 1e30f;
    } else {
        *run = 0.0f;
        *threshold *= 1.0f - kpca_down;
        if (*threshold < 1e-5f) *threshold = 1e-5f;
    }
    return rarity;
}

/* Let a row judge the candidates: what each would explain of it. */
static void kpca_judge(const float u[kpca_d], const float c[kpca_m], float residual)
{
    const int n = (int)kpca_now.n_atoms;
    int i, p;
    for (p = 0; p < kpca_p; ++p) {
        const float own = kpca_now.candidate_residual[p];
        float shared = kpca_base(u, kpca_now.candidate_rows[p]), gain;
        if (!(own > 0.0f)) continue;
        if (kpca_IS_RBF) shared = kpca_exp(shared);
        for (i = 0; i < n; ++i) shared -= c[i] * kpca_now.candidate_coordinates[p][i];
        gain = shared * shared / own;
        /* By the inequality of Cauchy and Schwarz, which rounding may break. */
        if (gain > residual) gain = residual;
        kpca_now.candidate_count[p] += 1.0f;
        kpca_now.candidate_missed[p] += residual;
        kpca_now.candidate_batch[p] += gain;
        if ((int)kpca_now.candidate_count[p] % kpca_rows_of_batch == 0) {
            /* Errors are judged by the means of batches, because neighbours in a stream are alike. */
            gain = kpca_now.candidate_batch[p] / (float)kpca_rows_of_batch;
            kpca_now.candidate_gain[p] += gain;
            kpca_now.candidate_square[p] += gain * gain;
            kpca_now.candidate_batch[p] = 0.0f;
        }
    }
}

/* Add to a sum of two numbers, of which the second keeps what the first is too large for. */
static void kpca_add(float sum[2], float value)
{
    const float low = sum[1] + value, high = sum[0] + low;
    sum[1] = low - (high - sum[0]);
    sum[0] = high;
}

static void kpca_blend(float *mean, float gain, float fading, float value)
{
    *mean += gain * value - fading * *mean;
}

/* The share of a row in the means. */
static float kpca_gain(void)
{
    const float gain = 1.0f / kpca_now.total_weight[0];
    return gain > 9.5367432e-7f ? gain : 9.5367432e-7f;
}

/* Take a row into the moments and the account. All means fade by the same random factor around the right one, so that
   what rounding takes from them is zero on average: triangular dither. */
static void kpca_record(const float u[kpca_d], const float c[kpca_m], const kpca_score *score)
{
    float *second = kpca_now.second, gain, fading;
    const int n = (int)kpca_now.n_atoms;
    int i, j;
    kpca_add(kpca_now.total_weight, 1.0f - kpca_fading * kpca_now.total_weight[0]);
    kpca_add(kpca_now.squared_weight, 1.0f - kpca_squared_fading * kpca_now.squared_weight[0]);
    gain = kpca_gain();
    fading = kpca_random();
    fading = gain + (fading - kpca_random()) * 1.1920929e-7f;
    for (i = 0; i < n; ++i) {
        const float scaled = gain * c[i];
        kpca_blend(&kpca_now.first[i], gain, fading, c[i]);
        for (j = 0; j <= i; ++j) {
            second[j] += scaled * c[j] - fading * second[j];
        }
        second += i + 1;
        kpca_now.weight_since_admission[i] += 1.0f - kpca_fading * kpca_now.weight_since_admission[i];
    }
    for (i = 0; i < kpca_d; ++i) kpca_blend(&kpca_now.mean[i], gain, fading, u[i]);
    kpca_blend(&kpca_now.energy, gain, fading, score->energy);
    kpca_blend(&kpca_now.lost_on_arrival, gain, fading, score->residual);
    kpca_blend(&kpca_now.lost_by_removal, gain, fading, 0.0f);
    if (score->energy > kpca_now.largest_energy) kpca_now.largest_energy = score->energy;
    if (++kpca_now.n_rows[0] == 0u) ++kpca_now.n_rows[1];
}

/* Compute what rows would lose without one atom, another one each time: [D' M D]_jj / [D' D]_jj with D = L^-1. */
static void kpca_appraise(float w[kpca_m])
{
    /* The mask says that j is not negative: without it, GCC 12 warns at one atom. */
    const int n = (int)kpca_now.n_atoms, j = (int)(kpca_now.turn % kpca_now.n_atoms & 0x7fffu);
    const float since = kpca_now.weight_since_admission[j], memory = 1.0f / kpca_gain();
    float length = 0.0f, recorded = 0.0f;
    int i, k;
    kpca_now.turn = (uint32_t)(j + 1);
    for (i = j; i < n; ++i) {
        const float *l = kpca_now.factor + kpca_start_of(i), *second = kpca_now.second + kpca_start_of(i);
        float rest = i == j ? 1.0f : 0.0f, across = 0.0f;
        for (k = j; k < i; ++k) {
            rest -= l[k] * w[k];
            across += second[k] * w[k];
        }
        rest /= l[i];
        w[i] = rest;
        length += rest * rest;
        recorded += rest * (2.0f * across + rest * second[i]);
    }
    recorded /= length;
    if (since < (float)(kpca_rows_of_batch * kpca_least_batches) && since < 0.5f * memory) {
        recorded = 1e30f;
    } else if (since < memory) {
        recorded *= memory / since;
    }
    kpca_now.loss[j] = recorded;
}

/* Rotate directions i and i + 1 of the basis by a cosine a and a sine b. */
static void kpca_rotate(int i, float a, float b)
{
    const int n = (int)kpca_now.n_atoms;
    float *second = kpca_now.second, *first = kpca_now.first, x, y, z;
    int k;
    x = first[i];
    y = first[i + 1];
    first[i] = a * x + b * y;
    first[i + 1] = a * y - b * x;
    for (k = 0; k < n; ++k) {
        float *row = k < i ? second + kpca_start_of(i) + k : second + kpca_start_of(k) + i;
        float *next = k < i ? second + kpca_start_of(i + 1) + k : row + 1;
        if (k == i || k == i + 1) continue;
        x = *row;
        y = *next;
        *row = a * x + b * y;
        *next = a * y - b * x;
    }
    second += kpca_start_of(i + 1);
    x = second[-1];
    y = second[i];
    z = second[i + 1];
    second[-1] = a * (a * x + b * y) + b * (a * y + b * z);
    second[i] = a * (a * y - b * x) + b * (a * z - b * y);
    second[i + 1] = a * (a * z - b * y) - b * (a * y - b * x);
    for (k = i + 1; k < n; ++k) {
        float *row = kpca_now.factor + kpca_start_of(k) + i;
        x = row[0];
        y = row[1];
        row[0] = a * x + b * y;
        row[1] = a * y - b * x;
    }
}

/* Drop an atom for a candidate: rotate its direction to the end, where the factor of the others is a triangle again. The
   candidate's coordinates turn with the basis, and what it has along the last direction becomes a part of its residual.
   So its place is sure, and a device never is without atoms. */
static void kpca_drop(int j, int p)
{
    const int last = (int)kpca_now.n_atoms - 1;
    float *c = kpca_now.candidate_coordinates[p];
    int i;
    for (i = j; i < last; ++i) {
        const float *row = kpca_now.factor + kpca_start_of(i + 1) + i;
        const float length = kpca_sqrt(row[0] * row[0] + row[1] * row[1]);
        const float a = row[0] / length, b = row[1] / length, x = c[i], y = c[i + 1];
        kpca_rotate(i, a, b);
        c[i] = a * x + b * y;
        c[i + 1] = a * y - b * x;
    }
    for (i = j; i < last; ++i) {
        kpca_copy(kpca_now.factor + kpca_start_of(i), kpca_now.factor + kpca_start_of(i + 1), i + 1);
        kpca_copy(kpca_now.atoms[i], kpca_now.atoms[i + 1], kpca_d);
        kpca_now.loss[i] = kpca_now.loss[i + 1];
        kpca_now.weight_since_admission[i] = kpca_now.weight_since_admission[i + 1];
    }
    kpca_now.lost_by_removal += kpca_now.second[kpca_start_of(last) + last];
    kpca_now.candidate_residual[p] += c[last] * c[last];
}

/* Prepare a candidate to be judged by the rows to come; its place gets free if the atoms explain it. After a change of
   the atoms that concerns it little, the rows so far count. */
static void kpca_prepare(int p)
{
    kpca_score score;
    float *c = kpca_now.candidate_coordinates[p];
    const float before = kpca_now.candidate_residual[p];
    const int is_good = kpca_project(kpca_now.candidate_rows[p], c, &score);
    const int is_apart = is_good && score.residual > kpca_least_residual * score.energy && score.residual > 1e-12f;
    kpca_now.candidate_residual[p] = is_apart ? score.residual : 0.0f;
    if (before > 0.0f && kpca_now.candidate_residual[p] > 0.9f * before) return;
    kpca_now.candidate_count[p] = kpca_now.candidate_missed[p] = kpca_now.candidate_batch[p] = 0.0f;
    kpca_now.candidate_gain[p] = kpca_now.candidate_square[p] = 0.0f;
}

/* Let a candidate become atom n, the last one. Its moments start at zero. */
static void kpca_admit(int p, int n)
{
    float *row = kpca_now.factor + kpca_start_of(n), *second = kpca_now.second + kpca_start_of(n);
    int i;
    for (i = 0; i < n; ++i) {
        row[i] = kpca_now.candidate_coordinates[p][i];
        second[i] = 0.0f;
    }
    row[n] = kpca_sqrt(kpca_now.candidate_residual[p]);
    second[n] = 0.0f;
    kpca_now.first[n] = 0.0f;
    kpca_now.weight_since_admission[n] = 0.0f;
    kpca_now.loss[n] = 1e30f;
    kpca_copy(kpca_now.atoms[n], kpca_now.candidate_rows[p], kpca_d);
    kpca_now.n_atoms = (uint32_t)(n + 1);
    kpca_now.candidate_residual[p] = 0.0f;
    for (i = 0; i < kpca_p; ++i) {
        if (kpca_now.candidate_residual[i] > 0.0f) kpca_prepare(i);
    }
}

/* Admit a candidate whose gain, less one standard error, is worth an atom; drop those that will not be. At the budget,
   the gain counts in full once it was found on a quarter of the rows that the means stand for: a few rows that were
   alike must not outweigh what an atom has explained for long. */
static void kpca_decide(void)
{
    const int n = (int)kpca_now.n_atoms, has_room = n < kpca_m;
    const float memory = 0.25f / kpca_gain();
    float tolerated = kpca_now.energy, needed;
    int i, p, weakest = 0;
    for (i = 0; i < n; ++i) {
        tolerated -= kpca_now.first[i] * kpca_now.first[i];
        weakest = kpca_now.loss[i] < kpca_now.loss[weakest] ? i : weakest;
    }
    if (tolerated < 1e-6f * kpca_now.energy) tolerated = 1e-6f * kpca_now.energy;
    tolerated *= kpca_tolerance;
    needed = has_room ? tolerated / (float)kpca_m : 1.5f * kpca_now.loss[weakest];
    for (p = 0; p < kpca_p; ++p) {
        const float count = kpca_now.candidate_count[p];
        const int n_batches = (int)count / kpca_rows_of_batch;
        float mean, error, share = 1.0f;
        if (!(kpca_now.candidate_residual[p] > 0.0f) || n_batches < kpca_least_batches) continue;
        if ((int)count != n_batches * kpca_rows_of_batch) continue;
        mean = kpca_now.candidate_gain[p] / (float)n_batches;
        error = kpca_now.candidate_square[p] / (float)n_batches - mean * mean;
        error = error > 0.0f ? kpca_sqrt(error / (float)(n_batches - 1)) : 0.0f;
        if (!has_room && count < memory) share = count / memory;
        if (mean + error <= needed || kpca_now.candidate_missed[p] <= tolerated * count || count >= 4.0f * memory) {
            kpca_now.candidate_residual[p] = 0.0f;
        } else if ((mean - error) * share > needed) {
            if (!has_room) kpca_drop(weakest, p);
            kpca_admit(p, has_room ? n : n - 1);
            return;
        }
    }
}

/* Draw the next candidate among some rows, with chances in proportion to their residuals. Where all places were taken
   for long, the candidate that gained least gives way: it may be of a moment that does not come back. */
static void kpca_draw(const float u[kpca_d], const kpca_score *score)
{
    float least = 1e30f;
    int p, place = -1;
    kpca_now.waiting_count += 1.0f;
    if (score->residual > kpca_least_residual * score->energy) {
        kpca_now.waiting_weight += score->residual;
        if (kpca_random() * kpca_now.waiting_weight < score->residual) kpca_copy(kpca_now.waiting_row, u, kpca_d);
    }
    if (kpca_now.waiting_count < (float)kpca_rows_to_draw || !(kpca_now.waiting_weight > 0.0f)) return;
    for (p = 0; p < kpca_p; ++p) {
        const int n_batches = (int)kpca_now.candidate_count[p] / kpca_rows_of_batch;
        const int is_free = !(kpca_now.candidate_residual[p] > 0.0f);
        float gain = -1.0f;
        if (!is_free) {
            if (n_batches < kpca_least_batches) continue;
            if (kpca_now.waiting_count < (float)(kpca_rows_of_batch * kpca_least_batches)) continue;
            gain = kpca_now.candidate_gain[p] / (float)n_batches;
        }
        if (gain < least) {
            least = gain;
            place = p;
        }
    }
    if (place < 0) return;
    kpca_copy(kpca_now.candidate_rows[place], kpca_now.waiting_row, kpca_d);
    kpca_now.candidate_residual[place] = 0.0f;
    kpca_prepare(place);
    kpca_now.waiting_count = kpca_now.waiting_weight = 0.0f;
}

int kpca_update(const float x[kpca_d])
{
    float u[kpca_d], c[kpca_m], place, relation;
    kpca_score score;
    if (!kpca_begun(x, u) || !kpca_project(u, c, &score)) {
        if (kpca_now.n_refused < 0xffffffffu) ++kpca_now.n_refused;
        return -1;
    }
    kpca_has_learned = 1;
    place = kpca_follow(0, score.novelty);
    relation = kpca_follow(1, kpca_surprise(u));
    kpca_judge(u, c, score.residual);
    kpca_record(u, c, &score);
    kpca_appraise(c);
    kpca_decide();
    kpca_draw(u, &score);
    return relation > place ? 2 : place > 0.0f;
}

/* The state in storage: two slots. A save overwrites the one that does not hold the newest whole state. */

static uint32_t kpca_crc(uint32_t crc, uint32_t word)
{
    static const uint32_t table[16] = {
        0x00000000u, 0x1db71064u, 0x3b6e20c8u, 0x26d930acu, 0x76dc4190u, 0x6b6b51f4u, 0x4db26158u, 0x5005713cu,
        0xedb88320u, 0xf00f9344u, 0xd6d6a3e8u, 0xcb61b38cu, 0x9b64c2b0u, 0x86d3d2d4u, 0xa00ae278u, 0xbdbdf21cu};
    int i;
    for (i = 0; i < 8; ++i, word >>= 4) crc = (crc >> 4) ^ table[(crc ^ word) & 15u];
    return crc;
}

void kpca_reset(void)
{
    const uint32_t sequence = kpca_now.sequence, parent = kpca_now.parent;
    kpca_begin();
    kpca_now.sequence = sequence;
    kpca_now.parent = parent;
    kpca_has_learned = 0;
}

int kpca_slot(void)
{
    return kpca_newest < 0 ? -1 : 1 - kpca_newest;
}

int kpca_save(int (*write)(int slot, uint32_t at, const unsigned char bytes[32], uint32_t count))
{
    const unsigned char *memory = (const unsigned char *)&kpca_now;
    const int n_words = kpca_words_of_constants + kpca_words_of_memory + 1;
    unsigned char bytes[32];
    uint32_t crc = 0xffffffffu, checksum = 0u;
    const int slot = kpca_slot();
    int i, k;
    if (slot < 0) return -1;
    ++kpca_now.sequence;
    kpca_now.is_sent = 0u;
    for (i = 0; i < n_words; ++i) {
        const int at = 4 * (i % 8);
        kpca_word word;
        if (i < kpca_words_of_constants) {
            word.bits = kpca_constants[i];
        } else if (i < n_words - 1) {
            for (k = 0; k < 4; ++k) ((unsigned char *)&word)[k] = *memory++;
        } else {
            word.bits = checksum = crc ^ 0xffffffffu;
        }
        crc = kpca_crc(crc, word.bits);
        for (k = 0; k < 4; ++k) bytes[at + k] = (unsigned char)(word.bits >> (8 * k) & 255u);
        if ((at == 28 || i == n_words - 1) && write(slot, (uint32_t)(4 * i - at), bytes, (uint32_t)(at + 4)) != 0) {
            --kpca_now.sequence;
            return -1;
        }
    }
    kpca_now.parent = checksum;
    kpca_newest = slot;
    kpca_has_learned = 0;
    return 0;
}

/* What a state in storage says of itself: the first words of the memory, and its checksum. */
typedef struct { uint32_t sequence, parent, is_sent, n_atoms, checksum; } kpca_head;

/* Read a slot; 0 if it holds no whole state of this model. The words of the memory go to a place, unless it is null. */
static int kpca_read(
    int (*read)(int, uint32_t, unsigned char *, uint32_t), int slot, unsigned char *to, kpca_head *head)
{
    const int n_words = kpca_words_of_constants + kpca_words_of_memory + 1;
    unsigned char bytes[32] = {0};
    uint32_t crc = 0xffffffffu;
    int i, k;
    for (i = 0; i < n_words; ++i) {
        const int at = 4 * (i % 8), left = 4 * (n_words - i), place = i - kpca_words_of_constants;
        kpca_word word;
        if (at == 0 && read(slot, (uint32_t)(4 * i), bytes, (uint32_t)(left < 32 ? left : 32)) != 0) return 0;
        word.bits = 0u;
        for (k = 0; k < 4; ++k) word.bits |= (uint32_t)bytes[at + k] << (8 * k);
        if (place < 0 && word.bits != kpca_constants[i]) return 0;
        if (place == 0) head->sequence = word.bits;
        if (place == 1) head->parent = word.bits;
        if (place == 2) head->is_sent = word.bits;
        if (place == 3) head->n_atoms = word.bits;
        head->checksum = word.bits;
        if (i == n_words - 1) break;
        crc = kpca_crc(crc, word.bits);
        if (to != 0 && place >= 0) {
            for (k = 0; k < 4; ++k) *to++ = ((const unsigned char *)&word)[k];
        }
    }
    return head->checksum == (crc ^ 0xffffffffu) && head->n_atoms > 0u && head->n_atoms <= (uint32_t)kpca_m;
}

/* Tell whether to take the second of two whole states: the one that continues the other. Of two that do not, the one
   that was not sent from home has rows that the other lacks. */
static int kpca_is_second_newer(const kpca_head *first, const kpca_head *second)
{
    if (second->parent == first->checksum) return 1;
    if (first->parent == second->checksum) return 0;
    if (first->is_sent != second->is_sent) return first->is_sent != 0u;
    /* Numbers may have started again at 0. */
    return second->sequence - first->sequence < 0x80000000u;
}

int kpca_load(int (*read)(int slot, uint32_t at, unsigned char bytes[32], uint32_t count))
{
    kpca_head heads[2];
    int is_whole[2], slot, i;
    if (kpca_newest >= 0 && kpca_has_learned) return -2;
    for (i = 0; i < 2; ++i) is_whole[i] = kpca_read(read, i, 0, &heads[i]);
    slot = is_whole[1] && (!is_whole[0] || kpca_is_second_newer(&heads[0], &heads[1]));
    if (kpca_now.n_atoms == 0u) kpca_begin();
    kpca_newest = -1;
    if (!is_whole[0] && !is_whole[1]) {
        kpca_newest = 1;
        return -1;
    }
    for (i = 0; i < 2; ++i, slot = 1 - slot) {
        const kpca_head *other = &heads[1 - slot];
        if (!is_whole[slot] || !kpca_read(read, slot, (unsigned char *)&kpca_now, &heads[slot])) continue;
        kpca_now.parent = heads[slot].checksum;
        kpca_newest = slot;
        kpca_has_learned = 0;
        return is_whole[1 - slot] && other->is_sent && other->checksum != heads[slot].parent;
    }
    /* What was whole could not be read again: nothing is saved over it. */
    kpca_begin();
    return -1;
}
