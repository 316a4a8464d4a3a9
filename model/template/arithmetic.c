/* Operators on numbers, strings and lists, as Python has them. */
#include "model/template/arithmetic.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/print.h"
#include "model/template/tree.h"

static int integer_overflow(struct run *r)
{
    return run_fail(r, HP_EUNSUPPORTED, "a whole number beyond 64 bits");
}

static int integer_power(struct run *r, int64_t base, int64_t exponent, struct value *out)
{
    if (exponent < 0 && base == 0)
        return run_fail(r, HP_EINVAL, "0.0 cannot be raised to a negative power");
    if (exponent < 0) {
        *out = value_real(pow((double)base, (double)exponent));
        return 0;
    }
    int64_t result = 1;
    bool small = base >= -1 && base <= 1;
    for (int64_t i = 0; i < exponent && !(small && i > 1 + exponent % 2); i++)
        if (__builtin_mul_overflow(result, base, &result))
            return integer_overflow(r);
    if (small)
        result = base == -1 ? (exponent % 2 ? -1 : 1) : base == 0 ? exponent == 0 : 1;
    *out = value_integer(result);
    return 0;
}

static int integers_combine(struct run *r, int op, int64_t a, int64_t b, struct value *out)
{
    int64_t c = 0;
    bool bad = false;
    switch (op) {
    case '+': bad = __builtin_add_overflow(a, b, &c); break;
    case '-': bad = __builtin_sub_overflow(a, b, &c); break;
    case '*': bad = __builtin_mul_overflow(a, b, &c); break;
    case OP_POWER: return integer_power(r, a, b, out);
    case '/':
        if (b == 0)
            return run_fail(r, HP_EINVAL, "division by zero");
        *out = value_real((double)a / (double)b);
        return 0;
    default:
        if (b == 0)
            return run_fail(r, HP_EINVAL, "division by zero");
        if (b == -1) {
            bad = op == OP_FLOOR && __builtin_sub_overflow((int64_t)0, a, &c);
            break;
        }
        /* The quotient is rounded down, and the rest has the divisor's sign. */
        bool down = a % b != 0 && (a < 0) != (b < 0);
        c = op == OP_FLOOR ? a / b - down : a % b + (down ? b : 0);
    }
    *out = value_integer(c);
    return bad ? integer_overflow(r) : 0;
}

static int reals_combine(struct run *r, int op, double a, double b, struct value *out)
{
    if ((op == '/' || op == '%' || op == OP_FLOOR) && b == 0)
        return run_fail(r, HP_EINVAL, "float division by zero");
    switch (op) {
    case '+': *out = value_real(a + b); break;
    case '-': *out = value_real(a - b); break;
    case '*': *out = value_real(a * b); break;
    case '/': *out = value_real(a / b); break;
    case OP_POWER: *out = value_real(pow(a, b)); break;
    case OP_FLOOR: *out = value_real(floor(a / b)); break;
    default: *out = value_real(a - b * floor(a / b)); break;
    }
    return 0;
}

static int joined_texts(struct run *r, struct text a, struct text b, struct value *out)
{
    size_t size;
    if (__builtin_add_overflow(a.size, b.size, &size) || size > r->max_output)
        return run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
    char *both = run_alloc(r, size + 1, 1);
    if (!both)
        return HP_ELIMIT;
    memcpy(both, a.data, a.size);
    memcpy(both + a.size, b.data, b.size);
    *out = value_text((struct text){both, size});
    return run_tick_bytes(r, size);
}

static int joined_lists(struct run *r, const struct list *a, const struct list *b,
                        struct value *out)
{
    int rc = value_new_list(r, a->kind, a->n + b->n, out);
    for (size_t i = 0; rc == 0 && i < a->n + b->n; i++)
        rc = list_push(r, out->list, i < a->n ? a->items[i] : b->items[i - a->n]);
    return rc;
}

static int sequence_repeat(struct run *r, const struct value *v, int64_t times, struct value *out)
{
    size_t n = times > 0 ? (size_t)times : 0, size;
    size_t one = v->type == VALUE_STRING ? v->string.size : v->list->n;
    if (__builtin_mul_overflow(n, one, &size) || size > r->max_output)
        return run_fail(r, HP_ELIMIT, "a repeated %s is longer than %zu", value_type_word(v),
                        r->max_output);
    int rc = 0;
    if (v->type == VALUE_LIST) {
        rc = value_new_list(r, v->list->kind, size, out);
        for (size_t i = 0; rc == 0 && i < size; i++)
            rc = list_push(r, out->list, v->list->items[i % one]);
        return rc;
    }
    char *text = run_alloc(r, size + 1, 1);
    if (!text)
        return HP_ELIMIT;
    for (size_t i = 0; i < size && one > 0; i += one)
        memcpy(text + i, v->string.data, one);
    *out = value_text((struct text){text, size});
    return run_tick_bytes(r, size);
}

/* %5s and %-5s: filled up with spaces. */
static int fill_text(struct run *r, bool quoted, const char *flags, const struct value *v,
                     struct buffer *out)
{
    bool left = *flags == '-';
    size_t width = (size_t)strtoul(flags + left, NULL, 10), before = out->size;
    int rc = value_print(r, v, quoted, 0, out);
    size_t length =
        rc < 0 || !out->data
            ? width
            : text_length((struct text){(const char *)out->data + before, out->size - before});
    size_t spaces = width > length ? width - length : 0, size = out->size - before;
    uint8_t *end = spaces ? buffer_extend(out, spaces) : NULL;
    if (end && !left)
        memmove(out->data + before + spaces, out->data + before, size);
    if (end)
        memset(out->data + before + (left ? size : 0), ' ', spaces);
    return rc;
}

static int fill_one(struct run *r, char how, const char *flags, const struct value *v,
                    struct buffer *out)
{
    char format[48];
    if (how == 's' || how == 'r')
        return fill_text(r, how == 'r', flags, v, out);
    if (!value_is_number(v))
        return run_fail(r, HP_EINVAL, "%%%c format: a real number is required, not %s", how,
                        value_type_word(v));
    if (how == 'd' || how == 'i' || how == 'x') {
        double d = value_as_real(v);
        if (v->type == VALUE_FLOAT && !(fabs(d) < 9e18))
            return integer_overflow(r);
        snprintf(format, sizeof format, "%%%sll%c", flags, how);
        buffer_printf(out, format,
                      (long long)(v->type == VALUE_FLOAT ? (int64_t)d : value_as_integer(v)));
        return 0;
    }
    snprintf(format, sizeof format, "%%%s%c", flags, how);
    buffer_printf(out, format, value_as_real(v));
    return 0;
}

/* A text that is being filled, and how much of what is given has been used. */
struct filling {
    struct text format;
    size_t at;                        /* in it */
    const struct value *args, *items; /* items [n]: one after the other */
    size_t n, used;
};

/* "(name)": its value of the dict that is given. NULL in *out: no name stands there. */
static int fill_name(struct run *r, struct filling *f, const struct value **out)
{
    const char *here = f->format.data + f->at, *end = NULL;
    size_t left = f->format.size - f->at;
    *out = NULL;
    if (left && *here == '(' && f->args->type == VALUE_DICT)
        end = memchr(here, ')', left);
    if (!end)
        return 0;
    struct text name = {here + 1, (size_t)(end - here - 1)};
    f->at += name.size + 2;
    *out = dict_get_text(f->args->dict, name);
    return *out ? 0
                : run_fail(r, HP_EINVAL, "'%.*s' is not given to the format",
                           (int)(name.size < 40 ? name.size : 40), name.data);
}

/* What stands behind a "%". */
static int fill_next(struct run *r, struct filling *f, struct buffer *out)
{
    const struct value *v;
    char flags[6] = "";
    size_t n_flags = 0;
    int rc = fill_name(r, f, &v);
    if (rc < 0)
        return rc;
    while (f->at < f->format.size && n_flags + 1 < sizeof flags &&
           strchr("-+ 0123456789.", f->format.data[f->at]))
        flags[n_flags++] = f->format.data[f->at++];
    char how = f->at < f->format.size ? f->format.data[f->at] : 0;
    f->at++;
    if (how == '%') {
        buffer_append(out, "%", 1);
        return 0;
    }
    if (!how || !strchr("sdifgexr", how))
        return run_fail(r, HP_EUNSUPPORTED, "a format other than %%s %%d %%i %%f %%g %%e %%x %%r");
    if (!v && f->used == f->n)
        return run_fail(r, HP_EINVAL, "not enough arguments for format string");
    return fill_one(r, how, flags, v ? v : &f->items[f->used++], out);
}

/* "%s has %d" % (a, b) */
static int format_fill(struct run *r, struct text format, const struct value *args,
                       struct value *out)
{
    bool tuple = args->type == VALUE_LIST && args->list->kind == LIST_TUPLE,
         all = tuple || (args->type != VALUE_LIST && args->type != VALUE_DICT);
    struct filling f = {.format = format,
                        .args = args,
                        .items = tuple ? args->list->items : args,
                        .n = tuple ? args->list->n : 1};
    struct buffer b = {0};
    int rc = 0;
    while (rc == 0 && f.at < format.size) {
        char c = format.data[f.at++];
        if (b.size > r->max_output)
            rc = run_fail(r, HP_ELIMIT, "a text is longer than %zu bytes", r->max_output);
        else if (c == '%')
            rc = fill_next(r, &f, &b);
        else
            buffer_append(&b, &c, 1);
    }
    if (rc == 0 && f.used < f.n && all)
        rc = run_fail(r, HP_EINVAL, "not all arguments converted during string formatting");
    if (rc == 0)
        rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

static bool is_whole(const struct value *v)
{
    return v->type == VALUE_INT || v->type == VALUE_BOOL;
}
static bool value_repeats(const struct value *v)
{
    return v->type == VALUE_STRING || (v->type == VALUE_LIST && v->list->kind != LIST_LAZY);
}

/* A string that is not marked as fit for HTML is escaped beside one that is. */
static int as_safe(struct run *r, const struct value *v, struct value *out)
{
    *out = *v;
    if (v->type != VALUE_STRING || v->safe)
        return 0;
    struct buffer b = {0};
    value_print_escaped(v->string, &b);
    int rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

/* Operators where one operand is marked. */
static int safe_binary(struct run *r, int op, const struct value *a, const struct value *b,
                       struct value *out)
{
    struct value left = *a, right = *b;
    int rc = 0;
    if (op == '%' && b->type == VALUE_LIST && b->list->kind == LIST_TUPLE) {
        rc = value_new_list(r, LIST_TUPLE, 0, &right);
        for (size_t i = 0; rc == 0 && i < b->list->n; i++) {
            struct value item;
            rc = as_safe(r, &b->list->items[i], &item);
            rc = rc < 0 ? rc : list_push(r, right.list, item);
        }
    } else if (op == '+' || op == '%') {
        rc = as_safe(r, a, &left);
        rc = rc < 0 ? rc : as_safe(r, b, &right);
    }
    left.safe = right.safe = false;
    rc = rc < 0 ? rc : run_binary(r, op, &left, &right, out);
    out->safe = rc == 0 && out->type == VALUE_STRING;
    return rc;
}

int run_binary(struct run *r, int op, const struct value *a, const struct value *b,
               struct value *out)
{
    if ((a->type == VALUE_STRING && a->safe) || (b->type == VALUE_STRING && b->safe && op != '%'))
        return safe_binary(r, op, a, b, out);
    if (is_whole(a) && is_whole(b))
        return integers_combine(r, op, value_as_integer(a), value_as_integer(b), out);
    if (value_is_number(a) && value_is_number(b))
        return reals_combine(r, op, value_as_real(a), value_as_real(b), out);
    if (op == '+' && a->type == VALUE_STRING && b->type == VALUE_STRING)
        return joined_texts(r, a->string, b->string, out);
    if (op == '+' && value_repeats(a) && value_repeats(b) && a->type == VALUE_LIST &&
        b->type == VALUE_LIST && a->list->kind == b->list->kind)
        return joined_lists(r, a->list, b->list, out);
    if (op == '*' && value_repeats(a) && is_whole(b))
        return sequence_repeat(r, a, value_as_integer(b), out);
    if (op == '*' && is_whole(a) && value_repeats(b))
        return sequence_repeat(r, b, value_as_integer(a), out);
    if (op == '%' && a->type == VALUE_STRING)
        return format_fill(r, a->string, b, out);
    const struct value *undefined = a->type == VALUE_UNDEFINED   ? a
                                    : b->type == VALUE_UNDEFINED ? b
                                                                 : NULL;
    if (undefined)
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)undefined->string.size,
                        undefined->string.data);
    if (op == '+' && a->type == VALUE_STRING)
        return run_fail(r, HP_EINVAL, "can only concatenate str (not \"%s\") to str",
                        value_type_word(b));
    const char *sign = op == OP_FLOOR   ? "//"
                       : op == OP_POWER ? "**"
                       : op == '+'      ? "+"
                       : op == '-'      ? "-"
                       : op == '*'      ? "*"
                       : op == '/'      ? "/"
                                        : "%";
    return run_fail(r, HP_EINVAL, "unsupported operand type(s) for %s: '%s' and '%s'", sign,
                    value_type_word(a), value_type_word(b));
}
