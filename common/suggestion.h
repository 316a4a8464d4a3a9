/* What a misspelt word was meant to be (a verb, an option, the name of a deployment): the candidate
 * with the fewest letters that are missing, added, changed or swapped with the next one (Damerau
 * 1964, each letter edited once). Pure; one thread at a time. */
#ifndef HP_COMMON_SUGGESTION_H
#define HP_COMMON_SUGGESTION_H

#include <stdbool.h>
#include <stddef.h>

enum { SUGGESTION_MAX_WORD = 64 };

/* How many letters of `typed` (`n` bytes) and `word` differ; upper and lower case do not, and a
 * changed digit counts twice, since what is numbered has names that are near. False: too many for
 * one to be meant by the other, or `typed` is empty or longer than SUGGESTION_MAX_WORD. The
 * beginning of a word, of three letters at least, stands for it, and so do three letters and more
 * that are at least half of it, in its order, its first one first ("dply"). */
bool suggestion_distance(const char *typed, size_t n, const char *word, size_t word_n, size_t *out);

struct suggestion {
    const char *best; /* NULL: nothing is near; borrowed from who offered it */
    size_t distance;  /* of `best` */
};

/* Takes a candidate that is nearer than all before it. */
void suggestion_offer(struct suggestion *s, const char *candidate, size_t distance);
/* The same of a name that is near what was typed; others are left. */
void suggestion_try(struct suggestion *s, const char *typed, const char *candidate);

#endif
