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

/* ---- calls of tools ---- */

/* Bytes in which `trigger` does not stand, up to where it does: the automaton of Knuth, Morris and
 * Pratt, a rule a state. `found`: what follows it; elsewhere the text may end. Gives the rule of
 * the first state. */
static uint32_t trigger_rules(struct expressions *x, const char *trigger,
                              const struct expression *found)
{
    enum { MOST = 256 };
    size_t n = strlen(trigger), back[MOST + 1] = {0};
    uint32_t first = (uint32_t)x->n_rules;
    if (n > MOST) {
        expression_fail(x, HP_ELIMIT, "what a call begins with has more than %d bytes", MOST);
        return 0;
    }
    for (size_t i = 0; i < n; i++)
        expression_rule_add(x, "text");
    for (size_t i = 1, k = 0; i < n; i++) {
        while (k && trigger[i] != trigger[k])
            k = back[k - 1];
        k += trigger[i] == trigger[k];
        back[i] = k;
    }
    for (size_t state = 0; state < n; state++) {
        struct expression_list l = {0};
        expression_list_add(x, &l, expression_word(x, ""));
        for (int byte = 0; byte < 256; byte++) {
            size_t k = state;
            char c = (char)byte;
            while (k && trigger[k] != c)
                k = back[k - 1];
            k += trigger[k] == c;
            expression_list_add(
                x, &l,
                EXPRESSION_SEQUENCE_OF(x, expression_text(x, &c, 1),
                                       k == n ? found : expression_rule(x, first + (uint32_t)k)));
        }
        expression_rule_set(x, first + (uint32_t)state, expression_choice(x, l.items, l.count));
    }
    return first;
}

static const struct expression *call_expression(struct json_text *t, const struct grammar_call *c,
                                                const char *field, struct err *e)
{
    const struct expression *schema =
        c->schema ? schema_expression(t, c->schema, field, e) : json_text_part(t, JSON_TEXT_OBJECT);
    return EXPRESSION_SEQUENCE_OF(t->x, expression_word(t->x, c->begin), schema,
                                  expression_word(t->x, c->end));
}

int grammar_source_calls(const struct grammar_calls *calls, const char *field, struct buffer *out,
                         struct err *e)
{
    struct expressions x = {0};
    struct json_text t = {.x = &x};
    struct expression_list l = {0};
    struct err why = {0};
    uint32_t root = expression_rule_add(&x, "answer"), call = expression_rule_add(&x, "call");
    char name[256];
    for (size_t i = 0; i < calls->n_calls && why.code == 0; i++) {
        snprintf(name, sizeof name, "%.200s[%zu]", field, i);
        expression_list_add(&x, &l, call_expression(&t, &calls->calls[i], name, &why));
    }
    if (why.code == 0 && (!calls->n_calls || calls->n_calls > GRAMMAR_SOURCE_MAX_CALLS))
        err_set(&why, HP_ELIMIT, "%s: 1 to %d of them can be called", field,
                GRAMMAR_SOURCE_MAX_CALLS);
    if (why.code < 0)
        return source_write(&x, err_set(e, why.code, "%s", why.text), field, out, e);
    expression_rule_set(&x, call, expression_choice(&x, l.items, l.count));
    const struct expression *one = expression_rule(&x, call), *text = NULL,
                            *trigger = expression_word(&x, calls->trigger);
    bool free_text = calls->trigger[0] && (!calls->required || calls->parallel);
    if (free_text) {
        uint32_t behind = expression_rule_add(&x, "behind");
        text = expression_rule(&x, trigger_rules(&x, calls->trigger, expression_rule(&x, behind)));
        expression_rule_set(&x, behind,
                            calls->parallel ? EXPRESSION_SEQUENCE_OF(&x, one, text) : one);
    }
    if (!free_text || calls->required)
        text = EXPRESSION_SEQUENCE_OF(&x, trigger, one,
                                      calls->parallel && text ? text : expression_word(&x, ""));
    expression_rule_set(&x, root, text);
    return source_write(&x, builder_status(&x, field, e), field, out, e);
}
