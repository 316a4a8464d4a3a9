#include "model/grammar/char_kinds.h"

#include <stddef.h>

const struct char_lead char_leads[CHAR_LEADS] = {
    {0xC2, 0xC2, 41, {0x80, 0xBF, 0}}, {0xC3, 0xC3, 42, {0x80, 0xBF, 0}},
    {0xC4, 0xCF, 43, {0x80, 0xBF, 0}}, {0xD0, 0xD0, 44, {0x80, 0xBF, 0}},
    {0xD1, 0xD1, 45, {0x80, 0xBF, 0}}, {0xD2, 0xD6, 46, {0x80, 0xBF, 0}},
    {0xD7, 0xDF, 47, {0x80, 0xBF, 0}}, {0xE0, 0xE0, 48, {0xA0, 0xBF, 1}},
    {0xE1, 0xE1, 49, {0x80, 0xBF, 1}}, {0xE2, 0xE2, 50, {0x80, 0xBF, 1}},
    {0xE3, 0xE3, 51, {0x80, 0xBF, 1}}, {0xE4, 0xE4, 52, {0x80, 0xBF, 1}},
    {0xE5, 0xE8, 53, {0x80, 0xBF, 1}}, {0xE9, 0xE9, 54, {0x80, 0xBF, 1}},
    {0xEA, 0xEC, 55, {0x80, 0xBF, 1}}, {0xED, 0xED, 55, {0x80, 0x9F, 1}},
    {0xEE, 0xEF, 56, {0x80, 0xBF, 1}}, {0xF0, 0xF0, 57, {0x90, 0xBF, 2}},
    {0xF1, 0xF3, 58, {0x80, 0xBF, 2}}, {0xF4, 0xF4, 58, {0x80, 0x8F, 2}},
};

/* Of 0xC2 to 0xF4 the lead that a byte is; NULL: it is none. */
static const struct char_lead *lead_of(uint8_t byte)
{
    for (int i = 0; byte >= 0xC2 && i < CHAR_LEADS; i++)
        if (byte <= char_leads[i].high)
            return &char_leads[i];
    return NULL;
}

int char_kind_of(uint8_t b)
{
    static const struct {
        uint8_t low, high;
    } marks[] = {{'\t', '\n'}, {'\r', '\r'}, {' ', '/'}, {':', '@'}, {'[', '`'}, {'{', '~'}};
    if (b >= 'a' && b <= 'z')
        return b > 'f';
    if (b >= 'A' && b <= 'Z')
        return 2 + (b > 'F');
    if (b >= '0' && b <= '9')
        return CHAR_KIND_DIGIT;
    for (int i = 0, kind = CHAR_KIND_DIGIT + 1; i < (int)(sizeof marks / sizeof *marks); i++) {
        if (b >= marks[i].low && b <= marks[i].high)
            return kind + b - marks[i].low;
        kind += marks[i].high - marks[i].low + 1;
    }
    return -1;
}

int char_kind_begun(uint8_t byte)
{
    const struct char_lead *lead = lead_of(byte);
    return lead ? lead->kind : char_kind_of(byte);
}

static struct char_count wide_begin(struct char_count c, uint8_t byte)
{
    const struct char_lead *lead = lead_of(byte);
    if (!lead) {
        c.none = true;
        return c;
    }
    c.inside = true;
    c.rest = lead->rest;
    c.kinds |= UINT64_C(1) << lead->kind;
    return c;
}

struct char_count char_count_next(struct char_count c, uint8_t byte)
{
    int kind = char_kind_of(byte);
    if (c.inside) {
        c.none |= byte < c.rest.low || byte > c.rest.high;
        c.inside = c.rest.left > 0;
        c.rest = (struct char_rest){0x80, 0xBF, c.rest.left > 0 ? c.rest.left - 1 : 0};
        return c;
    }
    c.n = c.n < 255 ? (uint8_t)(c.n + 1) : c.n;
    if (kind < 0)
        return wide_begin(c, byte);
    c.kinds |= UINT64_C(1) << kind;
    return c;
}
