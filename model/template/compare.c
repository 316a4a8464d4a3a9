#include "model/template/compare.h"

#include <string.h>

#include "model/template/collections.h"
#include "model/template/tree.h"

enum { COMPARE_MAX_DEPTH = 200 };

static bool dicts_equal(struct run *r, const struct dict *a, const struct dict *b, int depth)
{
    if (a->n != b->n)
        return false;
    for (size_t i = 0; i < a->n; i++) {
        const struct value *other = dict_get(b, &a->pairs[i].key);
        if (run_tick(r, 1 + b->n / 8) < 0 || !other ||
            !value_equal(r, &a->pairs[i].value, other, depth + 1))
            return false;
    }
    return true;
}

static bool lists_equal(struct run *r, const struct list *a, const struct list *b, int depth)
{
    if (a->n != b->n || (a->kind == LIST_TUPLE) != (b->kind == LIST_TUPLE) ||
        (a->kind == LIST_RANGE) != (b->kind == LIST_RANGE))
        return false;
    for (size_t i = 0; i < a->n; i++)
        if (run_tick(r, 1) < 0 || !value_equal(r, &a->items[i], &b->items[i], depth + 1))
            return false;
    return true;
}

bool value_equal(struct run *r, const struct value *a, const struct value *b, int depth)
{
    if (depth > COMPARE_MAX_DEPTH)
        return false;
    if (value_is_number(a) && value_is_number(b)) {
        bool whole = a->type != VALUE_FLOAT && b->type != VALUE_FLOAT;
        return whole ? value_as_integer(a) == value_as_integer(b)
                     : value_as_real(a) == value_as_real(b);
    }
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return true;
    case VALUE_STRING:
        return a->string.size == b->string.size && run_tick_bytes(r, a->string.size) == 0 &&
               memcmp(a->string.data, b->string.data, a->string.size) == 0;
    case VALUE_LIST: return lists_equal(r, a->list, b->list, depth);
    case VALUE_DICT: return dicts_equal(r, a->dict, b->dict, depth);
    case VALUE_FUNCTION: return a->string.data == b->string.data;
    default: return a->dict == b->dict;
    }
}

static int order_of_texts(struct text a, struct text b)
{
    int c = memcmp(a.data, b.data, a.size < b.size ? a.size : b.size);
    return c ? c : a.size < b.size ? -1 : a.size > b.size;
}

static int order_at(struct run *r, const struct value *a, const struct value *b, int depth,
                    int *order)
{
    if (value_is_number(a) && value_is_number(b)) {
        bool whole = a->type != VALUE_FLOAT && b->type != VALUE_FLOAT;
        int64_t x = whole ? value_as_integer(a) : 0, y = whole ? value_as_integer(b) : 0;
        double p = whole ? 0 : value_as_real(a), q = whole ? 0 : value_as_real(b);
        *order = whole ? (x > y) - (x < y) : (p > q) - (p < q);
        return 0;
    }
    if (a->type == VALUE_STRING && b->type == VALUE_STRING) {
        *order = order_of_texts(a->string, b->string);
        return run_tick_bytes(r, a->string.size);
    }
    bool lists = a->type == VALUE_LIST && b->type == VALUE_LIST &&
                 (a->list->kind == LIST_TUPLE) == (b->list->kind == LIST_TUPLE);
    if (!lists || depth > COMPARE_MAX_DEPTH)
        return run_fail(r, HP_EINVAL, "%s and %s have no order", value_type_word(a),
                        value_type_word(b));
    for (size_t i = 0; i < a->list->n && i < b->list->n; i++) {
        int rc = run_tick(r, 1);
        if (rc == 0)
            rc = order_at(r, &a->list->items[i], &b->list->items[i], depth + 1, order);
        if (rc < 0 || *order)
            return rc;
    }
    *order = (a->list->n > b->list->n) - (a->list->n < b->list->n);
    return 0;
}

int value_order(struct run *r, const struct value *a, const struct value *b, int *order)
{
    return order_at(r, a, b, 0, order);
}

static int value_contains(struct run *r, const struct value *in, const struct value *what,
                          bool *out)
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
        int rc = value_contains(r, b, a, out);
        *out = *out == (op == OP_IN);
        return rc;
    }
    int order = 0, rc = value_order(r, a, b, &order);
    *out = op == '<' ? order < 0 : op == '>' ? order > 0 : op == OP_LE ? order <= 0 : order >= 0;
    return rc;
}
