/* What a misspelt verb or option was meant to be: the candidate with the fewest letters that are
 * missing, added, changed or swapped with the next one (Damerau 1964, each letter edited once).
 * Pure; one thread at a time. */
#ifndef HP_HPCTL_SUGGESTION_H
#define HP_HPCTL_SUGGESTION_H

#include <stdbool.h>
#include <stddef.h>

enum { SUGGESTION_MAX_WORD = 40 };

/* How many letters of `typed` (`n` bytes) and `word` differ. False: too many for one to be meant
 * by the other, or `typed` is empty or longer than SUGGESTION_MAX_WORD. The beginning of a word, of
 * three letters at least, stands for it. */
bool suggestion_distance(const char *typed, size_t n, const char *word, size_t word_n, size_t *out);

struct suggestion {
    const char *best; /* NULL: nothing is near; borrowed from who offered it */
    size_t distance;  /* of `best` */
};

/* Takes a candidate that is nearer than all before it. */
void suggestion_offer(struct suggestion *s, const char *candidate, size_t distance);

#endif
