#include "model/template/statements.h"

#include <string.h>

#include "model/template/call.h"
#include "model/template/collections.h"
#include "model/template/eval.h"
#include "model/template/filters.h"
#include "model/template/print.h"

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

static int targets_assign(struct run *r, const struct node *target, const struct value *v);

static int target_assign(struct run *r, const struct node *target, const struct value *v)
{
    if (target->kind == NODE_NAME)
        return run_bind(r, target->text, *v);
    if (target->kind == NODE_TUPLE)
        return targets_assign(r, target, v);
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

static int targets_assign(struct run *r, const struct node *target, const struct value *v)
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
        rc = target_assign(r, t, &items->items[i++]);
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
static int items_filter(struct run *r, const struct node *n, struct list **items)
{
    struct value kept;
    int rc = value_new_list(r, LIST_PLAIN, 0, &kept);
    for (size_t i = 0; rc == 0 && i < (*items)->n; i++) {
        struct value passes = value_bool(false);
        struct scope *saved;
        rc = run_scope_push(r, r->scope, &saved);
        if (rc < 0)
            return rc;
        rc = target_assign(r, n->a, &(*items)->items[i]);
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
        rc = target_assign(r, n->a, &loop->items->items[loop->at]);
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
        rc = items_filter(r, n, &items);
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
        return target_assign(r, n->a, &v);
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
            rc = target_assign(r, set->a, &v);
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

static int run_macro_definition(struct run *r, const struct node *n)
{
    struct macro *m = run_alloc(r, 1, sizeof *m);
    if (!m)
        return HP_ELIMIT;
    run_scopes_keep(r);
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
    run_scopes_keep(r);
    *m = (struct macro){n->b, r->scope};
    caller.macro = m;
    int rc = run_evaluate(r, n->a->a, &callee);
    rc = rc < 0 ? rc : run_arguments(r, n->a->children, &args);
    struct dict_pair *named = rc < 0 ? NULL : run_alloc(r, args.n_named + 1, sizeof *named);
    if (!named)
        return rc < 0 ? rc : HP_ELIMIT;
    if (args.n_named)
        memcpy(named, args.named, args.n_named * sizeof *named);
    named[args.n_named] = (struct dict_pair){value_text(text_of("caller")), caller};
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
    case NODE_SET: rc = run_evaluate(r, n->b, &v); return rc < 0 ? rc : target_assign(r, n->a, &v);
    case NODE_SET_BLOCK:
    case NODE_FILTER_BLOCK: return run_block(r, n);
    case NODE_WITH: return run_with(r, n);
    case NODE_BODY: return run_body(r, n->children);
    case NODE_MACRO: return run_macro_definition(r, n);
    case NODE_CALL_BLOCK: return run_call_block(r, n);
    case NODE_BREAK:
    case NODE_CONTINUE: r->flow = n->kind == NODE_BREAK ? FLOW_BREAK : FLOW_CONTINUE; return 0;
    default: return run_fail(r, HP_EBUG, "node %d is no statement", n->kind);
    }
}

int run_body(struct run *r, const struct node *first)
{
    if (++r->depth > RUN_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "the template is nested deeper than %d", RUN_MAX_DEPTH);
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
