#include "common/suggestion.h"

#include <ctype.h>
#include <string.h>

static size_t min_of(size_t a, size_t b)
{
    return a < b ? a : b;
}

static bool letters_equal(char a, char b)
{
    return tolower((unsigned char)a) == tolower((unsigned char)b);
}

static size_t letter_change(char a, char b)
{
    if (letters_equal(a, b))
        return 0;
    return isdigit((unsigned char)a) && isdigit((unsigned char)b) ? 2 : 1;
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
            size_t changed = last[j - 1] + letter_change(a[i - 1], b[j - 1]);
            now[j] = min_of(changed, 1 + min_of(last[j], now[j - 1]));
            if (i > 1 && j > 1 && letters_equal(a[i - 1], b[j - 2]) &&
                letters_equal(a[i - 2], b[j - 1]))
                now[j] = min_of(now[j], before[j - 2] + 1);
        }
        size_t *free_row = before;
        before = last, last = now, now = free_row;
    }
    return last[b_n];
}

/* Whether letters of the word were left out, and nothing else, nor its first one. */
static bool letters_left_out(const char *typed, size_t n, const char *word, size_t word_n)
{
    size_t found = 0;
    if (n < 3 || word_n > 2 * n || !letters_equal(typed[0], word[0]))
        return false;
    for (size_t i = 0; i < word_n && found < n; i++)
        found += letters_equal(typed[found], word[i]);
    return found == n;
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
    if (letters_left_out(typed, n, word, word_n))
        return true;
    return *out <= (n < 6 ? 1 : n / 3) && *out < n;
}

void suggestion_offer(struct suggestion *s, const char *candidate, size_t distance)
{
    if (!s->best || distance < s->distance)
        *s = (struct suggestion){candidate, distance};
}

void suggestion_try(struct suggestion *s, const char *typed, const char *candidate)
{
    size_t distance;
    if (suggestion_distance(typed, strlen(typed), candidate, strlen(candidate), &distance))
        suggestion_offer(s, candidate, distance);
}
