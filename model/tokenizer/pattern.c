#define PCRE2_CODE_UNIT_WIDTH 8
#include "model/tokenizer/pattern.h"

#include <pcre2.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/utf8.h"
#include "model/cpu_limit.h"
#include "model/tokenizer/pattern_rewrite.h"

enum {
    PATTERN_MAX_BYTES = 16 << 10,
    MATCH_STEPS = 10 * 1000 * 1000,
    MATCH_HEAP_KIB = 64 << 10,
    NESTING_MAX = 100
};
/* Published patterns take 0.1 microseconds a byte. A match is tried with few steps first, so that
 * its end can be waited for: each may look through all of the text that follows. */
enum {
    SEARCH_NS = 500 * 1000 * 1000,
    SEARCH_NS_PER_BYTE = 2000,
    FIRST_STEPS = 2000,
    FIRST_STEPS_LEAST = 16,
    FIRST_BYTES = 32 << 20,
    MORE_STEPS = 4
};

struct pattern {
    pcre2_code *code;
    bool compiled; /* to machine code */
    bool starts_known;
    uint8_t starts[32]; /* where so: a bit for each byte that a match can begin with */
    char shown[64];     /* the start of the expression, for messages */
};

struct pattern_search {
    pcre2_match_data *data;
    pcre2_match_context *context;
    struct cpu_limit time; /* of all searches together */
};

/* Whether a match can begin with a character below 0x80, which is tried alone: where that fails
 * without asking for what follows, nothing that follows helps. Whoever asks for what goes before
 * cannot be tried so. */
static bool ascii_may_start(const pcre2_code *code, pcre2_match_data *data, uint8_t c)
{
    return pcre2_match(code, &c, 1, 0, PCRE2_PARTIAL_HARD | PCRE2_NO_JIT, data, NULL) !=
           PCRE2_ERROR_NOMATCH;
}

static bool starts_try(struct pattern *p)
{
    uint32_t before = 1;
    pcre2_match_data *data = pcre2_match_data_create(4, NULL);
    pcre2_pattern_info(p->code, PCRE2_INFO_MAXLOOKBEHIND, &before);
    bool known = data && before == 0;
    memset(p->starts, 0xFF, sizeof p->starts);
    for (uint8_t c = 0; known && c < 0x80; c++)
        if (!ascii_may_start(p->code, data, c))
            p->starts[c / 8] &= (uint8_t) ~(1U << c % 8);
    pcre2_match_data_free(data);
    return known;
}

/* Which bytes a match can begin with, where the library knows or trying tells. */
static void starts_find(struct pattern *p, const pcre2_code *anywhere)
{
    const uint8_t *bits = NULL;
    uint32_t empty = 1;
    pcre2_pattern_info(anywhere, PCRE2_INFO_MATCHEMPTY, &empty);
    pcre2_pattern_info(anywhere, PCRE2_INFO_FIRSTBITMAP, (void *)&bits);
    p->starts_known = !empty && (bits || starts_try(p));
    if (!empty && bits)
        memcpy(p->starts, bits, sizeof p->starts);
}

/* Sets p->code and what follows from it. HP_EUNSUPPORTED: says which and why. */
static int code_compile(struct pattern *p, struct buffer *text, pcre2_compile_context *context,
                        const char *regex, size_t size, struct err *e)
{
    int problem;
    PCRE2_SIZE where;
    PCRE2_UCHAR words[160];
    PCRE2_SPTR source = (PCRE2_SPTR)buffer_cstr(text);
    /* No callouts, no \C, no recursion into the middle of characters; ^ and $ are per line in
     * Ruby's syntax. */
    uint32_t options = PCRE2_UTF | PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C;
    pcre2_set_parens_nest_limit(context, NESTING_MAX);
    pcre2_code *anywhere = pcre2_compile(source, text->size, options, &problem, &where, context);
    if (anywhere) /* each place is tried by itself */
        p->code =
            pcre2_compile(source, text->size, options | PCRE2_ANCHORED, &problem, &where, context);
    if (p->code) {
        starts_find(p, anywhere);
        /* where it cannot, it interprets */
        p->compiled = pcre2_jit_compile(p->code, PCRE2_JIT_COMPLETE) == 0;
    }
    pcre2_code_free(anywhere);
    if (p->code)
        return 0;
    pcre2_get_error_message(problem, words, sizeof words);
    return err_set(e, HP_EUNSUPPORTED, "the regular expression \"%.*s\" cannot be used: %s",
                   (int)(size < 200 ? size : 200), regex, (char *)words);
}

int pattern_compile(const char *regex, size_t size, struct pattern **out, struct err *e)
{
    if (size > PATTERN_MAX_BYTES)
        return err_set(e, HP_ELIMIT, "a regular expression of %zu bytes; at most %d are read", size,
                       PATTERN_MAX_BYTES);
    struct buffer text = {0};
    pattern_rewrite(regex, size, &text);
    struct pattern *p = calloc(1, sizeof *p);
    pcre2_compile_context *context = pcre2_compile_context_create(NULL);
    int rc = !p || !context || text.failed
                 ? err_set(e, HP_ENOMEM, "out of memory for a regular expression")
                 : code_compile(p, &text, context, regex, size, e);
    pcre2_compile_context_free(context);
    buffer_free(&text);
    if (rc < 0) {
        free(p);
        return rc;
    }
    size_t shown =
        utf8_valid_prefix(regex, size < sizeof p->shown - 1 ? size : sizeof p->shown - 1);
    memcpy(p->shown, regex, shown);
    *out = p;
    return 0;
}

int pattern_compile_literal(const char *text, size_t size, struct pattern **out, struct err *e)
{
    struct buffer escaped = {0};
    for (size_t i = 0; i < size; i++) {
        uint8_t c = (uint8_t)text[i];
        bool plain =
            c >= 0x80 || (c >= '0' && c <= '9') || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z');
        if (plain)
            buffer_append(&escaped, &c, 1);
        else
            buffer_printf(&escaped, "\\x{%x}", c);
    }
    int rc = escaped.failed ? err_set(e, HP_ENOMEM, "out of memory for a pattern")
                            : pattern_compile(buffer_cstr(&escaped), escaped.size, out, e);
    buffer_free(&escaped);
    return rc;
}

void pattern_destroy(struct pattern **p)
{
    if (!*p)
        return;
    pcre2_code_free((*p)->code);
    free(*p);
    *p = NULL;
}

struct pattern_search *pattern_search_create(void)
{
    struct pattern_search *s = calloc(1, sizeof *s);
    if (!s)
        return NULL;
    s->data = pcre2_match_data_create(4, NULL);
    s->context = pcre2_match_context_create(NULL);
    if (!s->data || !s->context) {
        pattern_search_destroy(&s);
        return NULL;
    }
    pcre2_set_heap_limit(s->context, MATCH_HEAP_KIB);
    cpu_limit_start(&s->time, SEARCH_NS);
    return s;
}

void pattern_search_expect(struct pattern_search *s, size_t bytes)
{
    cpu_limit_extend(&s->time, (uint64_t)bytes * SEARCH_NS_PER_BYTE);
}

void pattern_search_destroy(struct pattern_search **s)
{
    if (!*s)
        return;
    pcre2_match_data_free((*s)->data);
    pcre2_match_context_free((*s)->context);
    free(*s);
    *s = NULL;
}

static bool may_start(const struct pattern *p, uint8_t byte)
{
    return !p->starts_known || (p->starts[byte / 8] >> byte % 8 & 1);
}

static uint64_t first_steps(size_t bytes)
{
    uint64_t steps = FIRST_BYTES / (bytes + 1);
    return steps > FIRST_STEPS         ? FIRST_STEPS
           : steps < FIRST_STEPS_LEAST ? FIRST_STEPS_LEAST
                                       : steps;
}

/* Tries at one place, with more and more steps while there is time for four times what the last try
 * took. */
static int match_at(const struct pattern *p, struct pattern_search *s, const char *text,
                    size_t size, size_t at)
{
    uint64_t most = MATCH_STEPS + (uint64_t)size * 16, before = 0;
    uint32_t plain = 0;
    for (uint64_t steps = first_steps(size - at);; steps *= MORE_STEPS) {
        pcre2_set_match_limit(s->context, steps < UINT32_MAX ? (uint32_t)steps : UINT32_MAX);
        int rc = (p->compiled && !plain ? pcre2_jit_match : pcre2_match)(
            p->code, (PCRE2_SPTR)text, size, at, PCRE2_NO_UTF_CHECK | plain, s->data, s->context);
        if (rc == PCRE2_ERROR_JIT_STACKLIMIT) { /* what it interprets has its stack on the heap */
            plain = PCRE2_NO_JIT;
            continue;
        }
        if (rc != PCRE2_ERROR_MATCHLIMIT || steps >= most)
            return rc;
        uint64_t now = cpu_limit_used_ns(&s->time);
        if (now + (before ? now - before : 0) * MORE_STEPS > s->time.limit_ns)
            return rc;
        before = now;
    }
}

static int too_much(const struct pattern *p, size_t size, const char *why, struct err *e)
{
    return err_set(
        e, HP_ELIMIT,
        "the tokenizer's pattern \"%s%s\" takes too much to split %zu bytes of text into words: %s",
        p->shown, strlen(p->shown) + 4 >= sizeof p->shown ? "..." : "", size, why);
}

int pattern_find(const struct pattern *p, struct pattern_search *s, const char *text, size_t size,
                 size_t at, size_t *start, size_t *end, struct err *e)
{
    int rc = PCRE2_ERROR_NOMATCH;
    while (rc == PCRE2_ERROR_NOMATCH && at <= size) {
        if (cpu_limit_passed(&s->time))
            return too_much(p, size, "its time is over", e);
        /* Place by place, and not as far as the library would look: time is looked at in between.
         */
        while (at < size && !may_start(p, (uint8_t)text[at]))
            at++;
        if (at == size && p->starts_known) /* it takes a character at least */
            return 0;
        rc = match_at(p, s, text, size, at);
        const PCRE2_SIZE *found = pcre2_get_ovector_pointer(s->data);
        /* \K may put the start elsewhere; before the place that is no match. */
        if (rc >= 0 && found[0] <= found[1] && found[0] >= at) {
            *start = found[0];
            *end = found[1];
            return 1;
        }
        uint32_t c;
        int length = at < size ? utf8_decode(text + at, size - at, &c) : 1;
        at += (size_t)(length > 0 ? length : 1);
    }
    if (rc >= 0 || rc == PCRE2_ERROR_NOMATCH)
        return 0;
    PCRE2_UCHAR words[160];
    pcre2_get_error_message(rc, words, sizeof words);
    return too_much(p, size, (char *)words, e);
}
