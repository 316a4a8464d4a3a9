#include "model/grammar/grammar_source.h"

#include <stdlib.h>
#include <string.h>

#include "model/grammar/gbnf.h"
#include "model/grammar/grammar.h"
#include "model/grammar/regular.h"
#include "model/grammar/schema.h"

/* The grammar of a builder, whose first rule has a body, as bytes; the builder is freed, whatever
 * comes. `rc` < 0 (and *e) is handed on. */
static int source_write(struct expressions *x, int rc, const char *field, struct buffer *out,
                        struct err *e)
{
    struct grammar *g = NULL;
    if (rc == 0) {
        rc = grammar_make(x, &g, e);
        if (rc < 0 && e)
            err_at(e, "%s", field);
    }
    expressions_free(x);
    if (rc < 0)
        return rc;
    grammar_write(g, out);
    grammar_destroy(&g);
    return out->failed ? err_no_memory(e, "a grammar") : 0;
}

/* A failure of the builder itself, named by the field. */
static int builder_status(const struct expressions *x, const char *field, struct err *e)
{
    return x->status < 0 ? err_set(e, x->status, "%s: %s", field, x->error.text) : 0;
}

int grammar_source_json(const char *field, struct buffer *out, struct err *e)
{
    struct expressions x = {0};
    struct json_text t = {.x = &x};
    uint32_t root = expression_rule_add(&x, "json");
    expression_rule_set(&x, root, json_text_part(&t, JSON_TEXT_OBJECT));
    return source_write(&x, builder_status(&x, field, e), field, out, e);
}

int grammar_source_schema(const json_t *schema, const char *field, struct buffer *out,
                          struct err *e)
{
    struct expressions x = {0};
    struct json_text t = {.x = &x};
    struct err why = {0};
    uint32_t root = expression_rule_add(&x, "schema");
    const struct expression *body = schema_expression(&t, schema, field, &why);
    expression_rule_set(&x, root, body);
    int rc = body ? builder_status(&x, field, e) : err_set(e, why.code, "%s", why.text);
    return source_write(&x, rc, field, out, e);
}

int grammar_source_regular(const char *pattern, size_t size, const char *field, struct buffer *out,
                           struct err *e)
{
    struct expressions x = {0};
    uint32_t root = expression_rule_add(&x, "regex");
    expression_rule_set(&x, root, regular_expression(&x, pattern, size, REGULAR_WHOLE));
    return source_write(&x, builder_status(&x, field, e), field, out, e);
}

int grammar_source_choices(const json_t *texts, const char *field, struct buffer *out,
                           struct err *e)
{
    struct expressions x = {0};
    struct expression_list l = {0};
    uint32_t root = expression_rule_add(&x, "choice");
    int rc = json_array_size(texts) ? 0
                                    : err_set(e, HP_EINVAL,
                                              "%s: a list of strings is wanted, of "
                                              "which one is the answer",
                                              field);
    for (size_t i = 0; rc == 0 && i < json_array_size(texts); i++) {
        const json_t *text = json_array_get(texts, i);
        if (!json_is_string(text) || !json_string_length(text))
            rc = err_set(e, HP_EINVAL, "%s[%zu]: a string that is not empty is wanted", field, i);
        else
            expression_list_add(
                &x, &l, expression_text(&x, json_string_value(text), json_string_length(text)));
    }
    expression_rule_set(&x, root, expression_choice(&x, l.items, l.count));
    return source_write(&x, rc < 0 ? rc : builder_status(&x, field, e), field, out, e);
}

int grammar_source_gbnf(const char *text, size_t size, const char *field, struct buffer *out,
                        struct err *e)
{
    struct expressions x = {0};
    int rc = gbnf_read(&x, text, size, e);
    if (rc < 0 && e)
        err_at(e, "%s", field);
    return source_write(&x, rc, field, out, e);
}

int grammar_source_calls(const struct grammar_calls *calls, const char *field, struct buffer *out,
                         struct err *e)
{
    struct expressions x = {0};
    struct json_text t = {.x = &x};
    struct err why = {0};
    uint32_t root = expression_rule_add(&x, "answer");
    const struct expression *body = calls_expression(&t, calls, field, &why);
    expression_rule_set(&x, root, body);
    int rc = why.code < 0 ? err_set(e, why.code, "%s", why.text) : builder_status(&x, field, e);
    return source_write(&x, rc, field, out, e);
}
