#include "model/template/value.h"

#include <string.h>

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

struct dict_pair *dict_find(const struct dict *d, const struct value *key)
{
    for (size_t i = 0; i < d->n; i++)
        if (same_key(&d->pairs[i].key, key))
            return &d->pairs[i];
    return NULL;
}

const struct value *dict_get(const struct dict *d, const struct value *key)
{
    const struct dict_pair *p = dict_find(d, key);
    return p ? &p->value : NULL;
}

const struct value *dict_get_text(const struct dict *d, struct text key)
{
    struct value k = value_text(key);
    return dict_get(d, &k);
}
