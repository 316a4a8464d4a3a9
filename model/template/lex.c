/* Template source to tokens: text, and what stands between {{ }}, {% %}. White space around tags
 * goes away here: trim_blocks and lstrip_blocks are always on, and - and + in a tag say more. */
#include "model/template/lex.h"

#include <string.h>

#include "common/utf8.h"
#include "model/template/tree.h"

enum { BRACKETS_MAX = 200 };

struct lexer {
    struct arena *arena;
    const char *at, *end;
    int line;
    bool line_start; /* the tag before ended with a line end */
    struct buffer *tokens;
    struct err *e;
};

static int lex_fail(struct lexer *l, int code, const char *what)
{
    return err_set(l->e, code, "line %d: %s", l->line, what);
}

static void lex_push(struct lexer *l, enum lexeme_kind kind, int op, const char *data, size_t size)
{
    struct lexeme t = {kind, op, l->line, {data, size}};
    buffer_append(l->tokens, &t, sizeof t);
}

/* Moves on to `to`, counting lines. */
static void lex_advance(struct lexer *l, const char *to)
{
    for (; l->at < to; l->at++)
        l->line += *l->at == '\n';
}

static bool lex_starts(const struct lexer *l, const char *s)
{
    size_t n = strlen(s);
    return (size_t)(l->end - l->at) >= n && memcmp(l->at, s, n) == 0;
}

/* White space up to the next other character, as Python's \s. */
static const char *skip_space(const char *at, const char *end)
{
    uint32_t c;
    int length;
    while (at < end && (length = utf8_decode(at, (size_t)(end - at), &c)) > 0 && text_space(c))
        at += length;
    return at;
}

/* What is left of the text before a tag that is opened with `sign`. */
static size_t text_before(const struct lexer *l, const char *text, size_t size, char sign,
                          bool block)
{
    if (sign == '-')
        return text_strip((struct text){text, size}, (struct text){NULL, 0}, STRIP_RIGHT).size;
    if (sign == '+' || !block)
        return size;
    size_t start = size;
    while (start > 0 && text[start - 1] != '\n')
        start--;
    if (start == 0 && !l->line_start)
        return size;
    return skip_space(text + start, text + size) == text + size ? start : size;
}

/* After a closing tag: `-` takes all white space, a block without + the line end behind it. */
static void close_tag(struct lexer *l, const char *after, char sign, bool block)
{
    const char *to = after;
    if (sign == '-')
        to = skip_space(to, l->end);
    else if (block && sign != '+' && to < l->end && *to == '\n')
        to++;
    lex_advance(l, to);
    l->line_start = to[-1] == '\n';
}

static int lex_comment(struct lexer *l)
{
    const char *close = memmem(l->at + 2, (size_t)(l->end - l->at - 2), "#}", 2);
    if (l->at + 2 == l->end) {
        l->at = l->end;
        return 0;
    }
    if (!close)
        return lex_fail(l, HP_EPARSE, "a comment is not closed by #}");
    char sign = close > l->at + 2 ? close[-1] : 0;
    close_tag(l, close + 2, sign == '-' || sign == '+' ? sign : 0, true);
    return 0;
}

/* The end of "{%- name -%}" from `tag` on, or NULL; *sign is that of its end. */
static const char *tag_named(const char *tag, const char *end, const char *name, char *sign)
{
    size_t n = strlen(name);
    const char *at = tag + 2;
    if (at < end && (*at == '-' || *at == '+'))
        at++;
    at = skip_space(at, end);
    if ((size_t)(end - at) < n || memcmp(at, name, n) != 0)
        return NULL;
    at = skip_space(at + n, end);
    *sign = at < end && (*at == '-' || *at == '+') ? *at++ : 0;
    return end - at >= 2 && at[0] == '%' && at[1] == '}' ? at + 2 : NULL;
}

/* {% raw %} ... {% endraw %}, from its opening tag on, which ends at `body`. */
static int lex_raw(struct lexer *l, const char *body, char open_sign)
{
    close_tag(l, body, open_sign == '-' ? '-' : '+', true);
    const char *from = l->at, *tag = from;
    while ((tag = memmem(tag, (size_t)(l->end - tag), "{%", 2))) {
        char sign;
        const char *after = tag_named(tag, l->end, "endraw", &sign);
        if (after) {
            char before = tag[2];
            l->line_start = false;
            lex_push(l, TOKEN_TEXT, 0, from,
                     text_before(l, from, (size_t)(tag - from), before, true));
            close_tag(l, after, sign, true);
            return 0;
        }
        tag += 2;
    }
    return lex_fail(l, HP_EPARSE, "{% raw %} is not closed by {% endraw %}");
}

static int hex_value(const char *s, int n, uint32_t *out)
{
    *out = 0;
    for (int i = 0; i < n; i++) {
        char c = s[i];
        int d = c >= '0' && c <= '9'   ? c - '0'
                : c >= 'a' && c <= 'f' ? c - 'a' + 10
                : c >= 'A' && c <= 'F' ? c - 'A' + 10
                                       : -1;
        if (d < 0)
            return -1;
        *out = *out << 4 | (uint32_t)d;
    }
    return 0;
}

/* One escape at `s` (behind the backslash) into `out`; gives how many bytes it takes, 0 for one
 * that is not known and stays as it is. */
static size_t unescape_one(const char *s, const char *end, struct buffer *out)
{
    static const char from[] = "ntr\\'\"abfv", to[] = "\n\t\r\\'\"\a\b\f\v";
    const char *simple = *s ? strchr(from, *s) : NULL;
    if (simple) {
        buffer_append(out, to + (simple - from), 1);
        return 1;
    }
    if (*s == '\n')
        return 1;
    int digits = *s == 'x' ? 2 : *s == 'u' ? 4 : *s == 'U' ? 8 : 0;
    uint32_t c = 0;
    if (digits && end - s > digits && hex_value(s + 1, digits, &c) == 0 && c <= 0x10FFFF &&
        (c < 0xD800 || c > 0xDFFF)) {
        utf8_append(out, c);
        return (size_t)digits + 1;
    }
    size_t n = 0;
    while (n < 3 && s + n < end && s[n] >= '0' && s[n] <= '7')
        c = c * 8 + (uint32_t)(s[n++] - '0');
    if (n > 0)
        utf8_append(out, c);
    return n;
}

static int lex_string(struct lexer *l)
{
    char quote = *l->at;
    const char *from = l->at + 1, *to = from;
    while (to < l->end && *to != quote)
        to += *to == '\\' ? 2 : 1;
    if (to >= l->end)
        return lex_fail(l, HP_EPARSE, "a string is not closed");
    struct buffer out = {0};
    for (const char *s = from; s < to;) {
        size_t used = *s == '\\' && s + 1 < to ? unescape_one(s + 1, to, &out) : 0;
        bool known = used > 0;
        if (!known)
            buffer_append(&out, s, 1);
        s += 1 + used;
    }
    char *copy =
        out.failed ? NULL : arena_strndup(l->arena, out.data ? (char *)out.data : "", out.size);
    lex_push(l, TOKEN_STRING, 0, copy, out.size);
    buffer_free(&out);
    lex_advance(l, to + 1);
    return copy ? 0 : lex_fail(l, HP_ENOMEM, "out of memory");
}

static bool is_digit(char c)
{
    return c >= '0' && c <= '9';
}
static bool is_name_char(char c)
{
    return is_digit(c) || c == '_' || (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') ||
           (uint8_t)c >= 0x80;
}

static const char *skip_digits(const char *at, const char *end)
{
    while (at < end && (is_digit(*at) || (*at == '_' && at + 1 < end && is_digit(at[1]))))
        at++;
    return at;
}

static void lex_number(struct lexer *l)
{
    const char *to = skip_digits(l->at, l->end);
    bool real = false;
    if (to + 1 < l->end && *to == '.' && is_digit(to[1])) {
        to = skip_digits(to + 1, l->end);
        real = true;
    }
    const char *exponent = to < l->end && (*to == 'e' || *to == 'E') ? to + 1 : NULL;
    if (exponent && exponent < l->end && (*exponent == '+' || *exponent == '-'))
        exponent++;
    if (exponent && exponent < l->end && is_digit(*exponent)) {
        to = skip_digits(exponent, l->end);
        real = true;
    }
    lex_push(l, real ? TOKEN_FLOAT : TOKEN_INTEGER, 0, l->at, (size_t)(to - l->at));
    l->at = to;
}

static int lex_operator(struct lexer *l, char *stack, int *depth)
{
    static const struct {
        char text[3];
        char op;
    } pairs[] = {{"==", OP_EQ}, {"!=", OP_NE},    {">=", OP_GE},
                 {"<=", OP_LE}, {"//", OP_FLOOR}, {"**", OP_POWER}};
    for (size_t i = 0; i < sizeof pairs / sizeof *pairs; i++) {
        if (lex_starts(l, pairs[i].text)) {
            lex_push(l, TOKEN_OPERATOR, pairs[i].op, l->at, 2);
            l->at += 2;
            return 0;
        }
    }
    char c = *l->at;
    if (!c || !strchr("+-*/%~[](){}<>=.:|,", c))
        return lex_fail(l, HP_EPARSE, "a character that means nothing in a tag");
    const char *open = strchr("([{", c), *close = strchr(")]}", c);
    if (open) {
        if (*depth == BRACKETS_MAX)
            return lex_fail(l, HP_ELIMIT, "brackets are nested too deep");
        stack[(*depth)++] = c == '(' ? ')' : (char)(c + 2);
    } else if (close && (*depth == 0 || stack[--*depth] != c)) {
        return lex_fail(l, HP_EPARSE, "a bracket is closed that was not opened");
    }
    lex_push(l, TOKEN_OPERATOR, c, l->at, 1);
    l->at++;
    return 0;
}

/* Inside {{ }} or {% %}, up to and with its end. */
static int lex_tag(struct lexer *l, bool block)
{
    const char *closing = block ? "%}" : "}}", *stripping = block ? "-%}" : "-}}";
    char stack[BRACKETS_MAX];
    int depth = 0;
    lex_push(l, block ? TOKEN_BLOCK_BEGIN : TOKEN_EXPRESSION_BEGIN, 0, l->at, 2);
    l->at += 2;
    if (l->at < l->end && (*l->at == '-' || *l->at == '+'))
        l->at++;
    for (;;) {
        lex_advance(l, skip_space(l->at, l->end));
        if (l->at == l->end)
            return lex_fail(l, HP_EPARSE,
                            block ? "a tag is not closed by %}"
                                  : "an expression is not closed by }}");
        bool keep = block && lex_starts(l, "+%}");
        if (depth == 0 && (keep || lex_starts(l, closing) || lex_starts(l, stripping))) {
            char sign = keep ? '+' : lex_starts(l, stripping) ? '-' : 0;
            lex_push(l, block ? TOKEN_BLOCK_END : TOKEN_EXPRESSION_END, 0, l->at, 2);
            close_tag(l, l->at + (sign ? 3 : 2), sign, block);
            return 0;
        }
        int rc = 0;
        if (*l->at == '\'' || *l->at == '"') {
            rc = lex_string(l);
        } else if (is_digit(*l->at)) {
            lex_number(l);
        } else if (is_name_char(*l->at)) {
            const char *from = l->at;
            while (l->at < l->end && is_name_char(*l->at))
                l->at++;
            lex_push(l, TOKEN_NAME, 0, from, (size_t)(l->at - from));
        } else {
            rc = lex_operator(l, stack, &depth);
        }
        if (rc < 0)
            return rc;
    }
}

/* Line ends become \n, and one at the very end goes away. */
static char *normal_copy(struct arena *arena, const char *source, size_t size, size_t *out_size)
{
    char *copy = arena_alloc(arena, size + 1, 1);
    size_t n = 0;
    for (size_t i = 0; copy && i < size; i++) {
        if (source[i] == '\r' && i + 1 < size && source[i + 1] == '\n')
            continue;
        copy[n++] = source[i] == '\r' ? '\n' : source[i];
    }
    if (copy && n > 0 && copy[n - 1] == '\n')
        n--;
    *out_size = n;
    return copy;
}

static int lex_step(struct lexer *l)
{
    const char *from = l->at, *tag = from;
    while ((tag = memchr(tag, '{', (size_t)(l->end - tag))) &&
           (tag + 1 == l->end || !strchr("{%#", tag[1]) || !tag[1]))
        tag++;
    if (!tag) {
        lex_push(l, TOKEN_TEXT, 0, from, (size_t)(l->end - from));
        lex_advance(l, l->end);
        return 0;
    }
    bool block = tag[1] != '{';
    size_t size = text_before(l, from, (size_t)(tag - from), tag + 2 < l->end ? tag[2] : 0, block);
    if (size > 0)
        lex_push(l, TOKEN_TEXT, 0, from, size);
    lex_advance(l, tag);
    if (tag[1] == '#')
        return lex_comment(l);
    char sign;
    const char *raw = block ? tag_named(tag, l->end, "raw", &sign) : NULL;
    return raw ? lex_raw(l, raw, sign) : lex_tag(l, block);
}

int template_lex(struct arena *arena, const char *source, size_t size, struct buffer *tokens,
                 struct err *e)
{
    struct lexer l = {.arena = arena, .line = 1, .line_start = true, .tokens = tokens, .e = e};
    size_t n = utf8_valid_prefix(source, size);
    if (n < size)
        return err_set(e, HP_EPARSE, "line 1: byte %zu of the template is not UTF-8", n);
    const char *copy = normal_copy(arena, source, size, &n);
    if (!copy)
        return err_set(e, HP_ENOMEM, "out of memory for a template of %zu bytes", size);
    l.at = copy;
    l.end = copy + n;
    int rc = 0;
    while (l.at < l.end && rc == 0)
        rc = lex_step(&l);
    lex_push(&l, TOKEN_END, 0, l.end, 0);
    if (rc == 0 && tokens->failed)
        rc = err_set(e, HP_ENOMEM, "out of memory for a template of %zu bytes", size);
    return rc;
}
