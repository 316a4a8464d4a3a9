#include "coordinator/gateway/body_measure.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <utf8proc.h>

#include "common/bytes.h"
#include "common/json.h"
#include "common/vector.h"
#include "coordinator/gateway/body_texts.h"

enum { WHOLE_PARSED_BYTES = 256 << 10 };

/* What the parser does not see of a body. */
struct body_cut {
    size_t begin, end;
};

/* What a text holds, counted before a tree is built: the parser takes 60 bytes and more for a value
 * of two, and much longer for a member of an object than for an item of a list. */
struct body_measure {
    size_t cost, most;          /* most: beyond it nothing more is looked at */
    size_t depth, deepest, bad; /* bad: where it stops being UTF-8 */
    bool in_string, escaped, valid, nul, tensors;
    const char *key, *text; /* of the outermost object: the last text, and the member it is in */
    size_t key_bytes, text_bytes;
    const char *nul_key; /* the member with the first NUL */
    size_t nul_key_bytes;
    size_t item;          /* of that member, if it is a list */
    struct body_ids *ids; /* NULL: none are read */
    struct body_texts texts;
    struct body_cut *cuts; /* where these two were, in the order of the body */
    size_t n_cuts, room_cuts;
    bool failed; /* no memory */
};

static void measure_cut(struct body_measure *m, size_t begin, size_t end)
{
    m->failed = m->failed ||
                !vector_push(m->cuts, m->n_cuts, m->room_cuts, ((struct body_cut){begin, end}));
}

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

/* In no member, until the next one's name is over. */
static void measure_leave(struct body_measure *m)
{
    m->key = NULL;
    m->key_bytes = 0;
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
        if (m->depth == 1)
            measure_leave(m);
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
                m->cost <= m->most && name_is(m->ids->field, m->key, m->key_bytes);
    const struct body_id_list *list =
        here ? body_ids_read(m->ids, m->depth == 2 ? BODY_IDS_WHOLE : m->item, text, m->bad, n,
                             m->most - m->cost)
             : NULL;
    if (!list)
        return;
    measure_cut(m, list->begin, list->end);
    m->cost += list->n_ids;
    m->bad = list->end;
}

/* Behind the `"` that stands before m->bad: passes over the text, but for one that has something
 * which texts may not have, and is looked at byte by byte. */
static void measure_string(struct body_measure *m, const char *text, size_t n)
{
    bool escaped;
    size_t begin = m->bad, end = body_text_end(text, begin, n, &escaped);
    if (!end)
        return;
    m->in_string = false;
    measure_string_end(m, text + end);
    m->bad = end + 1;
    if (body_texts_note(&m->texts, text, n, begin, end, escaped))
        measure_cut(m, begin, end);
}

static void measure_byte(struct body_measure *m, const char *text, size_t n)
{
    char c = text[0];
    if (!m->in_string) {
        measure_mark(m, text);
        return;
    }
    if (!m->nul && m->escaped && n >= 5 && memcmp(text, "u0000", 5) == 0) {
        m->nul = true;
        m->nul_key = m->key;
        m->nul_key_bytes = m->key_bytes;
    }
    m->in_string = m->escaped || c != '"';
    m->escaped = !m->escaped && c == '\\';
    if (!m->in_string)
        measure_string_end(m, text);
}

static void measure_text(struct body_measure *m, const char *text, size_t n)
{
    utf8proc_int32_t c;
    m->valid = true;
    while (m->bad < n && m->cost <= m->most && m->deepest <= BODY_MAX_DEPTH) {
        char opens = m->in_string ? '\0' : text[m->bad];
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
        if (opens == '[')
            measure_ids(m, text, n);
        else if (opens == '"')
            measure_string(m, text, n);
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
                                         "text",
                                         "include",
                                         "instructions",
                                         "output_config",
                                         "content",
                                         "samplers",
                                         "response_fields",
                                         "input_prefix",
                                         "input_suffix",
                                         "input_extra",
                                         "query",
                                         "documents",
                                         "text_1",
                                         "text_2"};
    for (size_t i = 0; i < sizeof fields / sizeof *fields; i++)
        if (name_is(fields[i], name, n))
            return fields[i];
    return NULL;
}

/* Names the member of the outermost object that something is wrong with, if it is in one. */
static int member_refuse(const char *key, size_t n, const char **param, struct err *e,
                         const char *why)
{
    const char *known = field_known(key ? key : "", n);
    if (param)
        *param = known;
    if (known)
        return err_set(e, HP_EINVAL, "%s: %s", known, why);
    return key ? err_set(e, HP_EINVAL, "%s, in its member \"%.*s\"", why, (int)(n < 40 ? n : 40),
                         key)
               : err_set(e, HP_EINVAL, "%s", why);
}

static int cost_refuse(const struct body_measure *m, const char **param, struct err *e)
{
    char why[200];
    if (m->tensors)
        return err_set(e, HP_EINVAL,
                       "the body holds more than %d JSON values; tensors of more are sent as "
                       "binary data",
                       BODY_MAX_COST);
    snprintf(why, sizeof why,
             "the body holds too many values: %d token ids of prompts, %d other numbers, %d texts "
             "or %d members of objects are the most",
             BODY_MAX_COST, BODY_MAX_COST / BODY_ITEM_COST,
             BODY_MAX_COST / (BODY_ITEM_COST + BODY_TEXT_COST),
             BODY_MAX_COST / (BODY_ITEM_COST + BODY_TEXT_COST + BODY_MEMBER_COST));
    return member_refuse(m->key, m->key_bytes, param, e, why);
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

/* The text without what was cut out of it. */
static void rest_write(const struct body_measure *m, const char *text, size_t n, struct buffer *out)
{
    size_t at = 0;
    for (size_t i = 0; i < m->n_cuts; i++) {
        buffer_append(out, text + at, m->cuts[i].begin - at);
        at = m->cuts[i].end;
    }
    buffer_append(out, text + at, n - at);
}

static int rest_parse(const struct body_measure *m, const char *text, size_t n, json_t **root,
                      struct err *e)
{
    struct buffer rest = {0};
    rest_write(m, text, n, &rest);
    int rc = rest.failed ? err_no_memory(e, "the body")
                         : text_parse((const char *)rest.data, rest.size, root, e);
    if (rc == HP_EINVAL && n <= WHOLE_PARSED_BYTES) {
        rc = text_parse(text, n, root, e); /* which says where it is wrong */
    } else if (rc == HP_EINVAL && e) {
        size_t used = strlen(e->text);
        snprintf(e->text + used, sizeof e->text - used,
                 " (columns without token ids and long texts)");
    }
    if (rc == 0 && (rc = body_texts_restore(&m->texts, text, *root, e)) < 0) {
        json_decref(*root);
        *root = NULL;
    }
    buffer_free(&rest);
    return rc;
}

static int measured_load(struct body_measure *m, const char *text, size_t n, json_t **root,
                         const char **param, struct err *e)
{
    measure_text(m, text, n);
    char why[80];
    if (!m->valid) {
        snprintf(why, sizeof why, "the body is not valid UTF-8 at byte %zu", m->bad);
        return member_refuse(m->key, m->key_bytes, param, e, why);
    }
    if (m->cost > m->most)
        return cost_refuse(m, param, e);
    if (m->deepest > BODY_MAX_DEPTH) {
        snprintf(why, sizeof why, "the body is nested deeper than %d levels", BODY_MAX_DEPTH);
        return member_refuse(m->key, m->key_bytes, param, e, why);
    }
    if (m->nul)
        return member_refuse(m->nul_key, m->nul_key_bytes, param, e,
                             "the body holds \\u0000, which cannot stand in a text");
    if (m->failed || m->texts.failed || (m->ids && m->ids->failed))
        return err_no_memory(e, "the body");
    return m->n_cuts ? rest_parse(m, text, n, root, e) : text_parse(text, n, root, e);
}

static void measure_free(struct body_measure *m)
{
    body_texts_free(&m->texts);
    free(m->cuts);
}

int body_measure_load_within(const char *text, size_t n, struct body_ids *ids, size_t *left,
                             json_t **root, const char **param, struct err *e)
{
    struct body_measure m = {.ids = ids, .most = *left};
    int rc = measured_load(&m, text, n, root, param, e);
    *left -= m.cost < *left ? m.cost : *left;
    measure_free(&m);
    return rc;
}

int body_measure_load(const char *text, size_t n, struct body_ids *ids, json_t **root,
                      const char **param, struct err *e)
{
    size_t left = BODY_MAX_COST;
    return body_measure_load_within(text, n, ids, &left, root, param, e);
}

int body_measure_load_tensors(const char *text, size_t n, json_t **root, struct err *e)
{
    struct body_measure m = {.tensors = true, .most = BODY_MAX_COST};
    int rc = measured_load(&m, text, n, root, NULL, e);
    measure_free(&m);
    return rc;
}
