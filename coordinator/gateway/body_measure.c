#include "coordinator/gateway/body_measure.h"

#include <stdio.h>
#include <string.h>
#include <utf8proc.h>

#include "common/json.h"

/* What a text holds, counted before a tree is built: the parser takes 60 bytes and more for a value
 * of two, and much longer for a member of an object than for an item of a list. */
struct body_measure {
    size_t cost, depth, deepest, bad; /* bad: where it stops being UTF-8 */
    bool in_string, escaped, valid, nul, tensors;
    const char *key, *text; /* of the outermost object: the last text, and the member it is in */
    size_t key_bytes, text_bytes;
    size_t item;          /* of that member, if it is a list */
    struct body_ids *ids; /* NULL: none are read */
};

static void measure_string_end(struct body_measure *m, const char *end)
{
    if (m->depth == 1)
        m->text_bytes = (size_t)(end - m->text);
}

static void measure_member(struct body_measure *m)
{
    m->cost += BODY_MEMBER_COST;
    if (m->depth != 1)
        return;
    m->key = m->text;
    m->key_bytes = m->text_bytes;
    m->item = 0;
}

static void measure_open(struct body_measure *m, bool list)
{
    m->cost += list && m->tensors ? 1 : BODY_LIST_COST;
    m->depth++;
    m->deepest = m->depth > m->deepest ? m->depth : m->deepest;
}

static void measure_mark(struct body_measure *m, const char *at)
{
    switch (*at) {
    case '"':
        m->in_string = true;
        m->cost += m->tensors ? 0 : BODY_TEXT_COST;
        m->text = m->depth == 1 ? at + 1 : m->text;
        break;
    case '[':
    case '{': measure_open(m, *at == '['); break;
    case ']':
    case '}': m->depth -= m->depth > 0; break;
    case ':': measure_member(m); break;
    case ',':
        m->cost += m->tensors ? 1 : BODY_ITEM_COST;
        m->item += m->depth == 2;
        break;
    default: break;
    }
}

static bool name_is(const char *name, const char *text, size_t n)
{
    return strlen(name) == n && memcmp(name, text, n) == 0;
}

/* Behind the `[` that stands before m->bad: token ids are passed over, up to the `]`. */
static void measure_ids(struct body_measure *m, const char *text, size_t n)
{
    bool here = m->ids && m->ids->field && m->key && (m->depth == 2 || m->depth == 3) &&
                m->cost <= BODY_MAX_COST && name_is(m->ids->field, m->key, m->key_bytes);
    const struct body_id_list *list =
        here ? body_ids_read(m->ids, m->depth == 2 ? BODY_IDS_WHOLE : m->item, text, m->bad, n,
                             BODY_MAX_COST - m->cost)
             : NULL;
    if (!list)
        return;
    m->cost += list->n_ids;
    m->bad = list->end;
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
    while (m->bad < n && m->cost <= BODY_MAX_COST && m->deepest <= BODY_MAX_DEPTH) {
        bool opens = !m->in_string && text[m->bad] == '[';
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
        if (opens)
            measure_ids(m, text, n);
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
        if (name_is(fields[i], name, n))
            return fields[i];
    return NULL;
}

static int cost_refuse(const struct body_measure *m, const char **param, struct err *e)
{
    const char *known = field_known(m->key ? m->key : "", m->key_bytes);
    if (param)
        *param = known;
    if (m->tensors)
        return err_set(e, HP_EINVAL,
                       "the body holds more than %d JSON values; tensors of more are sent as "
                       "binary data",
                       BODY_MAX_COST);
    return err_set(e, HP_EINVAL,
                   "%s%sthe body holds too many values: %d token ids of prompts, %d other numbers, "
                   "%d texts or %d members of objects are the most",
                   known ? known : "", known ? ": " : "", BODY_MAX_COST,
                   BODY_MAX_COST / BODY_ITEM_COST,
                   BODY_MAX_COST / (BODY_ITEM_COST + BODY_TEXT_COST),
                   BODY_MAX_COST / (BODY_ITEM_COST + BODY_TEXT_COST + BODY_MEMBER_COST));
}

/* ---- a tree ---- */

static int text_parse(const char *text, size_t n, json_t **root, struct err *e)
{
    struct json_at at;
    /* An integer beyond 64 bits is a number all the same: its field, if it is one that counts, says
     * what it may be. */
    int rc = json_parse_wide_at("the body", text, n, root, &at, e);
    if (rc == HP_EPARSE && e)
        e->code = HP_EINVAL;
    return rc == HP_EPARSE ? HP_EINVAL : rc;
}

/* Of what is left beside the token ids. */
static int rest_parse(const struct body_ids *ids, const char *text, size_t n, json_t **root,
                      struct err *e)
{
    struct buffer rest = {0};
    body_ids_cut(ids, text, n, &rest);
    int rc = rest.failed ? err_no_memory(e, "the body")
                         : text_parse((const char *)rest.data, rest.size, root, e);
    if (rc == HP_EINVAL && e) {
        size_t used = strlen(e->text);
        snprintf(e->text + used, sizeof e->text - used, " (columns without token ids)");
    }
    buffer_free(&rest);
    return rc;
}

static int measured_load(struct body_measure *m, const char *text, size_t n, json_t **root,
                         const char **param, struct err *e)
{
    measure_text(m, text, n);
    if (!m->valid)
        return err_set(e, HP_EINVAL, "the body is not valid UTF-8 at byte %zu", m->bad);
    if (m->cost > BODY_MAX_COST)
        return cost_refuse(m, param, e);
    if (m->deepest > BODY_MAX_DEPTH)
        return err_set(e, HP_EINVAL, "the body is nested deeper than %d levels", BODY_MAX_DEPTH);
    if (m->nul)
        return err_set(e, HP_EINVAL, "the body holds \\u0000, which cannot stand in a text");
    if (m->ids && m->ids->failed)
        return err_no_memory(e, "the body's token ids");
    return m->ids && m->ids->n ? rest_parse(m->ids, text, n, root, e)
                               : text_parse(text, n, root, e);
}

int body_measure_load(const char *text, size_t n, struct body_ids *ids, json_t **root,
                      const char **param, struct err *e)
{
    struct body_measure m = {.ids = ids};
    return measured_load(&m, text, n, root, param, e);
}

int body_measure_load_tensors(const char *text, size_t n, json_t **root, struct err *e)
{
    struct body_measure m = {.tensors = true};
    return measured_load(&m, text, n, root, NULL, e);
}
