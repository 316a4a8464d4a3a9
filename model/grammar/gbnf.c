#include "model/grammar/gbnf.h"

#include <string.h>

#include "common/map.h"
#include "common/utf8.h"

struct gbnf_name {
    uint32_t rule;
    UT_hash_handle hh;
    char text[];
};

struct gbnf {
    struct expressions *x;
    const char *text;
    size_t size, at;
    int depth;
    struct gbnf_name *names; /* by text */
};

static const struct expression *gbnf_fail(struct gbnf *g, const char *what)
{
    int line = 1;
    for (size_t i = 0; i < g->at && i < g->size; i++)
        line += g->text[i] == '\n';
    return expression_fail(g->x, HP_EPARSE, "line %d: %s", line, what);
}

static char char_ahead(const struct gbnf *g)
{
    return g->at < g->size ? g->text[g->at] : '\0';
}

static bool char_take(struct gbnf *g, char c)
{
    bool there = g->at < g->size && g->text[g->at] == c;
    g->at += there;
    return there;
}

/* White space and comments; line ends only where `lines`. */
static void space_skip(struct gbnf *g, bool lines)
{
    while (g->at < g->size) {
        char c = g->text[g->at];
        if (c == '#') {
            while (g->at < g->size && g->text[g->at] != '\n')
                g->at++;
        } else if (c == ' ' || c == '\t' || (lines && (c == '\n' || c == '\r'))) {
            g->at++;
        } else {
            return;
        }
    }
}

static bool name_char(char c)
{
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '-' ||
           c == '_';
}

static size_t name_ahead(const struct gbnf *g)
{
    size_t n = 0;
    while (g->at + n < g->size && name_char(g->text[g->at + n]))
        n++;
    return n;
}

/* The number of a rule, which may come later. */
static uint32_t name_rule(struct gbnf *g, size_t n)
{
    struct gbnf_name *found = NULL;
    HASH_FIND(hh, g->names, g->text + g->at, n, found);
    if (!found) {
        found = arena_alloc(&g->x->arena, 1, sizeof *found + n + 1);
        if (!found) {
            expression_fail(g->x, HP_ENOMEM, "no memory for a grammar's rules");
            return 0;
        }
        memcpy(found->text, g->text + g->at, n);
        found->rule = expression_rule_add(g->x, found->text);
        HASH_ADD_KEYPTR(hh, g->names, found->text, n, found);
        if (!map_has_added(found))
            expression_fail(g->x, HP_ENOMEM, "no memory for a grammar's rules");
    }
    g->at += n;
    return found->rule;
}

/* ---- characters ---- */

static int hex_value(char c)
{
    return c >= '0' && c <= '9'   ? c - '0'
           : c >= 'a' && c <= 'f' ? c - 'a' + 10
           : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                  : -1;
}

static bool point_hex(struct gbnf *g, int n, uint32_t *out)
{
    *out = 0;
    for (; n > 0; n--) {
        int v = hex_value(char_ahead(g));
        if (v < 0)
            return false;
        *out = *out * 16 + (uint32_t)v;
        g->at++;
    }
    return *out <= CHAR_MAX_POINT;
}

static bool point_read(struct gbnf *g, uint32_t *out)
{
    int n = g->at < g->size ? utf8_decode(g->text + g->at, g->size - g->at, out) : 0;
    if (n <= 0)
        return false;
    g->at += (size_t)n;
    if (*out != '\\')
        return true;
    char c = char_ahead(g);
    g->at += g->at < g->size;
    switch (c) {
    case 'x': return point_hex(g, 2, out);
    case 'u': return point_hex(g, 4, out);
    case 'U': return point_hex(g, 8, out);
    case 't': *out = '\t'; return true;
    case 'r': *out = '\r'; return true;
    case 'n': *out = '\n'; return true;
    default: *out = (unsigned char)c; return c && strchr("\\\"[]^-'/", c) != NULL;
    }
}

static const struct expression *literal_read(struct gbnf *g)
{
    struct buffer text = {0};
    while (g->at < g->size && g->text[g->at] != '"' && g->text[g->at] != '\n') {
        uint32_t point;
        if (!point_read(g, &point) || (point >= 0xD800 && point < 0xE000)) {
            buffer_free(&text);
            return gbnf_fail(g, "a literal has an escape or a byte that is not known");
        }
        utf8_append(&text, point);
    }
    const struct expression *e =
        !char_take(g, '"') ? gbnf_fail(g, "a literal has no closing \"")
        : text.failed      ? expression_fail(g->x, HP_ENOMEM, "no memory for a literal")
                      : expression_text(g->x, text.size ? (const char *)text.data : "", text.size);
    buffer_free(&text);
    return e;
}

static const struct expression *class_read(struct gbnf *g)
{
    struct char_set set = {0};
    bool negated = char_take(g, '^'), ok = true;
    while (ok && g->at < g->size && g->text[g->at] != ']') {
        uint32_t low, high;
        ok = point_read(g, &low);
        high = low;
        if (ok && char_ahead(g) == '-' && g->at + 1 < g->size && g->text[g->at + 1] != ']') {
            g->at++;
            ok = point_read(g, &high) && high >= low;
        }
        if (ok)
            char_set_add(&set, low, high);
    }
    if (!ok || !char_take(g, ']')) {
        char_set_free(&set);
        return gbnf_fail(g, ok ? "a class has no closing ]"
                               : "a class has a range or an escape that is not known");
    }
    char_set_settle(&set);
    if (negated)
        char_set_negate(&set);
    return expression_set(g->x, &set, false);
}

/* ---- what rules say ---- */

static const struct expression *choice_read(struct gbnf *g, bool lines);

static const struct expression *group_read(struct gbnf *g)
{
    if (g->depth >= GBNF_MAX_DEPTH)
        return gbnf_fail(g, "groups are nested more than 100 deep");
    g->depth++;
    space_skip(g, true);
    const struct expression *e = choice_read(g, true);
    g->depth--;
    return !e || char_take(g, ')') ? e : gbnf_fail(g, "a group has no closing )");
}

static const struct expression *atom_read(struct gbnf *g)
{
    static const struct char_range any[] = {{0, CHAR_MAX_POINT}};
    if (char_take(g, '"'))
        return literal_read(g);
    if (char_take(g, '['))
        return class_read(g);
    if (char_take(g, '('))
        return group_read(g);
    if (char_take(g, '.')) {
        struct char_set set = {0};
        char_set_add_all(&set, any, 1);
        char_set_settle(&set);
        return expression_set(g->x, &set, false);
    }
    size_t n = name_ahead(g);
    if (!n)
        return gbnf_fail(g, "a rule's name, a literal, a class or a group is expected");
    uint32_t rule = name_rule(g, n);
    return expression_rule(g->x, rule);
}

static bool count_read(struct gbnf *g, int32_t *out)
{
    size_t from = g->at;
    int64_t v = 0;
    for (; g->at < g->size && g->text[g->at] >= '0' && g->text[g->at] <= '9'; g->at++)
        v = v <= EXPRESSION_MAX_REPEAT ? v * 10 + (g->text[g->at] - '0') : v;
    *out = (int32_t)(v > EXPRESSION_MAX_REPEAT ? EXPRESSION_MAX_REPEAT + 1 : v);
    return g->at > from;
}

static bool counts_read(struct gbnf *g, int32_t *least, int32_t *most)
{
    space_skip(g, false);
    if (!count_read(g, least))
        return false;
    *most = *least;
    space_skip(g, false);
    if (char_take(g, ',')) {
        space_skip(g, false);
        if (!count_read(g, most))
            *most = EXPRESSION_FOREVER;
    }
    space_skip(g, false);
    return char_take(g, '}') && (*most < 0 || *most >= *least);
}

static const struct expression *repeat_read(struct gbnf *g, bool lines)
{
    const struct expression *e = atom_read(g);
    while (e) {
        int32_t least = 0, most = EXPRESSION_FOREVER;
        space_skip(g, lines);
        if (char_take(g, '+'))
            least = 1;
        else if (char_take(g, '?'))
            most = 1;
        else if (char_take(g, '{')) {
            if (!counts_read(g, &least, &most))
                return gbnf_fail(g, "{m}, {m,} or {m,n} is expected");
        } else if (!char_take(g, '*')) {
            break;
        }
        e = expression_repeat(g->x, e, least, most);
    }
    return e;
}

static const struct expression *choice_read(struct gbnf *g, bool lines)
{
    struct expression_list choice = {0};
    for (bool more = true; more;) {
        struct expression_list l = {0};
        space_skip(g, lines);
        while (g->at < g->size && !strchr("|)\r\n", g->text[g->at])) {
            const struct expression *part = repeat_read(g, lines);
            if (!part)
                return NULL;
            expression_list_add(g->x, &l, part);
            space_skip(g, lines);
        }
        const struct expression *e = expression_sequence(g->x, l.items, l.count);
        if (!e)
            return NULL;
        expression_list_add(g->x, &choice, e);
        size_t at = g->at;
        space_skip(g, true); /* an alternative may begin on the next line */
        more = char_take(g, '|');
        if (!more)
            g->at = at;
    }
    return expression_choice(g->x, choice.items, choice.count);
}

static bool rule_read(struct gbnf *g)
{
    size_t n = name_ahead(g);
    if (!n)
        return gbnf_fail(g, "a rule's name is expected") != NULL;
    uint32_t rule = name_rule(g, n);
    space_skip(g, false);
    if (!(g->size - g->at >= 3 && memcmp(g->text + g->at, "::=", 3) == 0))
        return gbnf_fail(g, "::= is expected behind a rule's name") != NULL;
    g->at += 3;
    space_skip(g, true);
    if (g->x->status == 0 && g->x->rules[rule].body)
        return gbnf_fail(g, "this rule is there already") != NULL;
    const struct expression *e = choice_read(g, false);
    if (!e)
        return false;
    expression_rule_set(g->x, rule, e);
    if (g->at < g->size && !strchr("\r\n", g->text[g->at]))
        return gbnf_fail(g, "a rule ends with its line") != NULL;
    return true;
}

int gbnf_read(struct expressions *x, const char *text, size_t size, struct err *e)
{
    struct gbnf g = {.x = x, .text = "root", .size = 4};
    if (size > GBNF_MAX_BYTES)
        return err_set(e, HP_ELIMIT, "the grammar has %zu bytes; %d are allowed", size,
                       GBNF_MAX_BYTES);
    name_rule(&g, 4); /* the first */
    g.text = text;
    g.size = size;
    g.at = 0;
    space_skip(&g, true);
    while (x->status == 0 && g.at < g.size && rule_read(&g))
        space_skip(&g, true);
    HASH_CLEAR(hh, g.names);
    if (x->status < 0)
        return err_set(e, x->status, "%s", x->error.text);
    return 0;
}
