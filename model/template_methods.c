/* Methods of strings, dicts and lists by name; those of dicts and lists themselves. */
#include "model/template_methods.h"

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
    const struct value *key = argument(args, 0, "key"), *fallback = argument(args, 1, "default");
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
    const struct value *what = argument(args, 0, "value");
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
    enum value_type type;
    const char *name;
    method_fn call;
    int how;
} methods[] = {
    {VALUE_STRING, "strip", method_strip, STRIP_LEFT | STRIP_RIGHT},
    {VALUE_STRING, "lstrip", method_strip, STRIP_LEFT},
    {VALUE_STRING, "rstrip", method_strip, STRIP_RIGHT},
    {VALUE_STRING, "upper", method_case, CASE_UPPER},
    {VALUE_STRING, "lower", method_case, CASE_LOWER},
    {VALUE_STRING, "title", method_case, CASE_TITLE},
    {VALUE_STRING, "capitalize", method_case, CASE_CAPITAL},
    {VALUE_STRING, "swapcase", method_case, CASE_SWAP},
    {VALUE_STRING, "startswith", method_has_end, 0},
    {VALUE_STRING, "endswith", method_has_end, 1},
    {VALUE_STRING, "split", method_split, 0},
    {VALUE_STRING, "rsplit", method_split, 1},
    {VALUE_STRING, "splitlines", method_splitlines, 0},
    {VALUE_STRING, "partition", method_partition, 0},
    {VALUE_STRING, "rpartition", method_partition, 1},
    {VALUE_STRING, "replace", method_replace, 0},
    {VALUE_STRING, "format", method_format, 0},
    {VALUE_STRING, "find", method_find, 0},
    {VALUE_STRING, "rfind", method_find, FIND_LAST},
    {VALUE_STRING, "index", method_find, FIND_OR_FAIL},
    {VALUE_STRING, "rindex", method_find, FIND_LAST | FIND_OR_FAIL},
    {VALUE_STRING, "count", method_count, 0},
    {VALUE_STRING, "join", method_join, 0},
    {VALUE_STRING, "ljust", method_justify, JUSTIFY_LEFT},
    {VALUE_STRING, "rjust", method_justify, JUSTIFY_RIGHT},
    {VALUE_STRING, "center", method_justify, JUSTIFY_CENTER},
    {VALUE_STRING, "zfill", method_zfill, 0},
    {VALUE_STRING, "isdigit", method_is_all, IS_DIGIT},
    {VALUE_STRING, "isdecimal", method_is_all, IS_DECIMAL},
    {VALUE_STRING, "isnumeric", method_is_all, IS_NUMERIC},
    {VALUE_STRING, "isalpha", method_is_all, IS_ALPHA},
    {VALUE_STRING, "isalnum", method_is_all, IS_ALPHA | IS_DIGIT | IS_NUMERIC},
    {VALUE_STRING, "isspace", method_is_all, IS_SPACE},
    {VALUE_STRING, "isascii", method_is_all, IS_ASCII},
    {VALUE_STRING, "isupper", method_is_case, IS_UPPER},
    {VALUE_STRING, "islower", method_is_case, IS_LOWER},
    {VALUE_STRING, "removeprefix", method_remove_end, 0},
    {VALUE_STRING, "removesuffix", method_remove_end, 1},
    {VALUE_DICT, "items", dict_items, 0},
    {VALUE_DICT, "keys", dict_part, 0},
    {VALUE_DICT, "values", dict_part, 1},
    {VALUE_DICT, "get", dict_get_or, 0},
    {VALUE_LIST, "index", list_search, 0},
    {VALUE_LIST, "count", list_search, 1},
    {VALUE_INT, "cycle", loop_cycle, 0}, /* of a loop: the number of its turn stands for it */
};

enum { N_METHODS = sizeof methods / sizeof *methods };

static int method_of(enum value_type type, struct text name)
{
    for (int i = 0; i < N_METHODS; i++)
        if (methods[i].type == type && text_is(name, methods[i].name))
            return i;
    return -1;
}

bool template_has_method(enum value_type type, struct text name)
{
    return type != VALUE_INT && method_of(type, name) >= 0;
}

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
    int i = method_of(m->self.type, m->name);
    if (i < 0)
        return run_fail(r, HP_EBUG, "no method");
    struct arguments escaped = *args;
    bool safe = m->self.type == VALUE_STRING && m->self.safe,
         puts_in = methods[i].call == method_replace || methods[i].call == method_format ||
                   methods[i].call == method_join;
    int rc = safe && puts_in ? escape_arguments(r, args, &escaped) : 0;
    rc = rc < 0 ? rc : methods[i].call(r, &m->self, &escaped, methods[i].how, out);
    /* What is cut from a marked string or made of it is marked, too. */
    if (rc == 0 && safe)
        value_mark_safe(out);
    return rc;
}
