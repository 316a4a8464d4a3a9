#include "hpctl/suggestion.h"

#include <string.h>

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

/* Rows of the table of distances of beginnings: of two letters ago, one ago, and this one. */
static size_t letters_distance(const char *a, size_t a_n, const char *b, size_t b_n)
{
    size_t rows[3][SUGGESTION_MAX_WORD + 1] = {{0}};
    size_t *before = rows[0], *last = rows[1], *now = rows[2];
    for (size_t j = 0; j <= b_n; j++)
        last[j] = j;
    for (size_t i = 1; i <= a_n; i++) {
        now[0] = i;
        for (size_t j = 1; j <= b_n; j++) {
            size_t changed = last[j - 1] + (a[i - 1] != b[j - 1]);
            now[j] = min_of(changed, 1 + min_of(last[j], now[j - 1]));
            if (i > 1 && j > 1 && a[i - 1] == b[j - 2] && a[i - 2] == b[j - 1])
                now[j] = min_of(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last, last = now, now = free_row;
    }
    return last[b_n];
}

bool suggestion_distance(const char *typed, size_t n, const char *word, size_t word_n, size_t *out)
{
    if (n == 0 || n > SUGGESTION_MAX_WORD || word_n > SUGGESTION_MAX_WORD)
        return false;
    if (n >= 3 && n < word_n && memcmp(typed, word, n) == 0) {
        *out = 1;
        return true;
    }
    *out = letters_distance(typed, n, word, word_n);
    return *out <= (n < 6 ? 1 : n / 3) && *out < n;
}

void suggestion_offer(struct suggestion *s, const char *candidate, size_t distance)
{
    if (!s->best || distance < s->distance)
        *s = (struct suggestion){candidate, distance};
}
