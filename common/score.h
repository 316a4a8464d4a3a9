/* How likely a model held tokens to be, as they cross from the last stage to whoever asked. */
#ifndef HP_COMMON_SCORE_H
#define HP_COMMON_SCORE_H

#include <stdint.h>

/* What is said of one position is a row of 1 + n of these, n the likeliest tokens that were asked
 * for: first the token that stands there, then the likeliest in their order (equal ones by their
 * ids; of a vocabulary with fewer, SCORE_NONE). */
struct score {
    uint32_t id;   /* of the first of a row instead: how many tokens are likelier, plus 1 */
    float logprob; /* ln of its share of all, by the logits as the model gives them */
};

enum { SCORE_MAX_TOP = 20 };
#define SCORE_NONE UINT32_MAX

#endif
