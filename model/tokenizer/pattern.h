/* Regular expressions of tokenizer files (Oniguruma's dialect, Ruby syntax) on PCRE2, with limits
 * on what a match may take. What the dialects mean differently is spelled out first
 * (pattern_rewrite.h). */
#ifndef HP_MODEL_TOKENIZER_PATTERN_H
#define HP_MODEL_TOKENIZER_PATTERN_H

#include <stddef.h>

#include "common/status.h"

struct pattern;

/* HP_EUNSUPPORTED where PCRE2 does not take it, with its words; HP_ELIMIT beyond 16 KiB. */
int pattern_compile(const char *regex, size_t size, struct pattern **out, struct err *e);
/* One that matches `text` itself. */
int pattern_compile_literal(const char *text, size_t size, struct pattern **out, struct err *e);
void pattern_destroy(struct pattern **p);

/* Working memory and time of one thread's searches in one text: no more than 64 MiB, and half a
 * second with 2 microseconds for each byte that is expected, whatever the patterns are. Time counts
 * from its making, as the thread uses it. */
struct pattern_search;
struct pattern_search *pattern_search_create(void);
void pattern_search_expect(struct pattern_search *s, size_t bytes);
void pattern_search_destroy(struct pattern_search **s);

/* First match at or after `at` in valid UTF-8. 1 with its range; 0 when there is none; HP_ELIMIT,
 * naming the pattern, when the match takes too many steps or the time of the searches is over. */
int pattern_find(const struct pattern *p, struct pattern_search *s, const char *text, size_t size,
                 size_t at, size_t *start, size_t *end, struct err *e);

#endif
