/* Expressions, evaluated. */
#include <math.h>
#include <string.h>

#include "model/template_int.h"

static int lookup(struct run *r, struct text name, struct value *out)
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

/* An undefined value has neither attributes nor items. */
static int require_defined(struct run *r, const struct value *v)
{
    return v->type == VALUE_UNDEFINED
               ? run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v->string.size, v->string.data)
               : 0;
}

int run_attribute(struct run *r, const struct value *v, struct text name, struct value *out)
{
    int rc = require_defined(r, v);
    if (rc < 0)
        return rc;
    *out = value_undefined(name);
    if (v->type == VALUE_LOOP)
        return run_loop_attribute(r, v->loop, name, out);
    if (v->type == VALUE_MACRO)
        return run_macro_attribute(r, v->macro, name, out);
    if (v->type == VALUE_LIST && v->list->group &&
        (text_is(name, "grouper") || text_is(name, "list"))) {
        *out = v->list->items[text_is(name, "list")];
        return 0;
    }
    if (template_has_method(v->type, name)) {
        struct method *m = run_alloc(r, 1, sizeof *m);
        if (!m)
            return HP_ELIMIT;
        *m = (struct method){*v, name};
        *out = (struct value){.type = VALUE_METHOD, .method = m};
        return 0;
    }
    if (v->type == VALUE_DICT || v->type == VALUE_NAMESPACE) {
        const struct value *found = dict_get_text(v->dict, name);
        if (found)
            *out = *found;
        return run_tick(r, v->dict->n / 8);
    }
    return 0;
}

static void list_item(const struct list *l, int64_t i, struct value *out)
{
    i += i < 0 ? (int64_t)l->n : 0;
    if (i >= 0 && i < (int64_t)l->n && l->kind != LIST_LAZY)
        *out = l->items[i];
}

static int character_item(struct run *r, struct text t, int64_t i, struct value *out)
{
    int rc = run_tick_text(r, t.size);
    int64_t n = (int64_t)text_length(t);
    i += i < 0 ? n : 0;
    if (i >= 0 && i < n)
        *out = value_text(text_cut(t, (size_t)i, (size_t)i + 1));
    return rc;
}

int run_item(struct run *r, const struct value *v, const struct value *key, struct value *out)
{
    int rc = require_defined(r, v);
    if (rc < 0)
        return rc;
    bool whole = key->type == VALUE_INT || key->type == VALUE_BOOL;
    *out = value_undefined(key->type == VALUE_STRING
                               ? key->string
                               : text_of(whole ? "an item" : value_type_word(key)));
    if (v->type == VALUE_LIST && whole) {
        list_item(v->list, value_as_integer(key), out);
        return 0;
    }
    if (v->type == VALUE_STRING && whole)
        return character_item(r, v->string, value_as_integer(key), out);
    if (v->type == VALUE_DICT) {
        const struct value *found = dict_get(v->dict, key);
        rc = run_tick(r, v->dict->n / 8);
        if (rc < 0 || found) {
            *out = found ? *found : *out;
            return rc;
        }
    }
    return key->type == VALUE_STRING ? run_attribute(r, v, key->string, out) : 0;
}

/* A bound of a slice, as Python clips it. */
static int64_t clip(const struct value *v, int64_t fallback, int64_t n, int64_t low, int64_t high)
{
    if (!v || v->type == VALUE_NONE)
        return fallback;
    int64_t i = value_as_integer(v);
    if (i < 0 && __builtin_add_overflow(i, n, &i))
        i = low;
    return i < low ? low : i > high ? high : i;
}

static int cut_list(struct run *r, const struct list *l, int64_t start, int64_t stop, int64_t step,
                    struct value *out)
{
    int rc = value_new_list(r, l->kind, 0, out);
    if (rc == 0 && l->kind == LIST_RANGE) {
        out->list->step = l->step * step;
        out->list->start = l->start + start * l->step;
        out->list->stop = l->start + stop * l->step;
    }
    for (int64_t i = start; rc == 0 && (step > 0 ? i < stop : i > stop);) {
        rc = list_push(r, out->list, l->items[i]);
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return rc;
}

/* A stretch of a list: nothing changes a list once it is made, so that the items are shared. */
static int share_list(struct run *r, const struct list *l, size_t from, size_t n, struct value *out)
{
    int rc = value_new_list(r, l->kind, 0, out);
    if (rc == 0 && l->kind == LIST_RANGE) {
        out->list->step = l->step;
        out->list->start = l->start + (int64_t)from * l->step;
        out->list->stop = n < l->n - from ? out->list->start + (int64_t)n * l->step : l->stop;
    }
    if (rc < 0 || n == 0)
        return rc;
    out->list->items = l->items + from;
    out->list->n = out->list->capacity = n;
    return run_tick(r, 1);
}

int run_slice(struct run *r, const struct value *v, const struct value *start,
              const struct value *stop, const struct value *step, struct value *out)
{
    const struct value *bounds[] = {start, stop, step};
    for (int i = 0; i < 3; i++)
        if (bounds[i] && bounds[i]->type != VALUE_NONE && bounds[i]->type != VALUE_INT &&
            bounds[i]->type != VALUE_BOOL)
            return run_fail(r, HP_EINVAL, "slice indices must be integers, not %s",
                            value_type_word(bounds[i]));
    if (v->type == VALUE_UNDEFINED)
        return require_defined(r, v);
    if (v->type != VALUE_STRING && (v->type != VALUE_LIST || v->list->kind == LIST_LAZY))
        return run_fail(r, HP_EINVAL, "'%s' object is not subscriptable", value_type_word(v));
    int64_t by = step && step->type != VALUE_NONE ? value_as_integer(step) : 1;
    if (by == 0)
        return run_fail(r, HP_EINVAL, "slice step cannot be zero");
    int rc = v->type == VALUE_STRING ? run_tick_text(r, v->string.size) : 0;
    if (rc < 0)
        return rc;
    int64_t n = v->type == VALUE_STRING ? (int64_t)text_length(v->string) : (int64_t)v->list->n;
    int64_t low = by > 0 ? 0 : -1, high = by > 0 ? n : n - 1;
    int64_t from = clip(start, by > 0 ? 0 : n - 1, n, low, high),
            to = clip(stop, by > 0 ? n : -1, n, low, high);
    if (v->type == VALUE_STRING && by == 1) {
        *out = value_text(text_cut(v->string, (size_t)from, (size_t)to));
        out->safe = v->safe;
        return 0;
    }
    if (v->type == VALUE_LIST && by == 1)
        return share_list(r, v->list, (size_t)from, to > from ? (size_t)(to - from) : 0, out);
    struct list *items = NULL;
    struct value cut;
    rc = value_items(r, v, &items);
    if (rc == 0)
        rc = cut_list(r, items, from, to, by, v->type == VALUE_STRING ? &cut : out);
    if (rc < 0 || v->type != VALUE_STRING)
        return rc;
    struct buffer joined = {0};
    for (size_t i = 0; i < cut.list->n; i++)
        buffer_append(&joined, cut.list->items[i].string.data, cut.list->items[i].string.size);
    rc = value_copy_text(r, &joined, out);
    out->safe = rc == 0 && v->safe;
    buffer_free(&joined);
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
            out->named[out->n_named++] = (struct pair){value_text(a->text), v};
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

static int contains(struct run *r, const struct value *in, const struct value *what, bool *out)
{
    *out = false;
    if (in->type == VALUE_STRING) {
        if (what->type != VALUE_STRING)
            return run_fail(r, HP_EINVAL, "'in <string>' requires string as left operand, not %s",
                            value_type_word(what));
        int rc = run_tick_bytes(r, in->string.size + what->string.size);
        *out = rc == 0 && text_find(in->string, what->string, 0) >= 0;
        return rc;
    }
    if (in->type == VALUE_DICT) {
        if (!value_is_key(what))
            return run_fail(r, HP_EINVAL, "unhashable type: '%s'", value_type_word(what));
        *out = dict_get(in->dict, what) != NULL;
        return run_tick(r, in->dict->n / 8);
    }
    struct list *items = NULL;
    int rc = value_items(r, in, &items);
    for (size_t i = 0; rc == 0 && i < items->n && !*out; i++) {
        *out = value_equal(r, &items->items[i], what, 0);
        rc = run_tick(r, 1);
    }
    return rc;
}

int run_compare(struct run *r, int op, const struct value *a, const struct value *b, bool *out)
{
    if (op == OP_EQ || op == OP_NE) {
        *out = value_equal(r, a, b, 0) == (op == OP_EQ);
        return run_tick(r, 0);
    }
    if (op == OP_IN || op == OP_NOT_IN) {
        int rc = contains(r, b, a, out);
        *out = *out == (op == OP_IN);
        return rc;
    }
    int order = 0, rc = value_order(r, a, b, &order);
    *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == OP_LE ? order <= 0 : order >= 0;
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

static int evaluate(struct run *r, const struct node *n, struct value *out)
{
    struct value v;
    int rc;
    switch (n->kind) {
    case NODE_CONST: *out = n->value; return 0;
    case NODE_NAME: return lookup(r, n->text, out);
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
    if (++r->depth > TEMPLATE_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "expressions and calls are nested deeper than %d",
                        TEMPLATE_MAX_DEPTH);
    rc = evaluate(r, n, out);
    r->depth--;
    return rc;
}
