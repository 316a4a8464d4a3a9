/* str.format: fields of values, positions and names, with attributes, items, conversions and format
 * specifications. Source: the Python library reference, "Format String Syntax". */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template/access.h"
#include "model/template/collections.h"
#include "model/template/methods.h"
#include "model/template/print.h"

enum { WIDTH_MAX = 1 << 20, PRECISION_MAX = 300, SPEC_MAX_NESTING = 2 };

struct spec {
    struct text fill;
    char align, sign, type, group; /* 0 where the specification does not say */
    bool alternate, zero;
    int64_t width, precision; /* precision -1: none */
};

struct format {
    struct run *r;
    const struct arguments *args;
    size_t next; /* the next argument of "{}" */
    struct buffer *out;
};

static int bad_spec(struct run *r, struct text spec)
{
    return run_fail(r, HP_EINVAL, "Invalid format specifier '%.*s'",
                    (int)(spec.size < 40 ? spec.size : 40), spec.data);
}

static bool spec_take(struct text *t, const char *of, char *out)
{
    const char *hit = t->size && t->data[0] ? strchr(of, t->data[0]) : NULL;
    if (!hit)
        return false;
    *out = t->data[0];
    *t = (struct text){t->data + 1, t->size - 1};
    return true;
}

static bool take_number(struct text *t, int64_t most, int64_t *out)
{
    char digit;
    bool any = false;
    for (*out = 0; *out <= most && spec_take(t, "0123456789", &digit); any = true)
        *out = *out * 10 + (digit - '0');
    return any;
}

static int read_spec(struct run *r, struct text t, struct spec *s)
{
    struct text whole = t;
    uint32_t c;
    char flag = 0;
    *s = (struct spec){.fill = {" ", 1}, .precision = -1};
    int length = t.size ? utf8_decode(t.data, t.size, &c) : 0;
    if (length > 0 && (size_t)length < t.size && strchr("<>=^", t.data[length])) {
        s->fill = (struct text){t.data, (size_t)length};
        t = (struct text){t.data + length, t.size - (size_t)length};
    }
    spec_take(&t, "<>=^", &s->align);
    spec_take(&t, "+- ", &s->sign);
    s->alternate = spec_take(&t, "#", &flag);
    s->zero = spec_take(&t, "0", &flag);
    if (take_number(&t, WIDTH_MAX, &s->width) && s->width > WIDTH_MAX)
        return run_fail(r, HP_ELIMIT, "a field of more than %d characters", WIDTH_MAX);
    spec_take(&t, ",_", &s->group);
    if (spec_take(&t, ".", &flag) &&
        (!take_number(&t, PRECISION_MAX, &s->precision) || s->precision > PRECISION_MAX))
        return bad_spec(r, whole);
    spec_take(&t, "bcdeEfFgGnosxX%", &s->type);
    return t.size ? bad_spec(r, whole) : 0;
}

static void text_pad(const struct spec *s, char fallback, const char *sign, struct text body,
                     struct buffer *out)
{
    char align = s->align ? s->align : s->zero && fallback == '>' ? '=' : fallback;
    struct text fill = s->zero && !s->align ? (struct text){"0", 1} : s->fill;
    int64_t length = (int64_t)(text_length(body) + strlen(sign)),
            more = s->width > length ? s->width - length : 0;
    int64_t before = align == '>' || align == '=' ? more : align == '^' ? more / 2 : 0;
    if (align == '=')
        buffer_append(out, sign, strlen(sign));
    for (int64_t i = 0; i < before; i++)
        buffer_append(out, fill.data, fill.size);
    if (align != '=')
        buffer_append(out, sign, strlen(sign));
    buffer_append(out, body.data, body.size);
    for (int64_t i = before; i < more; i++)
        buffer_append(out, fill.data, fill.size);
}

/* Separators between groups of digits, from the point or the end to the left. */
static void put_groups(const char *digits, char group, int each, struct buffer *out)
{
    size_t whole = strspn(digits, each == 3 ? "0123456789" : "0123456789abcdefABCDEF");
    for (size_t i = 0; i < whole; i++) {
        if (group && i && (whole - i) % (size_t)each == 0)
            buffer_append(out, &group, 1);
        buffer_append(out, digits + i, 1);
    }
    buffer_append(out, digits + whole, strlen(digits + whole));
}

static void put_number(const struct spec *s, bool negative, const char *prefix, const char *digits,
                       int each, struct buffer *out)
{
    char sign[8];
    struct buffer body = {0};
    snprintf(sign, sizeof sign, "%s%s",
             negative         ? "-"
             : s->sign == '+' ? "+"
             : s->sign == ' ' ? " "
                              : "",
             prefix);
    put_groups(digits, s->group, each, &body);
    text_pad(s, '>', sign, (struct text){buffer_cstr(&body), body.size}, out);
    buffer_free(&body);
}

static int format_integer(struct run *r, const struct spec *s, int64_t i, struct buffer *out)
{
    char digits[72];
    uint64_t u = i < 0 ? 0 - (uint64_t)i : (uint64_t)i;
    if (s->precision >= 0)
        return run_fail(r, HP_EINVAL, "Precision not allowed in integer format specifier");
    if (s->group && s->zero)
        return run_fail(r, HP_EUNSUPPORTED, "leading zeros beside separators of thousands");
    int bit = 64;
    switch (s->type) {
    case 'c': {
        char one[UTF8_MAX];
        if (i < 0 || i > 0x10FFFF || (i >= 0xD800 && i < 0xE000))
            return run_fail(r, HP_EINVAL, "%%c arg not in range(0x110000)");
        text_pad(s, '<', "", (struct text){one, utf8_encode((uint32_t)i, one)}, out);
        return 0;
    }
    case 'b':
        digits[bit] = 0;
        do
            digits[--bit] = (char)('0' + (u & 1));
        while (u >>= 1);
        put_number(s, i < 0, s->alternate ? "0b" : "", digits + bit, 4, out);
        return 0;
    case 'o': snprintf(digits, sizeof digits, "%llo", (unsigned long long)u); break;
    case 'x': snprintf(digits, sizeof digits, "%llx", (unsigned long long)u); break;
    case 'X': snprintf(digits, sizeof digits, "%llX", (unsigned long long)u); break;
    default: snprintf(digits, sizeof digits, "%llu", (unsigned long long)u); break;
    }
    const char *prefix = !s->alternate    ? ""
                         : s->type == 'o' ? "0o"
                         : s->type == 'x' ? "0x"
                         : s->type == 'X' ? "0X"
                                          : "";
    put_number(s, i < 0, prefix, digits, s->type == 'o' || s->type == 'x' || s->type == 'X' ? 4 : 3,
               out);
    return 0;
}

static int format_real(struct run *r, const struct spec *s, double d, struct buffer *out)
{
    struct buffer digits = {0};
    bool negative = signbit(d) != 0;
    double size = fabs(d) * (s->type == '%' ? 100 : 1);
    int precision = s->precision < 0 ? 6 : (int)s->precision;
    if (s->alternate || (s->group && s->zero))
        return run_fail(
            r, HP_EUNSUPPORTED,
            "\"#\", or zeros beside separators, in the format of a number with a fraction");
    if (!isfinite(d)) {
        buffer_printf(&digits, "%s%s", isnan(d) ? "nan" : "inf", s->type == '%' ? "%" : "");
        negative &= !isnan(d);
    } else if (!s->type && s->precision < 0) {
        value_print_real(size, &digits);
    } else if (!s->type) {
        return run_fail(r, HP_EUNSUPPORTED,
                        "a precision without a type for a number with a fraction");
    } else {
        char how[8];
        snprintf(how, sizeof how, "%%.*%c", s->type == '%' ? 'f' : s->type == 'n' ? 'g' : s->type);
        buffer_printf(&digits, how, precision, size);
        buffer_append(&digits, "%", s->type == '%');
    }
    put_number(s, negative, "", buffer_cstr(&digits), 3, out);
    buffer_free(&digits);
    return 0;
}

static int format_text(struct run *r, const struct spec *s, struct text t, struct buffer *out)
{
    if (s->sign || s->alternate || s->group || s->align == '=' || (s->type && s->type != 's'))
        return run_fail(r, HP_EINVAL, "a format of numbers for a string");
    int rc = run_tick_text(r, t.size);
    if (rc == 0 && s->precision >= 0)
        t = text_cut(t, 0, (size_t)s->precision);
    if (rc == 0)
        text_pad(s, '<', "", t, out);
    return rc;
}

static int format_value(struct format *f, const struct value *v, struct text spec_text)
{
    struct run *r = f->r;
    struct spec s;
    if (spec_text.size == 0)
        return value_print(r, v, false, 0, f->out);
    int rc = read_spec(r, spec_text, &s);
    if (rc < 0)
        return rc;
    if (v->type == VALUE_STRING)
        return format_text(r, &s, v->string, f->out);
    if (!value_is_number(v))
        return run_fail(r, HP_EINVAL, "unsupported format string passed to %s.__format__",
                        value_type_word(v));
    bool fraction = s.type && strchr("eEfFgG%", s.type);
    if (v->type == VALUE_FLOAT || fraction)
        return s.type && !fraction && s.type != 'n'
                   ? run_fail(r, HP_EINVAL, "Unknown format code '%c' for object of type 'float'",
                              s.type)
                   : format_real(r, &s, value_as_real(v), f->out);
    return s.type == 's'
               ? run_fail(r, HP_EINVAL, "Unknown format code 's' for object of type 'int'")
               : format_integer(r, &s, value_as_integer(v), f->out);
}

/* ---- fields ---- */

static bool all_digits(struct text t)
{
    for (size_t i = 0; i < t.size; i++)
        if (t.data[i] < '0' || t.data[i] > '9')
            return false;
    return t.size > 0 && t.size < 10;
}

static int field_argument(struct format *f, struct text name, struct value *out)
{
    if (name.size == 0 || all_digits(name)) {
        size_t i = name.size ? (size_t)atoi(name.data) : f->next++;
        if (i >= f->args->n)
            return run_fail(f->r, HP_EINVAL,
                            "Replacement index %zu out of range for positional args tuple", i);
        *out = f->args->values[i];
        return 0;
    }
    for (size_t i = 0; i < f->args->n_named; i++) {
        struct text key = f->args->named[i].key.string;
        if (key.size == name.size && memcmp(key.data, name.data, key.size) == 0) {
            *out = f->args->named[i].value;
            return 0;
        }
    }
    return run_fail(f->r, HP_EINVAL, "'%.*s' is not given to format",
                    (int)(name.size < 40 ? name.size : 40), name.data);
}

static size_t text_until(struct text t, size_t at, const char *ends)
{
    while (at < t.size && !(t.data[at] && strchr(ends, t.data[at])))
        at++;
    return at;
}

/* "name.attribute[item]" */
static int field_value(struct format *f, struct text name, struct value *out)
{
    size_t at = text_until(name, 0, ".[");
    int rc = field_argument(f, (struct text){name.data, at}, out);
    while (rc == 0 && at < name.size) {
        bool item = name.data[at] == '[';
        size_t end = text_until(name, at + 1, item ? "]" : ".[");
        struct text part = {name.data + at + 1, end - at - 1};
        struct value of = *out,
                     key = all_digits(part) ? value_integer(atoi(part.data)) : value_text(part);
        rc = item ? run_item(f->r, &of, &key, out) : run_attribute(f->r, &of, part, out);
        if (rc == 0 && out->type == VALUE_UNDEFINED)
            rc = run_fail(f->r, HP_EINVAL, "'%.*s' is undefined",
                          (int)(part.size < 40 ? part.size : 40), part.data);
        at = end + (item && end < name.size);
    }
    return rc;
}

static int format_all(struct format *f, struct text t, int nesting);

/* The field that begins at `at`, just behind its bracket; *end is just behind the closing one. */
static int format_field(struct format *f, struct text t, size_t at, int nesting, size_t *end)
{
    size_t name_end = text_until(t, at, "!:}["), close;
    while (name_end < t.size && t.data[name_end] == '[') {
        name_end = text_until(t, name_end, "]");
        name_end = text_until(t, name_end, "!:}[");
    }
    char conversion = name_end + 1 < t.size && t.data[name_end] == '!' ? t.data[name_end + 1] : 0;
    size_t behind = conversion ? name_end + 2 : name_end, depth = 1;
    for (close = behind; close < t.size; close++) {
        depth += t.data[close] == '{';
        depth -= t.data[close] == '}';
        if (depth == 0)
            break;
    }
    if (close >= t.size || (behind < close && t.data[behind] != ':') ||
        (conversion && !strchr("rs", conversion)))
        return run_fail(f->r, HP_EINVAL, "expected '}' before end of string");
    struct value v, text = value_none();
    struct buffer spec = {0}, *outside = f->out;
    int rc = field_value(f, (struct text){t.data + at, name_end - at}, &v);
    f->out = &spec;
    if (rc == 0 && behind < close)
        rc = format_all(f, (struct text){t.data + behind + 1, close - behind - 1}, nesting + 1);
    f->out = outside;
    struct buffer converted = {0};
    if (rc == 0 && conversion) {
        rc = value_print(f->r, &v, conversion == 'r', 0, &converted);
        rc = rc < 0 ? rc : value_copy_text(f->r, &converted, &text);
        v = text;
    }
    if (rc == 0)
        rc = format_value(f, &v, (struct text){buffer_cstr(&spec), spec.size});
    buffer_free(&converted);
    buffer_free(&spec);
    *end = close + 1;
    return rc;
}

static int format_all(struct format *f, struct text t, int nesting)
{
    if (nesting > SPEC_MAX_NESTING)
        return run_fail(f->r, HP_EINVAL, "Max string recursion exceeded");
    int rc = run_tick_text(f->r, t.size);
    for (size_t at = 0; rc == 0 && at < t.size;) {
        char c = t.data[at];
        bool twice = at + 1 < t.size && t.data[at + 1] == c;
        if (f->out->size > f->r->max_output)
            return run_fail(f->r, HP_ELIMIT, "a text is longer than %zu bytes", f->r->max_output);
        if ((c == '{' || c == '}') && twice) {
            buffer_append(f->out, &c, 1);
            at += 2;
        } else if (c == '}') {
            return run_fail(f->r, HP_EINVAL, "Single '}' encountered in format string");
        } else if (c == '{') {
            rc = at + 1 == t.size
                     ? run_fail(f->r, HP_EINVAL, "Single '{' encountered in format string")
                     : format_field(f, t, at + 1, nesting, &at);
        } else {
            size_t end = text_until(t, at, "{}");
            buffer_append(f->out, t.data + at, end - at);
            at = end;
        }
    }
    return rc;
}

int method_format(struct run *r, const struct value *self, const struct arguments *args, int how,
                  struct value *out)
{
    (void)how;
    struct buffer b = {0};
    struct format f = {.r = r, .args = args, .out = &b};
    int rc = format_all(&f, self->string, 0);
    rc = rc < 0 ? rc : value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}
