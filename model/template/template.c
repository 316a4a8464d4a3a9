#include "model/template/template.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template/collections.h"
#include "model/template/parse.h"
#include "model/template/statements.h"

enum { SOURCE_MAX_BYTES = 4 << 20, STEPS = 30 * 1000 * 1000, OUTPUT_BYTES = 16 << 20 };

struct chat_template {
    struct arena arena;
    struct node *body; /* a BODY */
};

int template_compile(const char *source, size_t size, struct chat_template **out, struct err *e)
{
    if (size > SOURCE_MAX_BYTES)
        return err_set(e, HP_ELIMIT, "line 1: a template of %zu bytes; at most %d are read", size,
                       SOURCE_MAX_BYTES);
    struct chat_template *t = calloc(1, sizeof *t);
    if (!t)
        return err_set(e, HP_ENOMEM, "out of memory for a template");
    struct buffer tokens = {0};
    struct err problem = {0};
    int rc = template_lex(&t->arena, source, size, &tokens, &problem);
    if (rc == 0) {
        struct parser p = {.arena = &t->arena,
                           .at = (const struct lexeme *)(const void *)tokens.data,
                           .e = &problem};
        rc = template_parse(&p, &t->body);
    }
    buffer_free(&tokens);
    if (rc < 0 && t->arena.out_of_memory)
        rc = err_set(&problem, HP_ENOMEM, "out of memory for a template");
    if (rc < 0) {
        template_destroy(&t);
        utf8_clean(problem.text);
        return err_set(e, problem.code ? problem.code : rc, "%s", problem.text);
    }
    *out = t;
    return 0;
}

void template_destroy(struct chat_template **t)
{
    if (!*t)
        return;
    arena_free(&(*t)->arena);
    free(*t);
    *t = NULL;
}

static int bind_variables(struct run *r, const json_t *variables)
{
    const char *key;
    json_t *item;
    json_object_foreach((json_t *)(uintptr_t)variables, key, item)
    {
        struct value v;
        int rc = value_from_json(r, item, 0, &v);
        if (rc == 0)
            rc = run_bind(r, text_of(key), v);
        if (rc < 0)
            return rc;
    }
    return 0;
}

int template_render(const struct chat_template *t, const json_t *variables,
                    const struct template_limits *limits, struct buffer *out, struct err *e)
{
    struct template_limits none = {0};
    const struct template_limits *l = limits ? limits : &none;
    struct run r = {.arena = {.limit_bytes = RUN_VALUES_MAX_BYTES},
                    .max_steps = l->max_steps ? l->max_steps : STEPS,
                    .max_output = l->max_output_bytes ? l->max_output_bytes : OUTPUT_BYTES,
                    .now_s = l->now_s,
                    .line = 1,
                    .out = out,
                    .e = e};
    cpu_limit_start(&r.time, RUN_TIME_MS * 1000000ull);
    size_t before = out->size;
    struct scope *nothing;
    int rc = run_scope_push(&r, NULL, &nothing);
    if (rc == 0)
        rc = bind_variables(&r, variables);
    if (rc == 0)
        rc = run_body(&r, t->body->children);
    if (rc < 0 && r.arena.out_of_memory)
        rc = err_set(e, HP_ENOMEM, "out of memory for the values of a template");
    arena_free(&r.arena);
    if (rc == 0)
        return 0;
    out->size = before;
    if (e)
        utf8_clean(e->text);
    return rc;
}
