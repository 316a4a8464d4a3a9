#include "model/template/methods.h"

#include "model/template/collections.h"
#include "model/template/compare.h"
#include "model/template/print.h"

static int dict_items(struct run *r, const struct value *self, const struct arguments *args,
                      int how, struct value *out)
{
    (void)args, (void)how;
    return value_pair_list(r, self->dict, out);
}

static int dict_part(struct run *r, const struct value *self, const struct arguments *args,
                     int values, struct value *out)
{
    (void)args;
    int rc = value_new_list(r, LIST_PLAIN, self->dict->n, out);
    for (size_t i = 0; rc == 0 && i < self->dict->n; i++)
        rc =
            list_push(r, out->list, values ? self->dict->pairs[i].value : self->dict->pairs[i].key);
    return rc;
}

static int dict_get_or(struct run *r, const struct value *self, const struct arguments *args,
                       int how, struct value *out)
{
    (void)how;
    const struct value *key = argument_get(args, 0, "key"),
                       *fallback = argument_get(args, 1, "default");
    if (key && !value_is_key(key))
        return run_fail(r, HP_EINVAL, "unhashable type: '%s'", value_type_word(key));
    const struct value *found = key ? dict_get(self->dict, key) : NULL;
    *out = found ? *found : fallback ? *fallback : value_none();
    return key ? run_tick(r, 1 + self->dict->n / 8)
               : run_fail(r, HP_EINVAL, "get expected at least 1 argument, got 0");
}

/* index, count */
static int list_search(struct run *r, const struct value *self, const struct arguments *args,
                       int counting, struct value *out)
{
    const struct value *what = argument_get(args, 0, "value");
    int64_t n = 0;
    for (size_t i = 0; what && i < self->list->n; i++) {
        int rc = run_tick(r, 1);
        if (rc < 0)
            return rc;
        if (!value_equal(r, &self->list->items[i], what, 0))
            continue;
        n++;
        if (!counting) {
            *out = value_integer((int64_t)i);
            return 0;
        }
    }
    *out = value_integer(n);
    return counting ? 0 : run_fail(r, HP_EINVAL, "a value that index looks for is not in the list");
}

static int loop_cycle(struct run *r, const struct value *self, const struct arguments *args,
                      int how, struct value *out)
{
    (void)how;
    if (args->n == 0)
        return run_fail(r, HP_EINVAL, "no items for cycling given");
    *out = args->values[(size_t)self->integer % args->n];
    return 0;
}

static const struct {
    method_fn call;
    int how;
} methods[METHODS] = {
    [METHOD_STRIP] = {method_strip, STRIP_LEFT | STRIP_RIGHT},
    [METHOD_LSTRIP] = {method_strip, STRIP_LEFT},
    [METHOD_RSTRIP] = {method_strip, STRIP_RIGHT},
    [METHOD_UPPER] = {method_case, CASE_UPPER},
    [METHOD_LOWER] = {method_case, CASE_LOWER},
    [METHOD_TITLE] = {method_case, CASE_TITLE},
    [METHOD_CAPITALIZE] = {method_case, CASE_CAPITAL},
    [METHOD_SWAPCASE] = {method_case, CASE_SWAP},
    [METHOD_STARTSWITH] = {method_has_end, 0},
    [METHOD_ENDSWITH] = {method_has_end, 1},
    [METHOD_SPLIT] = {method_split, 0},
    [METHOD_RSPLIT] = {method_split, 1},
    [METHOD_SPLITLINES] = {method_splitlines, 0},
    [METHOD_PARTITION] = {method_partition, 0},
    [METHOD_RPARTITION] = {method_partition, 1},
    [METHOD_REPLACE] = {method_replace, 0},
    [METHOD_FORMAT] = {method_format, 0},
    [METHOD_FIND] = {method_find, 0},
    [METHOD_RFIND] = {method_find, FIND_LAST},
    [METHOD_INDEX] = {method_find, FIND_OR_FAIL},
    [METHOD_RINDEX] = {method_find, FIND_LAST | FIND_OR_FAIL},
    [METHOD_COUNT] = {method_count, 0},
    [METHOD_JOIN] = {method_join, 0},
    [METHOD_LJUST] = {method_justify, JUSTIFY_LEFT},
    [METHOD_RJUST] = {method_justify, JUSTIFY_RIGHT},
    [METHOD_CENTER] = {method_justify, JUSTIFY_CENTER},
    [METHOD_ZFILL] = {method_zfill, 0},
    [METHOD_ISDIGIT] = {method_is_all, IS_DIGIT},
    [METHOD_ISDECIMAL] = {method_is_all, IS_DECIMAL},
    [METHOD_ISNUMERIC] = {method_is_all, IS_NUMERIC},
    [METHOD_ISALPHA] = {method_is_all, IS_ALPHA},
    [METHOD_ISALNUM] = {method_is_all, IS_ALPHA | IS_DIGIT | IS_NUMERIC},
    [METHOD_ISSPACE] = {method_is_all, IS_SPACE},
    [METHOD_ISASCII] = {method_is_all, IS_ASCII},
    [METHOD_ISUPPER] = {method_is_case, IS_UPPER},
    [METHOD_ISLOWER] = {method_is_case, IS_LOWER},
    [METHOD_REMOVEPREFIX] = {method_remove_end, 0},
    [METHOD_REMOVESUFFIX] = {method_remove_end, 1},
    [METHOD_ITEMS] = {dict_items, 0},
    [METHOD_KEYS] = {dict_part, 0},
    [METHOD_VALUES] = {dict_part, 1},
    [METHOD_GET] = {dict_get_or, 0},
    [METHOD_LIST_INDEX] = {list_search, 0},
    [METHOD_LIST_COUNT] = {list_search, 1},
    [METHOD_CYCLE] = {loop_cycle, 0},
};

static int escape_value(struct run *r, const struct value *v, struct value *out)
{
    struct list *items = NULL;
    *out = *v;
    if (v->type == VALUE_LIST) {
        int rc = value_items(r, v, &items);
        rc = rc < 0 ? rc : value_new_list(r, LIST_PLAIN, items->n, out);
        for (size_t i = 0; rc == 0 && i < items->n; i++) {
            struct value item = items->items[i];
            rc = item.type == VALUE_STRING ? escape_value(r, &items->items[i], &item) : 0;
            rc = rc < 0 ? rc : list_push(r, out->list, item);
        }
        return rc;
    }
    if (v->type != VALUE_STRING || v->safe)
        return 0;
    struct buffer b = {0};
    value_print_escaped(v->string, &b);
    int rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

/* What is put into a marked string is escaped first. */
static int escape_arguments(struct run *r, const struct arguments *args, struct arguments *out)
{
    int rc = 0;
    out->values = run_alloc(r, args->n + 1, sizeof *out->values);
    out->named = run_alloc(r, args->n_named + 1, sizeof *out->named);
    if (!out->values || !out->named)
        return HP_ELIMIT;
    for (size_t i = 0; rc == 0 && i < args->n; i++)
        rc = escape_value(r, &args->values[i], &out->values[i]);
    for (size_t i = 0; rc == 0 && i < args->n_named; i++) {
        out->named[i].key = args->named[i].key;
        rc = escape_value(r, &args->named[i].value, &out->named[i].value);
    }
    return rc;
}

int run_method(struct run *r, const struct method *m, const struct arguments *args,
               struct value *out)
{
    struct arguments escaped = *args;
    bool safe = m->self.type == VALUE_STRING && m->self.safe,
         puts_in = methods[m->id].call == method_replace || methods[m->id].call == method_format ||
                   methods[m->id].call == method_join;
    int rc = safe && puts_in ? escape_arguments(r, args, &escaped) : 0;
    rc = rc < 0 ? rc : methods[m->id].call(r, &m->self, &escaped, methods[m->id].how, out);
    /* What is cut from a marked string or made of it is marked, too. */
    if (rc == 0 && safe)
        value_mark_safe(out);
    return rc;
}
