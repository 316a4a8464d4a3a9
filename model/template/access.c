#include "model/template/access.h"

#include "model/template/collections.h"
#include "model/template/names.h"
#include "model/template/tree.h"

/* An undefined value has neither attributes nor items. */
static int require_defined(struct run *r, const struct value *v)
{
    return v->type == VALUE_UNDEFINED
               ? run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)v->string.size, v->string.data)
               : 0;
}

/* What a method is called on, until it is called. */
static int bind_method(struct run *r, const struct value *self, enum method_id id,
                       struct value *out)
{
    struct method *m = run_alloc(r, 1, sizeof *m);
    if (!m)
        return HP_ELIMIT;
    *m = (struct method){*self, id};
    *out = (struct value){.type = VALUE_METHOD, .method = m};
    return 0;
}

static int loop_attribute(struct run *r, const struct loop *loop, struct text name,
                          struct value *out)
{
    int64_t at = (int64_t)loop->at, n = (int64_t)loop->items->n;
    const struct {
        const char *name;
        struct value value;
    } known[] = {{"index", value_integer(at + 1)},
                 {"index0", value_integer(at)},
                 {"revindex", value_integer(n - at)},
                 {"revindex0", value_integer(n - at - 1)},
                 {"first", value_bool(at == 0)},
                 {"last", value_bool(at == n - 1)},
                 {"length", value_integer(n)},
                 {"depth", value_integer(loop->depth)},
                 {"depth0", value_integer(loop->depth - 1)}};
    for (size_t i = 0; i < sizeof known / sizeof *known; i++) {
        if (text_is(name, known[i].name)) {
            *out = known[i].value;
            return 0;
        }
    }
    if (text_is(name, "previtem") || text_is(name, "nextitem")) {
        int64_t other = at + (text_is(name, "nextitem") ? 1 : -1);
        if (other >= 0 && other < n)
            *out = loop->items->items[other];
        return 0;
    }
    if (!text_is(name, "cycle"))
        return run_fail(r, HP_EUNSUPPORTED, "loop.%.*s is not supported", (int)name.size,
                        name.data);
    struct value turn = value_integer(at);
    return bind_method(r, &turn, METHOD_CYCLE, out);
}

static int macro_attribute(struct run *r, const struct macro *m, struct text name,
                           struct value *out)
{
    int rc = 0;
    *out = value_undefined(name);
    if (text_is(name, "name")) {
        *out = value_text(m->node->text);
    } else if (text_is(name, "arguments")) {
        rc = value_new_list(r, LIST_TUPLE, 0, out);
        for (const struct node *p = m->node->children; p && rc == 0; p = p->next)
            rc = list_push(r, out->list, value_text(p->text));
    } else if (text_is(name, "catch_varargs") || text_is(name, "catch_kwargs") ||
               text_is(name, "caller")) {
        int uses = text_is(name, "caller")         ? MACRO_CALLER
                   : text_is(name, "catch_kwargs") ? MACRO_KWARGS
                                                   : MACRO_VARARGS;
        *out = value_bool((m->node->op & uses) != 0);
    }
    return rc;
}

int run_attribute(struct run *r, const struct value *v, struct text name, struct value *out)
{
    int rc = require_defined(r, v);
    if (rc < 0)
        return rc;
    *out = value_undefined(name);
    if (v->type == VALUE_LOOP)
        return loop_attribute(r, v->loop, name, out);
    if (v->type == VALUE_MACRO)
        return macro_attribute(r, v->macro, name, out);
    if (v->type == VALUE_LIST && v->list->group &&
        (text_is(name, "grouper") || text_is(name, "list"))) {
        *out = v->list->items[text_is(name, "list")];
        return 0;
    }
    enum method_id method = method_named(v->type, name);
    if (method != METHOD_NONE)
        return bind_method(r, v, method, out);
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

int run_attribute_path(struct run *r, const struct value *in, const struct value *path,
                       struct value *out)
{
    *out = *in;
    if (path->type != VALUE_STRING)
        return run_item(r, in, path, out);
    struct text rest = path->string;
    for (;;) {
        int64_t dot = text_find(rest, (struct text){".", 1}, 0);
        struct text name = {rest.data, dot < 0 ? rest.size : (size_t)dot};
        struct value of = *out, key = value_text(name);
        bool number = name.size > 0 && name.size < 10;
        int64_t index = 0;
        for (size_t i = 0; number && i < name.size; i++) {
            number = name.data[i] >= '0' && name.data[i] <= '9';
            index = index * 10 + (name.data[i] - '0');
        }
        if (number)
            key = value_integer(index);
        int rc = run_item(r, &of, &key, out);
        if (rc < 0 || dot < 0)
            return rc;
        rest = (struct text){rest.data + dot + 1, rest.size - (size_t)dot - 1};
    }
}

/* A bound of a slice, as Python clips it. */
static int64_t slice_clip(const struct value *v, int64_t fallback, int64_t n, int64_t low,
                          int64_t high)
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
    int64_t from = slice_clip(start, by > 0 ? 0 : n - 1, n, low, high),
            to = slice_clip(stop, by > 0 ? n : -1, n, low, high);
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
