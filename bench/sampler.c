/* A pick from a vocabulary of 151 936 with each set of instructions, greedy, with a temperature
 * alone and with top-p, from peaked and from flat logits. */
#include "agent/engine/sampler.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>

#include "agent/engine/sampler_kernels.h"
#include "common/doubles.h"
#include "common/env.h"

enum { VOCABULARY = 151936, ROWS = 8, PICKS = 160 };

static float normal(uint64_t *state)
{
    double sum = 0;
    for (int i = 0; i < 12; i++)
        sum += random_unit(state);
    return (float)(sum - 6);
}

static double median_ms(const struct sampler_kernels *k, const struct sampling_params *p,
                        const float *rows)
{
    struct sampler *s = NULL;
    double ms[PICKS];
    if (sampler_create(p, VOCABULARY, NULL, 0, &s, NULL) < 0)
        return NAN;
    sampler_kernels_use(s, k);
    for (int i = 0; i < PICKS; i++) {
        uint64_t from = env_now_ns(&env_real);
        sampler_pick(s, rows + (size_t)(i % ROWS) * VOCABULARY);
        ms[i] = (double)(env_now_ns(&env_real) - from) * 1e-6;
    }
    sampler_destroy(&s);
    doubles_sort(ms, PICKS);
    return doubles_median(ms, PICKS);
}

int main(void)
{
    static const struct {
        const char *name;
        struct sampling_params p;
    } kinds[] = {
        {"greedy", {.top_p = 1, .repetition_penalty = 1}},
        {"greedy, penalties", {.top_p = 1, .repetition_penalty = 1.1, .presence_penalty = 0.2}},
        {"temperature", {.temperature = 0.8, .top_p = 1, .repetition_penalty = 1, .seed = 1}},
        {"top-p 0.95", {.temperature = 0.8, .top_p = 0.95, .repetition_penalty = 1, .seed = 1}},
        {"top-p 0.95, top-k 40",
         {.temperature = 0.8, .top_p = 0.95, .top_k = 40, .repetition_penalty = 1, .seed = 1}},
        {"top-k 40",
         {.temperature = 0.8, .top_p = 1, .top_k = 40, .repetition_penalty = 1, .seed = 1}},
    };
    float *flat = malloc((size_t)ROWS * VOCABULARY * sizeof *flat),
          *peaked = malloc((size_t)ROWS * VOCABULARY * sizeof *peaked);
    uint64_t state = 1;
    if (!flat || !peaked)
        return 1;
    for (size_t i = 0; i < (size_t)ROWS * VOCABULARY; i++) {
        flat[i] = normal(&state);
        peaked[i] = 3 * flat[i] + (random_unit(&state) < 0.0002 ? 15 : 0);
    }
    printf("median ms of a pick, vocabulary %d: flat logits / peaked ones\n%-24s", VOCABULARY, "");
    for (int k = 0; sampler_kernels_all[k]; k++)
        printf("%18s", sampler_kernels_all[k]->name);
    for (size_t i = 0; i < sizeof kinds / sizeof *kinds; i++) {
        printf("\n%-24s", kinds[i].name);
        for (int k = 0; sampler_kernels_all[k]; k++) {
            bool can = sampler_kernels_all[k]->supported();
            printf("%10.3f /%6.3f",
                   can ? median_ms(sampler_kernels_all[k], &kinds[i].p, flat) : NAN,
                   can ? median_ms(sampler_kernels_all[k], &kinds[i].p, peaked) : NAN);
        }
    }
    printf("\n");
    free(flat);
    free(peaked);
    return 0;
}
