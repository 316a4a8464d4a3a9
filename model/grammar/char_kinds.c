#include "model/grammar/char_kinds.h"

const struct char_lead char_leads[CHAR_LEADS] = {
    {0xC2, 0xDF, {0x80, 0xBF, 0}}, {0xE0, 0xE0, {0xA0, 0xBF, 1}}, {0xE1, 0xEC, {0x80, 0xBF, 1}},
    {0xED, 0xED, {0x80, 0x9F, 1}}, {0xEE, 0xEF, {0x80, 0xBF, 1}}, {0xF0, 0xF0, {0x90, 0xBF, 2}},
    {0xF1, 0xF2, {0x80, 0xBF, 2}}, {0xF3, 0xF3, {0x80, 0xBF, 2}}, {0xF4, 0xF4, {0x80, 0x8F, 2}},
};

int char_kind_of(uint8_t b)
{
    if (b >= 'a' && b <= 'z')
        return b > 'f';
    if (b >= 'A' && b <= 'Z')
        return 2 + (b > 'F');
    if (b >= '0' && b <= '9')
        return 4;
    switch (b) {
    case ' ': return 5;
    case '_': return 6;
    case '-': return 7;
    case '.': return 8;
    case '"':
    case '\\': return -1;
    default: return b > ' ' && b < 0x7F ? 9 : -1;
    }
}

static struct char_count wide_begin(struct char_count c, uint8_t byte)
{
    for (int i = 0; i < CHAR_LEADS; i++)
        if (byte >= char_leads[i].low && byte <= char_leads[i].high) {
            c.inside = true;
            c.rest = char_leads[i].rest;
            c.kinds |= 1 << CHAR_KIND_WIDE;
            return c;
        }
    c.none = true;
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
    c.kinds |= (uint16_t)(1 << kind);
    return c;
}
