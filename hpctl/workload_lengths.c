#include "hpctl/workload_lengths.h"

#include <stdlib.h>
#include <string.h>

enum { LENGTH_MOST = 1 << 20 };

static int by_length_falling(const void *a, const void *b)
{
    int64_t x = *(const int64_t *)a, y = *(const int64_t *)b;
    return (x < y) - (x > y);
}

int workload_lengths_read(const struct json_at *model, struct workload_lengths *out, struct err *e)
{
    struct json_at lengths, buckets, mask;
    size_t n = 0;
    *out = (struct workload_lengths){.axis = -1};
    if (!json_find(model, "lengths", &lengths))
        return 0;
    int rc = json_as_object(&lengths, e);
    rc = rc < 0 ? rc : json_get(&lengths, "buckets", &buckets, e);
    rc = rc < 0 ? rc : json_as_array(&buckets, &n, e);
    if (rc == 0 && (n == 0 || n > WORKLOAD_LENGTHS))
        rc = json_fail(&buckets, e, "%zu lengths; 1 to %d are possible", n, WORKLOAD_LENGTHS);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&buckets, i);
        uint64_t v;
        rc = json_as_u64(&item, &v, e);
        if (rc == 0 && (v == 0 || v > LENGTH_MOST))
            rc = json_fail(&item, e, "%llu is no length of 1 to %d", (unsigned long long)v,
                           LENGTH_MOST);
        for (size_t k = 0; rc == 0 && k < i; k++)
            if (out->longest[k] == (int64_t)v)
                rc = json_fail(&item, e, "the length %llu is there twice", (unsigned long long)v);
        out->longest[i] = rc == 0 ? (int64_t)v : 0;
    }
    if (rc == 0 && json_find(&lengths, "mask", &mask))
        rc = json_as_string(&mask, &out->mask, e);
    if (rc < 0)
        return rc;
    qsort(out->longest, n, sizeof *out->longest, by_length_falling);
    out->n = (int)n;
    return 0;
}

static int symbol_add(struct workload_lengths *l, const char *symbol)
{
    for (int i = 0; i < l->n_symbols; i++)
        if (strcmp(l->symbols[i], symbol) == 0)
            return 0;
    if (l->n_symbols == WORKLOAD_LENGTH_SYMBOLS)
        return HP_ELIMIT;
    l->symbols[l->n_symbols++] = symbol;
    return 0;
}

int workload_lengths_note(const struct json_at *model, const struct onnx_value *v, int d,
                          struct workload_lengths *l, struct err *e)
{
    if (l->axis >= 0)
        return json_fail(model, e,
                         "\"%s\" leaves dimensions %d and %d (\"%s\") free, and one of them can be "
                         "the length: say the other's size in \"dims\"",
                         v->name, l->axis, d, v->dims[d].symbol);
    l->axis = d;
    return v->maker < 0 && symbol_add(l, v->dims[d].symbol) < 0
               ? json_fail(model, e, "the length has more than %d names", WORKLOAD_LENGTH_SYMBOLS)
               : 0;
}

static bool input_has_length(const struct onnx_value *v, const struct workload_lengths *l)
{
    for (int d = 0; d < v->n_dims; d++)
        for (int i = 0; i < l->n_symbols; i++)
            if (v->dims[d].size < 0 && strcmp(v->dims[d].symbol, l->symbols[i]) == 0)
                return true;
    return false;
}

static const struct onnx_value *mask_find(const struct onnx *o, const struct workload_lengths *l)
{
    static const char *const names[] = {"attention_mask", "input_mask", "mask"};
    for (int i = 0; i < o->n_inputs; i++) {
        const struct onnx_value *v = &o->values[o->inputs[i]];
        if (l->mask && strcmp(v->name, l->mask) == 0)
            return v;
        for (size_t k = 0; !l->mask && k < sizeof names / sizeof *names; k++)
            if (strcmp(v->name, names[k]) == 0)
                return v;
    }
    return NULL;
}

int workload_lengths_check(const struct json_at *model, const struct onnx *o,
                           struct workload_lengths *l, json_t *network, struct err *e)
{
    if (l->n == 0)
        return 0;
    if (l->n_symbols == 0)
        return json_fail(model, e, "\"lengths\", and no input leaves a dimension free");
    const struct onnx_value *mask = mask_find(o, l);
    if (!mask || !input_has_length(mask, l))
        return json_fail(model, e,
                         l->mask ? "\"%s\" is no input with the length as a dimension"
                                 : "no input is called attention_mask%s: say the name of the one "
                                   "that is 0 where a request was padded as \"mask\"",
                         l->mask ? l->mask : "");
    json_t *lengths = json_array(), *symbols = json_array();
    for (int i = 0; i < l->n; i++)
        json_array_append_new(lengths, json_integer(l->longest[i]));
    for (int i = 0; i < l->n_symbols; i++)
        json_array_append_new(symbols, json_string(l->symbols[i]));
    json_object_set_new(network, "lengths", lengths);
    json_object_set_new(network, "length_symbols", symbols);
    json_object_set_new(network, "mask", json_string(mask->name));
    return 0;
}
