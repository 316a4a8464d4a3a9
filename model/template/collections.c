#include "model/template/collections.h"

#include <string.h>

#include "common/utf8.h"

enum { JSON_MAX_DEPTH = 200 };

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

static int dict_append(struct run *r, struct dict *d, struct value key, struct value v)
{
    if (d->n == d->capacity) {
        size_t capacity = d->capacity ? d->capacity * 2 : 8;
        struct dict_pair *pairs = run_alloc(r, capacity, sizeof *pairs);
        if (!pairs)
            return HP_ELIMIT;
        if (d->n)
            memcpy(pairs, d->pairs, d->n * sizeof *pairs);
        d->pairs = pairs;
        d->capacity = capacity;
    }
    d->pairs[d->n++] = (struct dict_pair){key, v};
    return 0;
}

int dict_set(struct run *r, struct dict *d, struct value key, struct value v)
{
    bool tuple = key.type == VALUE_LIST && value_is_key(&key);
    if (key.type != VALUE_STRING && key.type != VALUE_NONE && !value_is_number(&key) && !tuple)
        return run_fail(r, HP_EINVAL, "a %s cannot be a key", value_type_word(&key));
    int rc = run_tick(r, 1 + d->n / 8);
    struct dict_pair *p = dict_find(d, &key);
    if (rc < 0 || !p)
        return rc < 0 ? rc : dict_append(r, d, key, v);
    p->value = v;
    return 0;
}

static int text_characters(struct run *r, struct text t, struct value *out)
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
        rc = text_characters(r, v->string, &list);
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

int value_of_buffer(struct run *r, struct buffer *b, int rc, struct value *out)
{
    if (rc == 0)
        rc = value_copy_text(r, b, out);
    buffer_free(b);
    return rc;
}

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
    if (depth > JSON_MAX_DEPTH)
        return run_fail(r, HP_ELIMIT, "the template's variables are nested deeper than %d",
                        JSON_MAX_DEPTH);
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
