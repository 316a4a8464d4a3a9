#include "coordinator/gateway/body_measure.h"

#include <string.h>
#include <utf8proc.h>

#include "common/json.h"

/* What a text holds, counted before a tree is built: the parser takes 60 bytes and more for a value
 * of two, and much longer for a member of an object than for a number. */
struct body_measure {
    size_t cost, depth, deepest, bad; /* bad: where it stops being UTF-8 */
    bool in_string, escaped, valid, nul, plain;
    const char *key, *text; /* of the outermost object: the last text, and the member it is in */
    size_t key_bytes, text_bytes;
};

static void measure_string_end(struct body_measure *m, const char *end)
{
    if (m->depth == 1)
        m->text_bytes = (size_t)(end - m->text);
}

static void measure_mark(struct body_measure *m, const char *at)
{
    char c = *at;
    bool opens = c == '[' || c == '{';
    if (c == '"') {
        m->in_string = true;
        m->cost += m->plain ? 0 : BODY_TEXT_COST - 1;
        m->text = m->depth == 1 ? at + 1 : m->text;
    } else if (c == ',' || opens) {
        m->cost += opens && !m->plain ? BODY_OBJECT_COST : 1;
        m->depth += opens;
        m->deepest = m->depth > m->deepest ? m->depth : m->deepest;
    } else if (c == ':') {
        m->cost += m->plain ? 1 : BODY_MEMBER_COST;
        if (m->depth == 1) {
            m->key = m->text;
            m->key_bytes = m->text_bytes;
        }
    } else if ((c == ']' || c == '}') && m->depth > 0) {
        m->depth--;
    }
}

static void measure_byte(struct body_measure *m, const char *text, size_t n)
{
    char c = text[0];
    if (!m->in_string) {
        measure_mark(m, text);
        return;
    }
    m->nul = m->nul || (m->escaped && n >= 5 && memcmp(text, "u0000", 5) == 0);
    m->in_string = m->escaped || c != '"';
    m->escaped = !m->escaped && c == '\\';
    if (!m->in_string)
        measure_string_end(m, text);
}

static void measure_text(struct body_measure *m, const char *text, size_t n)
{
    utf8proc_int32_t c;
    m->valid = true;
    while (m->bad < n && m->cost <= BODY_MAX_VALUES && m->deepest <= BODY_MAX_DEPTH) {
        utf8proc_ssize_t took = (unsigned char)text[m->bad] < 0x80
                                    ? 1
                                    : utf8proc_iterate((const utf8proc_uint8_t *)text + m->bad,
                                                       (utf8proc_ssize_t)(n - m->bad), &c);
        if (took <= 0) {
            m->valid = false;
            break;
        }
        measure_byte(m, text + m->bad, n - m->bad);
        m->bad += (size_t)took;
    }
}

/* ---- what is too much ---- */

/* Fields that may be long, of all paths; NULL: it is none of them. */
static const char *field_known(const char *name, size_t n)
{
    static const char *const fields[] = {"messages",
                                         "prompt",
                                         "input",
                                         "tools",
                                         "stop",
                                         "stop_token_ids",
                                         "logit_bias",
                                         "chat_template_kwargs",
                                         "response_format",
                                         "guided_json",
                                         "json_schema",
                                         "guided_choice",
                                         "metadata",
                                         "structured_outputs",
                                         "tokens",
                                         "system",
                                         "stop_sequences",
                                         "options",
                                         "format",
                                         "text"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (strlen(fields[i]) == n && memcmp(fields[i], name, n) == 0)
            return fields[i];
    return NULL;
}

static int cost_refuse(const struct body_measure *m, const char **param, struct err *e)
{
    const char *known = field_known(m->key ? m->key : "", m->key_bytes);
    if (param)
        *param = known;
    if (m->plain)
        return err_set(e, HP_EINVAL, "the body holds more than %d JSON values", BODY_MAX_VALUES);
    return err_set(
        e, HP_EINVAL,
        "%s%sthe body holds too many values: %d numbers, %d texts or %d members of objects are "
        "the most",
        known ? known : "", known ? ": " : "", BODY_MAX_VALUES, BODY_MAX_VALUES / BODY_TEXT_COST,
        BODY_MAX_VALUES / (BODY_TEXT_COST + BODY_MEMBER_COST + 1));
}

static int measured_load(struct body_measure *m, const char *text, size_t n, json_t **root,
                         const char **param, struct err *e)
{
    struct json_at at;
    measure_text(m, text, n);
    if (!m->valid)
        return err_set(e, HP_EINVAL, "the body is not valid UTF-8 at byte %zu", m->bad);
    if (m->cost > BODY_MAX_VALUES)
        return cost_refuse(m, param, e);
    if (m->deepest > BODY_MAX_DEPTH)
        return err_set(e, HP_EINVAL, "the body is nested deeper than %d levels", BODY_MAX_DEPTH);
    if (m->nul)
        return err_set(e, HP_EINVAL, "the body holds \\u0000, which cannot stand in a text");
    /* An integer beyond 64 bits is a number all the same: its field, if it is one that counts, says
     * what it may be. */
    int rc = json_parse_wide_at("the body", text, n, root, &at, e);
    if (rc == HP_EPARSE && e)
        e->code = HP_EINVAL;
    return rc == HP_EPARSE ? HP_EINVAL : rc;
}

int body_measure_load(const char *text, size_t n, json_t **root, const char **param, struct err *e)
{
    struct body_measure m = {0};
    return measured_load(&m, text, n, root, param, e);
}

int body_measure_load_tensors(const char *text, size_t n, json_t **root, struct err *e)
{
    struct body_measure m = {.plain = true};
    return measured_load(&m, text, n, root, NULL, e);
}
