#include "coordinator/gateway/body_measure.h"

#include <string.h>
#include <utf8proc.h>

#include "common/json.h"

/* What a text holds, counted before a tree is built: the parser takes 60 bytes and more for a value
 * of two. */
struct body_measure {
    size_t values, depth, deepest, bad; /* bad: where it stops being UTF-8 */
    bool in_string, escaped, valid, nul;
};

static void measure_byte(struct body_measure *m, const char *text, size_t n)
{
    char c = text[0];
    if (m->in_string) {
        m->nul = m->nul || (m->escaped && n >= 5 && memcmp(text, "u0000", 5) == 0);
        m->in_string = m->escaped || c != '"';
        m->escaped = !m->escaped && c == '\\';
    } else if (c == '"') {
        m->in_string = true;
    } else if (c == ',' || c == ':' || c == '[' || c == '{') {
        m->values++;
        m->depth += c == '[' || c == '{';
        m->deepest = m->depth > m->deepest ? m->depth : m->deepest;
    } else if ((c == ']' || c == '}') && m->depth > 0) {
        m->depth--;
    }
}

static struct body_measure measure_text(const char *text, size_t n)
{
    struct body_measure m = {.valid = true};
    utf8proc_int32_t c;
    while (m.bad < n && m.values <= BODY_MAX_VALUES && m.deepest <= BODY_MAX_DEPTH) {
        utf8proc_ssize_t took = (unsigned char)text[m.bad] < 0x80
                                    ? 1
                                    : utf8proc_iterate((const utf8proc_uint8_t *)text + m.bad,
                                                       (utf8proc_ssize_t)(n - m.bad), &c);
        if (took <= 0) {
            m.valid = false;
            break;
        }
        measure_byte(&m, text + m.bad, n - m.bad);
        m.bad += (size_t)took;
    }
    return m;
}

int body_measure_load(const char *text, size_t n, json_t **root, struct err *e)
{
    struct json_at at;
    struct body_measure m = measure_text(text, n);
    if (!m.valid)
        return err_set(e, HP_EINVAL, "the body is not valid UTF-8 at byte %zu", m.bad);
    if (m.values > BODY_MAX_VALUES)
        return err_set(e, HP_EINVAL, "the body holds more than %d JSON values", BODY_MAX_VALUES);
    if (m.deepest > BODY_MAX_DEPTH)
        return err_set(e, HP_EINVAL, "the body is nested deeper than %d levels", BODY_MAX_DEPTH);
    if (m.nul)
        return err_set(e, HP_EINVAL, "the body holds \\u0000, which cannot stand in a text");
    /* An integer beyond 64 bits is a number all the same: its field, if it is one that counts, says
     * what it may be. */
    int rc = json_parse_wide_at("the body", text, n, root, &at, e);
    if (rc == HP_EPARSE && e)
        e->code = HP_EINVAL;
    return rc == HP_EPARSE ? HP_EINVAL : rc;
}
