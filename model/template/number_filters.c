/* Filters that give numbers. */
#include <ctype.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "model/template/arithmetic.h"
#include "model/template/filters.h"

/* A number spelled out, with white space around it allowed; false when it is none. */
static bool read_real(struct text t, struct value *out)
{
    char digits[64], *end;
    size_t n = 0;
    t = text_strip(t, (struct text){NULL, 0}, STRIP_LEFT | STRIP_RIGHT);
    if (t.size == 0 || t.size >= sizeof digits || memchr(t.data, 'x', t.size) ||
        memchr(t.data, 'X', t.size) || text_space((uint8_t)t.data[0]))
        return false;
    for (size_t i = 0; i < t.size; i++) {
        bool between = i > 0 && i + 1 < t.size && isdigit((uint8_t)t.data[i - 1]) &&
                       isdigit((uint8_t)t.data[i + 1]);
        if (t.data[i] != '_' || !between)
            digits[n++] = t.data[i];
    }
    digits[n] = 0;
    *out = value_real(strtod(digits, &end));
    return *end == 0 && end != digits;
}

/* A whole number in a base from 2 to 36, or 0 for the one that its prefix says, with "_" between
 * digits. *large: it is one, and beyond 64 bits. */
static bool read_whole(struct text t, int64_t base, struct value *out, bool *large)
{
    t = text_strip(t, (struct text){NULL, 0}, STRIP_LEFT | STRIP_RIGHT);
    bool negative = t.size > 0 && t.data[0] == '-', any = false, zero = false;
    size_t at = t.size > 0 && (negative || t.data[0] == '+');
    char letter = at + 1 < t.size && t.data[at] == '0' ? (char)(t.data[at + 1] | 0x20) : 0;
    int64_t said = letter == 'x' ? 16 : letter == 'o' ? 8 : letter == 'b' ? 2 : 0;
    bool prefixed = said && (base == 0 || base == said);
    base = base == 0 ? (said ? said : 10) : base;
    at += prefixed ? 2 : 0;
    uint64_t n = 0;
    for (bool after_bar = !prefixed; at < t.size; at++) {
        char c = t.data[at];
        if (c == '_' && (any || prefixed) && !after_bar) {
            after_bar = true;
            continue;
        }
        int digit = c >= '0' && c <= '9'                     ? c - '0'
                    : (c | 0x20) >= 'a' && (c | 0x20) <= 'z' ? (c | 0x20) - 'a' + 10
                                                             : 99;
        if (digit >= base)
            return false;
        *large |= __builtin_mul_overflow(n, (uint64_t)base, &n) ||
                  __builtin_add_overflow(n, (uint64_t)digit, &n) || n > INT64_MAX;
        any = true;
        after_bar = false;
    }
    zero = t.size > 0 && t.data[t.size - 1] == '_';
    *out = value_integer(negative ? -(int64_t)(n & INT64_MAX) : (int64_t)(n & INT64_MAX));
    return any && !zero;
}

static int filter_int(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    const struct value *fallback = argument_get(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    int64_t base;
    bool large = false;
    int rc = argument_integer(r, args, 1, "base", 10, &base);
    if (rc < 0)
        return rc;
    if (v.type == VALUE_STRING &&
        ((base != 0 && base < 2) || base > 36 || !read_whole(v.string, base, &v, &large)) &&
        !read_real(in->string, &v))
        v = value_none();
    if (large)
        return run_fail(r, HP_EUNSUPPORTED, "a whole number beyond 64 bits");
    if (v.type == VALUE_FLOAT && fabs(v.real) < 9.2e18)
        v = value_integer((int64_t)v.real);
    if (v.type == VALUE_INT || v.type == VALUE_BOOL)
        *out = value_integer(value_as_integer(&v));
    else
        *out = fallback ? *fallback : value_integer(0);
    return 0;
}

static int filter_float(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    const struct value *fallback = argument_get(args, 0, "default");
    struct value v = *in;
    if (v.type == VALUE_UNDEFINED)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v.string.size, v.string.data);
    if (v.type == VALUE_STRING && !read_real(v.string, &v))
        v = value_none();
    *out = value_is_number(&v) ? value_real(value_as_real(&v))
           : fallback          ? *fallback
                               : value_real(0);
    return 0;
}

static int filter_abs(struct run *r, const struct value *in, const struct arguments *args,
                      struct value *out)
{
    (void)args;
    if (!value_is_number(in))
        return run_fail(r, HP_EINVAL, "bad operand type for abs(): '%s'", value_type_word(in));
    *out =
        in->type == VALUE_FLOAT ? value_real(fabs(in->real)) : value_integer(value_as_integer(in));
    if (out->type == VALUE_INT && out->integer < 0)
        return run_binary(r, '-', &(struct value){.type = VALUE_INT}, out, out);
    return 0;
}

static int filter_round(struct run *r, const struct value *in, const struct arguments *args,
                        struct value *out)
{
    int64_t precision;
    struct text method;
    char digits[400];
    int rc = argument_integer(r, args, 0, "precision", 0, &precision);
    if (rc == 0)
        rc = argument_text(r, args, 1, "method", text_of("common"), &method);
    if (rc < 0)
        return rc;
    if (!value_is_number(in) || precision < 0 || precision > 20)
        return run_fail(r, HP_EINVAL, "%s cannot be rounded to %lld places", value_type_word(in),
                        (long long)precision);
    double d = value_as_real(in), scale = pow(10, (double)precision);
    if (text_is(method, "ceil") || text_is(method, "floor")) {
        *out = value_real((text_is(method, "ceil") ? ceil(d * scale) : floor(d * scale)) / scale);
        return 0;
    }
    *out = in->type == VALUE_FLOAT ? *in : value_integer(value_as_integer(in));
    if (in->type == VALUE_FLOAT && isfinite(d)) {
        snprintf(digits, sizeof digits, "%.*f", (int)precision, d);
        *out = value_real(strtod(digits, NULL));
    }
    return 0;
}

const struct filter template_number_filters[] = {
    {"int", filter_int}, {"float", filter_float}, {"abs", filter_abs}, {"round", filter_round},
    {NULL, NULL},
};
