/* Values of templates: truth, equality, order, lists and dicts, as Python has them. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "model/template_int.h"

enum { VALUE_MAX_DEPTH = 200 };

struct value value_none(void)
{
    return (struct value){.type = VALUE_NONE};
}
struct value value_bool(bool b)
{
    return (struct value){.type = VALUE_BOOL, .boolean = b};
}
struct value value_integer(int64_t i)
{
    return (struct value){.type = VALUE_INT, .integer = i};
}
struct value value_real(double d)
{
    return (struct value){.type = VALUE_FLOAT, .real = d};
}
struct value value_text(struct text t)
{
    return (struct value){.type = VALUE_STRING, .string = t};
}
struct value value_undefined(struct text name)
{
    return (struct value){.type = VALUE_UNDEFINED, .string = name};
}

void value_mark_safe(struct value *v)
{
    v->safe |= v->type == VALUE_STRING;
    for (size_t i = 0; v->type == VALUE_LIST && i < v->list->n; i++)
        v->list->items[i].safe |= v->list->items[i].type == VALUE_STRING;
}

const char *value_type_word(const struct value *v)
{
    switch (v->type) {
    case VALUE_UNDEFINED: return "Undefined";
    case VALUE_NONE: return "NoneType";
    case VALUE_BOOL: return "bool";
    case VALUE_INT: return "int";
    case VALUE_FLOAT: return "float";
    case VALUE_STRING: return "str";
    case VALUE_LIST:
        return v->list->kind == LIST_TUPLE   ? "tuple"
               : v->list->kind == LIST_RANGE ? "range"
               : v->list->kind == LIST_LAZY  ? "generator"
                                             : "list";
    case VALUE_DICT: return "dict";
    case VALUE_NAMESPACE: return "Namespace";
    case VALUE_LOOP: return "LoopContext";
    default: return "function";
    }
}

bool value_true(const struct value *v)
{
    switch (v->type) {
    case VALUE_UNDEFINED:
    case VALUE_NONE: return false;
    case VALUE_BOOL: return v->boolean;
    case VALUE_INT: return v->integer != 0;
    case VALUE_FLOAT: return v->real != 0;
    case VALUE_STRING: return v->string.size > 0;
    case VALUE_LIST: return v->list->kind == LIST_LAZY || v->list->n > 0;
    case VALUE_DICT: return v->dict->n > 0;
    default: return true;
    }
}

bool value_is_number(const struct value *v)
{
    return v->type == VALUE_BOOL || v->type == VALUE_INT || v->type == VALUE_FLOAT;
}

double value_as_real(const struct value *v)
{
    return v->type == VALUE_FLOAT  ? v->real
           : v->type == VALUE_BOOL ? (double)v->boolean
                                   : (double)v->integer;
}

int64_t value_as_integer(const struct value *v)
{
    return v->type == VALUE_BOOL ? v->boolean : v->integer;
}

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
    if (depth > VALUE_MAX_DEPTH)
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
    if (!lists || depth > VALUE_MAX_DEPTH)
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

/* ---- lists and dicts
 * ---------------------------------------------------------------------------------------- */

int value_new_list(struct run *r, enum list_kind kind, size_t capacity, struct value *out)
{
    struct list *l = run_alloc(r, 1, sizeof *l);
    if (!l)
        return HP_ELIMIT;
    l->kind = kind;
    l->capacity = capacity;
    l->items = capacity ? run_alloc(r, capacity, sizeof *l->items) : NULL;
    *out = (struct value){.type = VALUE_LIST, .list = l};
    return capacity && !l->items ? HP_ELIMIT : 0;
}

int list_push(struct run *r, struct list *l, struct value v)
{
    if (l->n == l->capacity) {
        size_t capacity = l->capacity ? l->capacity * 2 : 8;
        struct value *items = run_alloc(r, capacity, sizeof *items);
        if (!items)
            return HP_ELIMIT;
        if (l->n)
            memcpy(items, l->items, l->n * sizeof *items);
        l->items = items;
        l->capacity = capacity;
    }
    l->items[l->n++] = v;
    return run_tick(r, 1);
}

int value_new_dict(struct run *r, enum value_type type, struct value *out)
{
    struct dict *d = run_alloc(r, 1, sizeof *d);
    *out = (struct value){.type = type, .dict = d};
    return d ? 0 : HP_ELIMIT;
}

/* Tuples of keys are nested as deep as a template writes them. */
static bool same_key(const struct value *a, const struct value *b)
{
    if (a->type == VALUE_LIST && b->type == VALUE_LIST) {
        for (size_t i = 0; i < a->list->n && i < b->list->n; i++)
            if (!same_key(&a->list->items[i], &b->list->items[i]))
                return false;
        return a->list->n == b->list->n;
    }
    if (a->type == VALUE_STRING && b->type == VALUE_STRING)
        return a->string.size == b->string.size &&
               memcmp(a->string.data, b->string.data, a->string.size) == 0;
    if (value_is_number(a) && value_is_number(b))
        return value_as_real(a) == value_as_real(b);
    return a->type == VALUE_NONE && b->type == VALUE_NONE;
}

bool value_is_key(const struct value *v)
{
    for (size_t i = 0; v->type == VALUE_LIST && i < v->list->n; i++)
        if (!value_is_key(&v->list->items[i]))
            return false;
    return v->type != VALUE_DICT && (v->type != VALUE_LIST || v->list->kind == LIST_TUPLE);
}

static struct pair *find_pair(const struct dict *d, const struct value *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (same_key(&d->pairs[i].key, key))
            return &d->pairs[i];
    return NULL;
}

const struct value *dict_get(const struct dict *d, const struct value *key)
{
    const struct pair *p = find_pair(d, key);
    return p ? &p->value : NULL;
}

const struct value *dict_get_text(const struct dict *d, struct text key)
{
    struct value k = value_text(key);
    return dict_get(d, &k);
}

static int dict_append(struct run *r, struct dict *d, struct value key, struct value v)
{
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : 8;
        struct pair *pairs = run_alloc(r, capacity, sizeof *pairs);
        if (!pairs)
            return HP_ELIMIT;
        if (d->n)
            memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->capacity = capacity;
    }
    d->pairs[d->n++] = (struct pair){key, v};
    return 0;
}

int dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
    bool tuple = key.type == VALUE_LIST && value_is_key(&key);
    if (key.type != VALUE_STRING && key.type != VALUE_NONE && !value_is_number(&key) && !tuple)
        return run_fail(r, HP_EINVAL, "a %s cannot be a key", value_type_word(&key));
    int rc = run_tick(r, 1 + d->n / 8);
    struct pair *p = find_pair(d, &key);
    if (rc < 0 || !p)
        return rc < 0 ? rc : dict_append(r, d, key, v);
    p->value = v;
    return 0;
}

static int characters(struct run *r, struct text t, struct value *out)
{
    int rc = value_new_list(r, LIST_PLAIN, 0, out);
    for (size_t at = 0; rc == 0 && at < t.size;) {
        uint32_t c;
        int length = utf8_decode(t.data + at, t.size - at, &c);
        size_t n = length > 0 ? (size_t)length : 1;
        rc = list_push(r, out->list, value_text((struct text){t.data + at, n}));
        at += n;
    }
    return rc;
}

int value_items(struct run *r, const struct value *v, struct list **out)
{
    struct value list;
    int rc = 0;
    if (v->type == VALUE_LIST) {
        *out = v->list;
        return 0;
    }
    if (v->type == VALUE_STRING) {
        rc = characters(r, v->string, &list);
    } else if (v->type == VALUE_DICT) {
        rc = value_new_list(r, LIST_PLAIN, v->dict->n, &list);
        for (size_t i = 0; rc == 0 && i < v->dict->n; i++)
            rc = list_push(r, list.list, v->dict->pairs[i].key);
    } else if (v->type == VALUE_UNDEFINED) {
        rc = value_new_list(r, LIST_PLAIN, 0, &list);
    } else {
        return run_fail(r, HP_EINVAL, "'%s' object is not iterable", value_type_word(v));
    }
    if (rc == 0)
        *out = list.list;
    return rc;
}

int value_pair_list(struct run *r, const struct dict *d, struct value *out)
{
    int rc = value_new_list(r, LIST_PLAIN, d->n, out);
    for (size_t i = 0; rc == 0 && i < d->n; i++) {
        struct value pair;
        rc = value_new_list(r, LIST_TUPLE, 2, &pair);
        if (rc == 0)
            rc = list_push(r, pair.list, d->pairs[i].key);
        if (rc == 0)
            rc = list_push(r, pair.list, d->pairs[i].value);
        if (rc == 0)
            rc = list_push(r, out->list, pair);
    }
    return rc;
}

int value_copy_text(struct run *r, const struct buffer *b, struct value *out)
{
    char *copy = b->failed ? NULL : run_alloc(r, b->size + 1, 1);
    if (b->failed)
        return run_fail(r, HP_ENOMEM, "out of memory");
    if (!copy)
        return HP_ELIMIT;
    if (b->size)
        memcpy(copy, b->data, b->size);
    *out = value_text((struct text){copy, b->size});
    return run_tick_bytes(r, b->size);
}

/* ---- from JSON; strings stay in the document
 * ---------------------------------------------------------------- */

static int object_from_json(struct run *r, const json_t *j, int depth, struct value *out)
{
    /* jansson reads objects through a pointer that is not const. */
    json_t *object = (json_t *)(uintptr_t)j, *item;
    const char *key;
    int rc = value_new_dict(r, VALUE_DICT, out);
    json_object_foreach(object, key, item)
    {
        struct value v;
        if (rc == 0)
            rc = value_from_json(r, item, depth + 1, &v);
        if (rc == 0)
            rc = dict_append(r, out->dict, value_text(text_of(key)), v);
        if (rc < 0)
            break;
    }
    return rc;
}

int value_from_json(struct run *r, const json_t *j, int depth, struct value *out)
{
    if (depth > VALUE_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "the template's variables are nested deeper than %d",
                        VALUE_MAX_DEPTH);
    int rc = run_tick(r, 1);
    if (rc < 0)
        return rc;
    switch (json_typeof(j)) {
    case JSON_NULL: *out = value_none(); return 0;
    case JSON_TRUE:
    case JSON_FALSE: *out = value_bool(json_is_true(j)); return 0;
    case JSON_INTEGER: *out = value_integer(json_integer_value(j)); return 0;
    case JSON_REAL: *out = value_real(json_real_value(j)); return 0;
    case JSON_STRING:
        *out = value_text((struct text){json_string_value(j), json_string_length(j)});
        return 0;
    case JSON_OBJECT: return object_from_json(r, j, depth, out);
    default: break;
    }
    rc = value_new_list(r, LIST_PLAIN, json_array_size(j), out);
    for (size_t i = 0; rc == 0 && i < json_array_size(j); i++) {
        struct value v;
        rc = value_from_json(r, json_array_get(j, i), depth + 1, &v);
        if (rc == 0)
            rc = list_push(r, out->list, v);
    }
    return rc;
}
