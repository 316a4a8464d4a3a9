#include "coordinator/gateway/openai_grammar.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/body_measure.h"
#include "model/grammar/grammar_source.h"

struct grammar_fields {
    const json_t *root;
    const char **param, *used; /* used: the field that asked for one already */
    struct buffer out;
    struct err *e;
};

/* False: it is not there. llama-server's clients spell out that they have no grammar as "". */
static bool field_there(const json_t *of, const char *name, const json_t **out)
{
    *out = json_object_get(of, name);
    bool none = strcmp(name, "grammar") == 0 && json_is_string(*out) && !json_string_length(*out);
    return *out && !json_is_null(*out) && !json_is_false(*out) && !none;
}

static int field_use(struct grammar_fields *f, const char *field)
{
    *f->param = field;
    if (f->used)
        return err_set(f->e, HP_EINVAL, "%s: %s holds the answer to something already; give one",
                       field, f->used);
    f->used = field;
    return 0;
}

/* vLLM's clients send schemas as texts, too, which are measured as bodies are. */
static int schema_use(struct grammar_fields *f, const json_t *schema, const char *field)
{
    json_t *parsed = NULL;
    struct err why = {0};
    int rc = !schema ? err_set(f->e, HP_EINVAL, "%s: a schema is missing", field)
             : json_is_string(schema)
                 ? body_measure_load(json_string_value(schema), json_string_length(schema), NULL,
                                     &parsed, NULL, &why)
                 : 0;
    if (why.code < 0)
        rc = err_set(f->e, why.code, "%s: the text is no JSON that is taken here: %s", field,
                     why.text);
    if (rc == 0)
        rc = grammar_source_schema(parsed ? parsed : schema, field, &f->out, f->e);
    json_decref(parsed);
    return rc;
}

static int text_use(struct grammar_fields *f, const json_t *text, const char *field, bool regular)
{
    if (!json_is_string(text))
        return err_set(f->e, HP_EINVAL, "%s: must be a text", field);
    return regular ? grammar_source_regular(json_string_value(text), json_string_length(text),
                                            field, &f->out, f->e)
                   : grammar_source_gbnf(json_string_value(text), json_string_length(text), field,
                                         &f->out, f->e);
}

int openai_grammar_format(const json_t *format, const json_t **schema, const char **field,
                          struct err *e)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    bool named = type && strcmp(type, "json_schema") == 0;
    if (!named && (!type || strcmp(type, "json_object") != 0))
        return err_set(e, HP_EINVAL,
                       "response_format.type: must be text, json_object or json_schema");
    *field = "response_format.json_schema.schema";
    if (named && field_there(json_object_get(format, "json_schema"), "schema", schema))
        return 0;
    /* The schema beside "type" is understood, too; where there is none, OpenAI's is missing. */
    if (field_there(format, "schema", schema))
        *field = "response_format.schema";
    else if (named)
        return err_set(e, HP_EINVAL, "%s: a schema is missing", *field);
    else
        *schema = NULL;
    return 0;
}

static bool format_is_text(const json_t *format)
{
    const char *type = json_string_value(json_object_get(format, "type"));
    return type && strcmp(type, "text") == 0;
}

static int format_use(struct grammar_fields *f, const json_t *format)
{
    const json_t *schema;
    const char *field;
    if (format_is_text(format))
        return 0;
    int rc = field_use(f, "response_format");
    rc = rc < 0 ? rc : openai_grammar_format(format, &schema, &field, f->e);
    if (rc < 0)
        return rc;
    return schema ? schema_use(f, schema, field)
                  : grammar_source_json("response_format", &f->out, f->e);
}

/* Each of vLLM's ways, by the names that its older and its newer clients have for it. */
static int ways_use(struct grammar_fields *f, const json_t *of, const char *const names[5],
                    const char *field)
{
    const json_t *v;
    int rc = 0;
    for (int i = 0; i < 5 && rc == 0; i++) {
        if (!names[i] || !field_there(of, names[i], &v))
            continue;
        rc = field_use(f, field ? field : names[i]);
        if (rc < 0)
            break;
        rc = i == 0   ? schema_use(f, v, names[i])
             : i == 1 ? text_use(f, v, names[i], true)
             : i == 2 ? grammar_source_choices(v, names[i], &f->out, f->e)
             : i == 3 ? text_use(f, v, names[i], false)
                      : grammar_source_json(names[i], &f->out, f->e);
    }
    return rc;
}

/* vLLM's object, which has one of the ways, and nothing that would be disobeyed. */
static int structured_use(struct grammar_fields *f, const json_t *object)
{
    static const char field[] = "structured_outputs";
    static const char *const ways[5] = {"json", "regex", "choice", "grammar", "json_object"},
                             *const unbuilt[] = {"structural_tag", "whitespace_pattern",
                                                 "disable_any_whitespace"};
    const json_t *v;
    char why[80];
    bool any = false;
    for (size_t i = 0; i < sizeof unbuilt / sizeof *unbuilt; i++) {
        if (!field_there(object, unbuilt[i], &v))
            continue;
        snprintf(why, sizeof why, "%s is not supported; leave it out", unbuilt[i]);
        return body_field_refuse(f->param, field, f->e, why);
    }
    for (int i = 0; i < 5; i++)
        any = field_there(object, ways[i], &v) || any;
    return any ? ways_use(f, object, ways, field)
               : body_field_refuse(f->param, field, f->e,
                                   "must be an object with one of json, regex, choice, grammar and "
                                   "json_object");
}

static int fields_use(struct grammar_fields *f)
{
    static const char *const guided[5] = {"guided_json", "guided_regex", "guided_choice",
                                          "guided_grammar", NULL},
                             *const llama[5] = {"json_schema", NULL, NULL, "grammar", NULL};
    const json_t *v;
    int rc = field_there(f->root, "response_format", &v) ? format_use(f, v) : 0;
    rc = rc < 0 ? rc : ways_use(f, f->root, guided, NULL);
    rc = rc < 0 ? rc : ways_use(f, f->root, llama, NULL);
    if (rc == 0 && field_there(f->root, "structured_outputs", &v))
        rc = structured_use(f, v);
    if (rc == 0 && f->used && json_is_true(json_object_get(f->root, "ignore_eos")))
        rc = body_field_refuse(f->param, "ignore_eos", f->e,
                               "an answer that is held to a grammar ends with it");
    return rc;
}

static bool others_ask(const json_t *root)
{
    static const char *const names[] = {"guided_json",       "guided_regex",   "guided_choice",
                                        "json_schema",       "guided_grammar", "grammar",
                                        "structured_outputs"};
    const json_t *v;
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (field_there(root, names[i], &v))
            return true;
    return false;
}

static bool format_asks(const json_t *root)
{
    const json_t *format;
    return field_there(root, "response_format", &format) && !format_is_text(format);
}

bool openai_grammar_asked(const json_t *root)
{
    return others_ask(root) || format_asks(root);
}

bool openai_grammar_formats(const json_t *root)
{
    return format_asks(root) && !others_ask(root);
}

int openai_grammar_make(const json_t *root, struct pack_span *out, const char **param,
                        struct err *e)
{
    struct grammar_fields f = {.root = root, .param = param, .e = e};
    int rc = fields_use(&f);
    if (rc < 0) {
        buffer_free(&f.out);
        if (e && rc != HP_ENOMEM) /* whatever it is, the request is what has to change */
            e->code = HP_EINVAL;
        return rc == HP_ENOMEM ? rc : HP_EINVAL;
    }
    *param = f.used;
    *out = (struct pack_span){f.out.data, f.out.size};
    return 0;
}
