#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template_int.h"

enum {
    SOURCE_MAX_BYTES = 4 << 20,
    STEPS = 30 * 1000 * 1000,
    TIME_MS = 1000,
    OUTPUT_BYTES = 16 << 20,
    VALUES_MAX_BYTES = 256 << 20
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

/* ---- what every part of a run uses
 * -------------------------------------------------------------------------- */

int run_fail(struct run *r, int code, const char *fmt, ...)
{
    char text[600];
    va_list args;
    va_start(args, fmt);
    vsnprintf(text, sizeof text, fmt, args);
    va_end(args);
    return err_set(r->e, code, "line %d: %s", r->line, text);
}

int run_tick(struct run *r, size_t steps)
{
    enum { LOOK_EVERY = 64 };
    r->steps += steps;
    if (r->steps > r->max_steps)
        return run_fail(r, HP_ELIMIT, "the template takes more than %zu steps", r->max_steps);
    if (r->steps < r->look_at)
        return 0;
    r->look_at = r->steps + LOOK_EVERY;
    return cpu_limit_passed(&r->time)
               ? run_fail(r, HP_ELIMIT, "the template takes more than %d ms", TIME_MS)
               : 0;
}

int run_tick_bytes(struct run *r, size_t bytes)
{
    return run_tick(r, bytes / 64);
}

int run_tick_text(struct run *r, size_t bytes)
{
    return run_tick(r, bytes / 8);
}

void *run_alloc(struct run *r, size_t count, size_t size)
{
    void *p = arena_alloc(&r->arena, count, size);
    if (!p)
        run_fail(r, HP_ELIMIT, "the template's values take more than %d MiB",
                 VALUES_MAX_BYTES >> 20);
    return p;
}

int run_write(struct run *r, const char *data, size_t size)
{
    if (size > r->max_output - r->written)
        return run_fail(r, HP_ELIMIT, "the template writes more than %zu bytes", r->max_output);
    r->written += size;
    buffer_append(r->out, data, size);
    return r->out->failed ? run_fail(r, HP_ENOMEM, "out of memory") : run_tick_bytes(r, size);
}

int run_scope_push(struct run *r, struct scope *parent, struct scope **saved)
{
    struct scope *s = r->free_scopes;
    if (s)
        r->free_scopes = s->parent;
    else if (!(s = run_alloc(r, 1, sizeof *s)))
        return HP_ELIMIT;
    *s = (struct scope){.parent = parent};
    *saved = r->scope;
    r->scope = s;
    return 0;
}

void run_scope_pop(struct run *r, struct scope *saved)
{
    struct scope *s = r->scope;
    r->scope = saved;
    if (s->kept)
        return;
    while (s->bindings) {
        struct binding *b = s->bindings;
        s->bindings = b->next;
        b->next = r->free_bindings;
        r->free_bindings = b;
    }
    s->parent = r->free_scopes;
    r->free_scopes = s;
}

/* A macro that is made here looks names up in these scopes when it is called. */
static void keep_scopes(struct run *r)
{
    for (struct scope *s = r->scope; s && !s->kept; s = s->parent)
        s->kept = true;
}

int run_bind(struct run *r, struct text name, struct value v)
{
    for (struct binding *b = r->scope->bindings; b; b = b->next) {
        if (b->name.size == name.size && memcmp(b->name.data, name.data, name.size) == 0) {
            b->value = v;
            return run_tick(r, 1);
        }
    }
    struct binding *b = r->free_bindings;
    if (b)
        r->free_bindings = b->next;
    else if (!(b = run_alloc(r, 1, sizeof *b)))
        return HP_ELIMIT;
    *b = (struct binding){name, v, r->scope->bindings};
    r->scope->bindings = b;
    return run_tick(r, 1);
}

int run_capture(struct run *r, const struct node *first, struct value *out)
{
    struct buffer text = {0}, *outside = r->out;
    struct scope *saved;
    int rc = run_scope_push(r, r->scope, &saved);
    if (rc < 0)
        return rc;
    r->out = &text;
    rc = run_body(r, first);
    r->out = outside;
    run_scope_pop(r, saved);
    if (rc == 0)
        rc = value_copy_text(r, &text, out);
    buffer_free(&text);
    return rc;
}

/* ---- statements
 * --------------------------------------------------------------------------------------------- */

static int assign_many(struct run *r, const struct node *target, const struct value *v);

static int assign(struct run *r, const struct node *target, const struct value *v)
{
    if (target->kind == NODE_NAME)
        return run_bind(r, target->text, *v);
    if (target->kind == NODE_TUPLE)
        return assign_many(r, target, v);
    struct value of;
    int rc = target->kind == NODE_ATTR ? run_evaluate(r, target->a, &of) : HP_EBUG;
    if (rc < 0)
        return rc == HP_EBUG ? run_fail(r, HP_EUNSUPPORTED,
                                        "only names and attributes of namespaces can be set")
                             : rc;
    if (of.type != VALUE_NAMESPACE)
        return run_fail(r, HP_EINVAL, "cannot assign attribute on non-namespace object");
    return dict_set(r, of.dict, value_text(target->text), *v);
}

static int assign_many(struct run *r, const struct node *target, const struct value *v)
{
    struct list *items = NULL;
    size_t n = 0;
    int rc = value_items(r, v, &items);
    for (const struct node *t = target->children; t; t = t->next)
        n++;
    if (rc == 0 && items->n != n)
        return run_fail(r, HP_EINVAL, "%zu values for %zu names", items->n, n);
    size_t i = 0;
    for (const struct node *t = target->children; t && rc == 0; t = t->next)
        rc = assign(r, t, &items->items[i++]);
    return rc;
}

static int run_if(struct run *r, const struct node *n)
{
    for (const struct node *branch = n->children; branch; branch = branch->next) {
        struct value condition = value_bool(true);
        int rc = branch->a ? run_evaluate(r, branch->a, &condition) : 0;
        if (rc < 0)
            return rc;
        if (value_true(&condition))
            return run_body(r, branch->children);
    }
    return 0;
}

/* The items that pass `if`, each tried in a scope of its own. */
static int filtered(struct run *r, const struct node *n, struct list **items)
{
    struct value kept;
    int rc = value_new_list(r, LIST_PLAIN, 0, &kept);
    for (size_t i = 0; rc == 0 && i < (*items)->n; i++) {
        struct value passes = value_bool(false);
        struct scope *saved;
        rc = run_scope_push(r, r->scope, &saved);
        if (rc < 0)
            return rc;
        rc = assign(r, n->a, &(*items)->items[i]);
        if (rc == 0)
            rc = run_evaluate(r, n->c, &passes);
        run_scope_pop(r, saved);
        if (rc == 0 && value_true(&passes))
            rc = list_push(r, kept.list, (*items)->items[i]);
    }
    *items = kept.list;
    return rc;
}

static int run_turn(struct run *r, const struct node *n, struct loop *loop)
{
    struct scope *saved;
    int rc = run_scope_push(r, r->scope, &saved);
    if (rc < 0)
        return rc;
    rc = run_bind(r, text_of("loop"), (struct value){.type = VALUE_LOOP, .loop = loop});
    if (rc == 0)
        rc = assign(r, n->a, &loop->items->items[loop->at]);
    if (rc == 0)
        rc = run_body(r, n->children);
    run_scope_pop(r, saved);
    return rc;
}

static int run_for(struct run *r, const struct node *n)
{
    struct value over;
    struct list *items = NULL;
    struct scope *saved;
    int rc = run_evaluate(r, n->b, &over);
    r->line = n->line;
    if (rc == 0)
        rc = value_items(r, &over, &items);
    if (rc == 0 && n->c)
        rc = filtered(r, n, &items);
    if (rc < 0)
        return rc;
    if (items->n == 0) {
        rc = run_scope_push(r, r->scope, &saved);
        if (rc < 0)
            return rc;
        rc = run_body(r, n->others);
        run_scope_pop(r, saved);
        return rc;
    }
    r->loop_depth++;
    for (size_t i = 0; rc == 0 && i < items->n && r->flow != FLOW_BREAK; i++) {
        /* Each turn has a loop of its own: a template may keep it. */
        struct loop *loop = run_alloc(r, 1, sizeof *loop);
        if (!loop)
            return HP_ELIMIT;
        *loop = (struct loop){items, i, r->loop_depth};
        r->flow = FLOW_ON;
        rc = run_turn(r, n, loop);
    }
    r->loop_depth--;
    r->flow = FLOW_ON;
    return rc;
}

/* Filters of a block: the innermost has no input, which is the block's text. */
static int run_block_filters(struct run *r, const struct node *filter, const struct value *text,
                             struct value *out)
{
    struct value in = *text;
    struct arguments args;
    int rc = filter->a ? run_block_filters(r, filter->a, text, &in) : 0;
    if (rc == 0)
        rc = run_arguments(r, filter->children, &args);
    r->line = filter->line;
    return rc < 0 ? rc : run_filter(r, filter->text, &in, &args, out);
}

static int run_block(struct run *r, const struct node *n)
{
    struct value text, v;
    int rc = run_capture(r, n->children, &text);
    if (rc < 0)
        return rc;
    v = text;
    rc = n->b ? run_block_filters(r, n->b, &text, &v) : 0;
    if (rc < 0)
        return rc;
    if (n->kind == NODE_SET_BLOCK)
        return assign(r, n->a, &v);
    struct text t = {"", 0};
    rc = value_to_text(r, &v, &t);
    return rc < 0 ? rc : run_write(r, t.data, t.size);
}

static int run_with(struct run *r, const struct node *n)
{
    struct scope *saved;
    int rc = run_scope_push(r, r->scope, &saved);
    if (rc < 0)
        return rc;
    for (const struct node *set = n->children; set && rc == 0; set = set->next) {
        struct value v;
        rc = run_evaluate(r, set->b, &v);
        if (rc == 0)
            rc = assign(r, set->a, &v);
    }
    if (rc == 0)
        rc = run_body(r, n->others);
    run_scope_pop(r, saved);
    return rc;
}

static int run_output(struct run *r, const struct node *n)
{
    struct value v;
    struct text t = {"", 0};
    int rc = run_evaluate(r, n->a, &v);
    if (rc == 0)
        rc = value_to_text(r, &v, &t);
    return rc < 0 ? rc : run_write(r, t.data, t.size);
}

static int make_macro(struct run *r, const struct node *n)
{
    struct macro *m = run_alloc(r, 1, sizeof *m);
    if (!m)
        return HP_ELIMIT;
    keep_scopes(r);
    *m = (struct macro){n, r->scope};
    return run_bind(r, n->text, (struct value){.type = VALUE_MACRO, .macro = m});
}

static int run_call_block(struct run *r, const struct node *n)
{
    struct value callee, caller = {.type = VALUE_MACRO}, v;
    struct arguments args;
    struct text t = {"", 0};
    struct macro *m = run_alloc(r, 1, sizeof *m);
    if (!m)
        return HP_ELIMIT;
    keep_scopes(r);
    *m = (struct macro){n->b, r->scope};
    caller.macro = m;
    int rc = run_evaluate(r, n->a->a, &callee);
    rc = rc < 0 ? rc : run_arguments(r, n->a->children, &args);
    struct pair *named = rc < 0 ? NULL : run_alloc(r, args.n_named + 1, sizeof *named);
    if (!named)
        return rc < 0 ? rc : HP_ELIMIT;
    if (args.n_named)
        memcpy(named, args.named, args.n_named * sizeof *named);
    named[args.n_named] = (struct pair){value_text(text_of("caller")), caller};
    args.named = named;
    args.n_named++;
    r->line = n->line;
    rc = run_call(r, &callee, &args, &v);
    rc = rc < 0 ? rc : value_to_text(r, &v, &t);
    return rc < 0 ? rc : run_write(r, t.data, t.size);
}

static int run_statement(struct run *r, const struct node *n)
{
    struct value v;
    int rc;
    switch (n->kind) {
    case NODE_TEXT: return run_write(r, n->text.data, n->text.size);
    case NODE_OUTPUT: return run_output(r, n);
    case NODE_IF: return run_if(r, n);
    case NODE_FOR: return run_for(r, n);
    case NODE_SET: rc = run_evaluate(r, n->b, &v); return rc < 0 ? rc : assign(r, n->a, &v);
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK: return run_block(r, n);
    case NODE_WITH: return run_with(r, n);
    case NODE_BODY: return run_body(r, n->children);
    case NODE_MACRO: return make_macro(r, n);
    case NODE_CALL_BLOCK: return run_call_block(r, n);
    case NODE_BREAK:
    case NODE_CONTINUE: r->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE; return 0;
    default: return run_fail(r, HP_EBUG, "node %d is no statement", n->kind);
    }
}

int run_body(struct run *r, const struct node *first)
{
    if (++r->depth > TEMPLATE_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "the template is nested deeper than %d", TEMPLATE_MAX_DEPTH);
    int rc = 0;
    for (const struct node *n = first; n && rc == 0 && r->flow == FLOW_ON; n = n->next) {
        r->line = n->line;
        rc = run_tick(r, 1);
        if (rc == 0)
            rc = run_statement(r, n);
    }
    r->depth--;
    return rc;
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
    struct run r = {.arena = {.limit_bytes = VALUES_MAX_BYTES},
                    .max_steps = l->max_steps ? l->max_steps : STEPS,
                    .max_output = l->max_output_bytes ? l->max_output_bytes : OUTPUT_BYTES,
                    .now_s = l->now_s,
                    .line = 1,
                    .out = out,
                    .e = e};
    cpu_limit_start(&r.time, TIME_MS * 1000000ull);
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
