/* Owns numbers of a range as expressions over their digits. */
#include <math.h>
#include <string.h>

#include "model/grammar/json_text.h"
#include "model/grammar/regular.h"

static const double LARGEST = 9999999999999998.0; /* integers up to here are exact */

static const struct expression *digits_between(struct json_text *t, char low, char high)
{
    return expression_chars(t->x, &(struct char_range){(unsigned char)low, (unsigned char)high}, 1,
                            false);
}

static const struct expression *digits_any(struct json_text *t, size_t n)
{
    return expression_repeat(t->x, digits_between(t, '0', '9'), (int32_t)n, (int32_t)n);
}

/* Digits of one length from `low` to `high`. */
static const struct expression *digits_range(struct json_text *t, const char *low, const char *high)
{
    struct expression_list l = {0};
    size_t n = strlen(low);
    char none[32], all[32];
    if (n == 0)
        return expression_word(t->x, "");
    if (low[0] == high[0])
        return EXPRESSION_SEQUENCE_OF(t->x, digits_between(t, low[0], low[0]),
                                      digits_range(t, low + 1, high + 1));
    memset(none, '0', n);
    memset(all, '9', n);
    none[n - 1] = all[n - 1] = '\0';
    bool low_any = strcmp(low + 1, none) == 0, high_any = strcmp(high + 1, all) == 0;
    char from = (char)(low[0] + !low_any), to = (char)(high[0] - !high_any);
    if (!low_any)
        expression_list_add(t->x, &l,
                            EXPRESSION_SEQUENCE_OF(t->x, digits_between(t, low[0], low[0]),
                                                   digits_range(t, low + 1, all)));
    if (from <= to)
        expression_list_add(
            t->x, &l,
            EXPRESSION_SEQUENCE_OF(t->x, digits_between(t, from, to), digits_any(t, n - 1)));
    if (!high_any)
        expression_list_add(t->x, &l,
                            EXPRESSION_SEQUENCE_OF(t->x, digits_between(t, high[0], high[0]),
                                                   digits_range(t, none, high + 1)));
    return expression_choice(t->x, l.items, l.count);
}

/* Integers from low >= 0 to high, with `tail` behind (NULL: nothing). */
static void naturals_add(struct json_text *t, struct expression_list *l, const char *sign,
                         double low, double high, const struct expression *tail)
{
    char from[32], to[32];
    for (double unit = 1; unit <= 1e15 && low <= high; unit *= 10) {
        double first = unit == 1 ? 0 : unit, last = unit * 10 - 1;
        double a = low > first ? low : first, b = high < last ? high : last;
        if (a > b)
            continue;
        snprintf(from, sizeof from, "%.0f", a);
        snprintf(to, sizeof to, "%.0f", b);
        const struct expression *e =
            EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, sign), digits_range(t, from, to),
                                   tail ? tail : expression_word(t->x, ""));
        expression_list_add(t->x, l, e);
    }
}

static void integers_add(struct json_text *t, struct expression_list *l, const struct json_range *r)
{
    double low = ceil(r->low), high = floor(r->high);
    low += r->above && low == r->low;
    high -= r->below && high == r->high;
    low = low < -LARGEST ? -LARGEST : low;
    high = high > LARGEST ? LARGEST : high;
    naturals_add(t, l, "", low > 0 ? low : 0, high, NULL);
    naturals_add(t, l, "-", high < -1 ? -high : 1, -low, NULL);
}

const struct expression *json_text_integers(struct json_text *t, const struct json_range *r)
{
    struct expression_list l = {0};
    integers_add(t, &l, r);
    return l.count ? expression_choice(t->x, l.items, l.count) : NULL;
}

/* Numbers with a point whose whole part is such that all of them are inside. */
static void fractions_add(struct json_text *t, struct expression_list *l,
                          const struct json_range *r)
{
    static const char any[] = "\\.[0-9]{1,15}[1-9]";
    const struct expression *tail =
        regular_expression(t->x, any, sizeof any - 1, REGULAR_WHOLE); /* never a whole number */
    double low = r->low < -1e15 ? -1e15 : r->low, high = r->high > 1e15 ? 1e15 : r->high;
    /* i.f of i >= 0 lies in (i, i + 1) */
    naturals_add(t, l, "", low > 0 ? ceil(low) : 0, floor(high) - 1, tail);
    naturals_add(t, l, "-", high < 0 ? ceil(-high) : 0, floor(-low) - 1, tail);
}

/* Where no whole number lies inside: as many digits behind the point as it takes. */
static void decimals_add(struct json_text *t, struct expression_list *l, const struct json_range *r,
                         int places)
{
    double scale = pow(10, places), low = r->low * scale, high = r->high * scale;
    if (!(fabs(low) < 1e14 && fabs(high) < 1e14))
        return;
    for (int sign = 0; sign < 2; sign++) {
        double a = sign ? -high : low, b = sign ? -low : high;
        double from = floor(a) + 1, to = ceil(b) - 1; /* strictly inside */
        char digits_from[40], digits_to[40];
        double whole = floor((from > 0 ? from : 0) / scale), rest = from - whole * scale,
               last = to - whole * scale;
        rest = rest > 0 ? rest : sign;
        last = last < scale ? last : scale - 1;
        if (!(last >= rest) || whole < 0)
            continue;
        snprintf(digits_from, sizeof digits_from, "%0*.0f", places, rest);
        snprintf(digits_to, sizeof digits_to, "%0*.0f", places, last);
        char head[48];
        snprintf(head, sizeof head, "%s%.0f.", sign ? "-" : "", whole);
        expression_list_add(t->x, l,
                            EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, head),
                                                   digits_range(t, digits_from, digits_to)));
    }
}

const struct expression *json_text_numbers(struct json_text *t, const struct json_range *r)
{
    struct expression_list l = {0};
    integers_add(t, &l, r);
    fractions_add(t, &l, r);
    for (int places = 1; places <= 9 && l.count == 0; places++)
        decimals_add(t, &l, r, places);
    return l.count ? expression_choice(t->x, l.items, l.count) : NULL;
}
