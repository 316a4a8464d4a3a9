/* How files of the LLaMA family stretch the rotary embedding to longer contexts. */
#ifndef HP_MODEL_GRAPH_ROPE_H
#define HP_MODEL_GRAPH_ROPE_H

#include "common/arena.h"
#include "common/status.h"
#include "model/graph/config.h"
#include "model/weights.h"

/* LLaMA 3.1's scaling ("llama3" of Hugging Face's rope types): frequencies of long wavelengths are
 * divided by `factor`, short ones stay, and between the two bounds they blend. */
struct rope_llama3 {
    double factor, low_freq_factor, high_freq_factor;
    double original_context; /* that the model was first trained with */
};
/* Writes what each inverse frequency is divided by: factors[dims / 2]. */
void rope_llama3_factors(const struct rope_llama3 *s, double base, int dims, float *factors);

/* The dynamic scaling by the base (NTK; "dynamic" of Hugging Face's rope types) of a sequence that
 * is `times` as long as the original context: what each inverse frequency is divided by, for 4
 * dimensions or more. */
void rope_dynamic_factors(double factor, double times, int dims, float *factors);

/* What YaRN multiplies cosine and sine by: 1 + m / 10 * ln(factor). */
double rope_yarn_magnitude(double factor, double m);
/* YaRN (arXiv 2309.00071): frequencies that turn less than `beta_slow` times over the original
 * context are divided by `factor`, those that turn more than `beta_fast` times stay, and between
 * the two they blend; with `truncate` the bounds are whole pairs. Makes a rotation's factors of
 * these numbers, which it keeps. HP_EPARSE, HP_ENOMEM. */
int rope_yarn_take(const char *file, const struct rope_yarn *y, struct arena *arena,
                   struct rope_config *rope, struct err *e);
/* Room for the factors of a rotation. HP_EPARSE where its dimensions make none, HP_ENOMEM. */
int rope_factors_alloc(const char *file, int dims, struct arena *arena, float **out, struct err *e);

/* The same factors as a tensor has them: finite, positive, one for each pair. HP_EPARSE names file
 * and tensor. */
int rope_factors_from_weight(const char *file, const struct weight *w, int dims,
                             struct arena *arena, const float **out, struct err *e);

#endif
