/* Methods of strings that look at each character: kinds, cases, ends and filling up. */
#include <string.h>
#include <utf8proc.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/methods.h"

int method_strip(struct run *r, const struct value *self, const struct arguments *args, int how,
                 struct value *out)
{
    struct text set;
    int rc = argument_text(r, args, 0, "chars", (struct text){NULL, 0}, &set);
    /* Each character is looked for in the set. */
    rc = rc < 0 ? rc : run_tick(r, self->string.size / 64 * (1 + set.size / 16));
    *out = rc < 0 ? value_none() : value_text(text_strip(self->string, set, how));
    return rc;
}

int method_case(struct run *r, const struct value *self, const struct arguments *args, int how,
                struct value *out)
{
    (void)args;
    struct buffer b = {0};
    int rc = run_tick_text(r, self->string.size);
    if (rc == 0)
        text_case(self->string, (enum text_case)how, &b);
    rc = rc < 0 ? rc : value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

/* Characters that are digits to Python and no decimal digits: superscripts, circled ones and the
 * like. */
static bool other_digit(uint32_t c)
{
    static const uint32_t ranges[][2] = {
        {0xB2, 0xB3},       {0xB9, 0xB9},       {0x1369, 0x1371},   {0x19DA, 0x19DA},
        {0x2070, 0x2070},   {0x2074, 0x2079},   {0x2080, 0x2089},   {0x2460, 0x2468},
        {0x2474, 0x247C},   {0x2488, 0x2490},   {0x24EA, 0x24EA},   {0x24F5, 0x24FD},
        {0x24FF, 0x24FF},   {0x2776, 0x277E},   {0x2780, 0x2788},   {0x278A, 0x2792},
        {0x10A40, 0x10A43}, {0x10E60, 0x10E68}, {0x11052, 0x1105A}, {0x1F100, 0x1F10A},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof *ranges; i++)
        if (c >= ranges[i][0] && c <= ranges[i][1])
            return true;
    return false;
}

static int kinds_of(uint32_t c)
{
    int kinds = (text_space(c) ? IS_SPACE : 0) | (c < 0x80 ? IS_ASCII : 0);
    switch (utf8proc_category((utf8proc_int32_t)c)) {
    case UTF8PROC_CATEGORY_ND: return kinds | IS_DECIMAL | IS_DIGIT | IS_NUMERIC;
    case UTF8PROC_CATEGORY_NL: return kinds | IS_NUMERIC;
    case UTF8PROC_CATEGORY_NO: return kinds | IS_NUMERIC | (other_digit(c) ? IS_DIGIT : 0);
    case UTF8PROC_CATEGORY_LU: return kinds | IS_ALPHA | IS_UPPER;
    case UTF8PROC_CATEGORY_LL: return kinds | IS_ALPHA | IS_LOWER;
    case UTF8PROC_CATEGORY_LT:
    case UTF8PROC_CATEGORY_LM:
    case UTF8PROC_CATEGORY_LO: return kinds | IS_ALPHA;
    default: return kinds;
    }
}

int method_is_all(struct run *r, const struct value *self, const struct arguments *args, int kinds,
                  struct value *out)
{
    (void)args;
    int rc = run_tick_text(r, self->string.size);
    bool all = rc == 0 && (self->string.size > 0 || kinds == IS_ASCII);
    for (size_t at = 0; at < self->string.size && all;) {
        uint32_t c = 0;
        int length = utf8_decode(self->string.data + at, self->string.size - at, &c);
        at += length > 0 ? (size_t)length : 1;
        all = (kinds_of(c) & kinds) != 0;
    }
    *out = value_bool(all);
    return rc;
}

int method_is_case(struct run *r, const struct value *self, const struct arguments *args, int kind,
                   struct value *out)
{
    (void)args;
    int seen = 0, rc = run_tick_text(r, self->string.size);
    for (size_t at = 0; rc == 0 && at < self->string.size;) {
        uint32_t c = 0;
        int length = utf8_decode(self->string.data + at, self->string.size - at, &c);
        at += length > 0 ? (size_t)length : 1;
        seen |= kinds_of(c) & (IS_UPPER | IS_LOWER);
    }
    *out = value_bool(seen == kind);
    return rc;
}

int method_remove_end(struct run *r, const struct value *self, const struct arguments *args,
                      int at_end, struct value *out)
{
    struct text what, t = self->string;
    int rc = argument_text(r, args, 0, "prefix", (struct text){"", 0}, &what);
    rc = rc < 0 ? rc : run_tick_bytes(r, what.size);
    if (rc == 0 && (at_end ? text_ends(t, what) : text_starts(t, what)))
        t = (struct text){at_end ? t.data : t.data + what.size, t.size - what.size};
    *out = value_text(t);
    return rc;
}

static void put_fill(struct buffer *b, struct text fill, size_t n)
{
    for (size_t i = 0; i < n; i++)
        buffer_append(b, fill.data, fill.size);
}

/* ljust, rjust, center: to a width in characters. */
int method_justify(struct run *r, const struct value *self, const struct arguments *args, int how,
                   struct value *out)
{
    struct text fill;
    int64_t width;
    int rc = argument_integer(r, args, 0, "width", 0, &width);
    rc = rc < 0 ? rc : argument_text(r, args, 1, "fillchar", (struct text){" ", 1}, &fill);
    rc = rc < 0 ? rc : run_tick_text(r, self->string.size);
    if (rc < 0)
        return rc;
    if (args->n + args->n_named == 0)
        return run_fail(r, HP_EINVAL, "filling up needs a width");
    if (text_length(fill) != 1)
        return run_fail(r, HP_EINVAL, "The fill character must be exactly one character long");
    int64_t length = (int64_t)text_length(self->string), more = width > length ? width - length : 0;
    if (more > (int64_t)r->max_output / 4)
        return run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    /* In the middle the odd one comes first where the width is odd. */
    int64_t before = how == JUSTIFY_RIGHT    ? more
                     : how == JUSTIFY_CENTER ? more / 2 + (more & width & 1)
                                             : 0;
    struct buffer b = {0};
    put_fill(&b, fill, (size_t)before);
    buffer_append(&b, self->string.data, self->string.size);
    put_fill(&b, fill, (size_t)(more - before));
    rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

int method_zfill(struct run *r, const struct value *self, const struct arguments *args, int how,
                 struct value *out)
{
    (void)how;
    int64_t width;
    int rc = argument_integer(r, args, 0, "width", 0, &width);
    struct text t = self->string;
    rc = rc < 0 ? rc : run_tick_text(r, t.size);
    int64_t length = (int64_t)text_length(t), more = width > length ? width - length : 0;
    if (rc == 0 && more > (int64_t)r->max_output)
        rc = run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    if (rc < 0)
        return rc;
    size_t sign = t.size > 0 && (t.data[0] == '+' || t.data[0] == '-');
    struct buffer b = {0};
    buffer_append(&b, t.data, sign);
    put_fill(&b, (struct text){"0", 1}, (size_t)more);
    buffer_append(&b, t.data + sign, t.size - sign);
    rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}
