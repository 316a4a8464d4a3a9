#include "model/template/eval.h"

#include <math.h>
#include <string.h>

#include "model/template/access.h"
#include "model/template/arithmetic.h"
#include "model/template/call.h"
#include "model/template/collections.h"
#include "model/template/compare.h"
#include "model/template/filters.h"
#include "model/template/print.h"
#include "model/template/tests.h"

static int name_lookup(struct run *r, struct text name, struct value *out)
{
    size_t seen = 0;
    for (const struct scope *s = r->scope; s; s = s->parent) {
        for (const struct binding *b = s->bindings; b; b = b->next, seen++) {
            if (b->name.size == name.size && memcmp(b->name.data, name.data, name.size) == 0) {
                *out = b->value;
                return run_tick(r, seen / 4);
            }
        }
    }
    *out = template_has_function(name) ? (struct value){.type = VALUE_FUNCTION, .string = name}
                                       : value_undefined(name);
    return run_tick(r, seen / 4);
}

static int evaluate_list(struct run *r, const struct node *n, struct value *out)
{
    int rc = value_new_list(r, n->kind == NODE_TUPLE ? LIST_TUPLE : LIST_PLAIN, 0, out);
    for (const struct node *item = n->children; item && rc == 0; item = item->next) {
        struct value v;
        rc = run_evaluate(r, item, &v);
        if (rc == 0)
            rc = list_push(r, out->list, v);
    }
    return rc;
}

static int evaluate_dict(struct run *r, const struct node *n, struct value *out)
{
    int rc = value_new_dict(r, VALUE_DICT, out);
    for (const struct node *key = n->children; key && rc == 0; key = key->next->next) {
        struct value k, v;
        rc = run_evaluate(r, key, &k);
        if (rc == 0)
            rc = run_evaluate(r, key->next, &v);
        if (rc == 0)
            rc = dict_set(r, out->dict, k, v);
    }
    return rc;
}

static int evaluate_slice(struct run *r, const struct node *n, const struct value *of,
                          struct value *out)
{
    struct value bounds[3];
    const struct node *nodes[] = {n->a, n->b, n->c};
    for (int i = 0; i < 3; i++) {
        bounds[i] = value_none();
        int rc = nodes[i] ? run_evaluate(r, nodes[i], &bounds[i]) : 0;
        if (rc < 0)
            return rc;
    }
    return run_slice(r, of, &bounds[0], &bounds[1], &bounds[2], out);
}

int run_arguments(struct run *r, const struct node *first, struct arguments *out)
{
    size_t n = 0;
    *out = (struct arguments){0};
    for (const struct node *a = first; a; a = a->next)
        n++;
    if (n == 0)
        return 0;
    out->values = run_alloc(r, n, sizeof *out->values);
    out->named = run_alloc(r, n, sizeof *out->named);
    if (!out->values || !out->named)
        return HP_ELIMIT;
    for (const struct node *a = first; a; a = a->next) {
        struct value v;
        int rc = run_evaluate(r, a->kind == NODE_KEYWORD ? a->a : a, &v);
        if (rc < 0)
            return rc;
        if (a->kind == NODE_KEYWORD)
            out->named[out->n_named++] = (struct dict_pair){value_text(a->text), v};
        else
            out->values[out->n++] = v;
    }
    return 0;
}

static int evaluate_call(struct run *r, const struct node *n, struct value *out)
{
    struct value callee;
    struct arguments args;
    int rc = run_evaluate(r, n->a, &callee);
    if (rc == 0)
        rc = run_arguments(r, n->children, &args);
    r->line = n->line;
    return rc < 0 ? rc : run_call(r, &callee, &args, out);
}

static int evaluate_filter(struct run *r, const struct node *n, struct value *out)
{
    struct value in;
    struct arguments args;
    int rc = run_evaluate(r, n->a, &in);
    if (rc == 0)
        rc = run_arguments(r, n->children, &args);
    r->line = n->line;
    return rc < 0 ? rc : run_filter(r, n->text, &in, &args, out);
}

static int evaluate_test(struct run *r, const struct node *n, struct value *out)
{
    struct value in;
    struct arguments args;
    bool is = false;
    int rc = run_evaluate(r, n->a, &in);
    if (rc == 0)
        rc = run_arguments(r, n->children, &args);
    r->line = n->line;
    if (rc == 0)
        rc = run_test(r, n->text, &in, &args, &is);
    *out = value_bool(is);
    return rc;
}

static int evaluate_comparison(struct run *r, const struct node *n, struct value *out)
{
    struct value left, right;
    int rc = run_evaluate(r, n->a, &left);
    bool is = true;
    for (const struct node *o = n->children; o && rc == 0 && is; o = o->next) {
        rc = run_evaluate(r, o->a, &right);
        r->line = n->line;
        if (rc == 0)
            rc = run_compare(r, o->op, &left, &right, &is);
        left = right;
    }
    *out = value_bool(is);
    return rc;
}

static int evaluate_concat(struct run *r, const struct node *n, struct value *out)
{
    struct buffer joined = {0};
    int rc = 0;
    for (const struct node *part = n->children; part && rc == 0; part = part->next) {
        struct value v;
        rc = run_evaluate(r, part, &v);
        if (rc == 0)
            rc = value_print(r, &v, false, 0, &joined);
    }
    if (rc == 0)
        rc = value_copy_text(r, &joined, out);
    buffer_free(&joined);
    return rc;
}

static int evaluate_logic(struct run *r, const struct node *n, struct value *out)
{
    int rc = run_evaluate(r, n->a, out);
    bool go_on = rc == 0 && value_true(out) == (n->kind == NODE_AND);
    return go_on ? run_evaluate(r, n->b, out) : rc;
}

static int evaluate_choice(struct run *r, const struct node *n, struct value *out)
{
    struct value condition;
    int rc = run_evaluate(r, n->a, &condition);
    if (rc < 0)
        return rc;
    if (value_true(&condition))
        return run_evaluate(r, n->b, out);
    *out = value_undefined(text_of("the inline if-expression without an else"));
    return n->c ? run_evaluate(r, n->c, out) : 0;
}

static int evaluate_sign(struct run *r, const struct node *n, struct value *out)
{
    struct value v;
    int rc = run_evaluate(r, n->a, &v);
    if (rc < 0)
        return rc;
    r->line = n->line;
    struct value zero = value_integer(0);
    if (!value_is_number(&v))
        return run_fail(r, HP_EINVAL, "bad operand type for a sign: '%s'", value_type_word(&v));
    if (v.type == VALUE_FLOAT) {
        *out = value_real(n->kind == NODE_NEGATE ? -v.real : v.real);
        return 0;
    }
    return run_binary(r, n->kind == NODE_NEGATE ? '-' : '+', &zero, &v, out);
}

static int evaluate_pair(struct run *r, const struct node *n, struct value *out)
{
    struct value a, b;
    int rc = run_evaluate(r, n->a, &a);
    if (rc < 0)
        return rc;
    if (n->kind == NODE_ITEM && n->b->kind == NODE_SLICE) {
        r->line = n->line;
        return evaluate_slice(r, n->b, &a, out);
    }
    rc = run_evaluate(r, n->b, &b);
    r->line = n->line;
    if (rc < 0)
        return rc;
    return n->kind == NODE_ITEM ? run_item(r, &a, &b, out) : run_binary(r, n->op, &a, &b, out);
}

static int node_evaluate(struct run *r, const struct node *n, struct value *out)
{
    struct value v;
    int rc;
    switch (n->kind) {
    case NODE_CONST: *out = n->value; return 0;
    case NODE_NAME: return name_lookup(r, n->text, out);
    case NODE_LIST:
    case NODE_TUPLE: return evaluate_list(r, n, out);
    case NODE_DICT: return evaluate_dict(r, n, out);
    case NODE_ATTR:
        rc = run_evaluate(r, n->a, &v);
        r->line = n->line;
        return rc < 0 ? rc : run_attribute(r, &v, n->text, out);
    case NODE_ITEM:
    case NODE_BINARY: return evaluate_pair(r, n, out);
    case NODE_CALL: return evaluate_call(r, n, out);
    case NODE_FILTER: return evaluate_filter(r, n, out);
    case NODE_TEST: return evaluate_test(r, n, out);
    case NODE_NOT:
        rc = run_evaluate(r, n->a, &v);
        *out = value_bool(rc == 0 && !value_true(&v));
        return rc;
    case NODE_NEGATE:
    case NODE_PLUS: return evaluate_sign(r, n, out);
    case NODE_AND:
    case NODE_OR: return evaluate_logic(r, n, out);
    case NODE_CONCAT: return evaluate_concat(r, n, out);
    case NODE_COMPARE: return evaluate_comparison(r, n, out);
    case NODE_CHOOSE: return evaluate_choice(r, n, out);
    default: return run_fail(r, HP_EBUG, "node %d is no expression", n->kind);
    }
}

int run_evaluate(struct run *r, const struct node *n, struct value *out)
{
    r->line = n->line;
    int rc = run_tick(r, 1);
    if (rc < 0)
        return rc;
    if (++r->depth > RUN_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "expressions and calls are nested deeper than %d",
                        RUN_MAX_DEPTH);
    rc = node_evaluate(r, n, out);
    r->depth--;
    return rc;
}
