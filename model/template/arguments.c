#include "model/template/arguments.h"

const struct value *argument_get(const struct arguments *args, size_t i, const char *name)
{
    if (i < args->n)
        return &args->values[i];
    for (size_t k = 0; k < args->n_named; k++)
        if (text_is(args->named[k].key.string, name))
            return &args->named[k].value;
    return NULL;
}

int argument_text(struct run *r, const struct arguments *args, size_t i, const char *name,
                  struct text fallback, struct text *out)
{
    const struct value *v = argument_get(args, i, name);
    *out = fallback;
    if (!v || v->type == VALUE_NONE)
        return 0;
    if (v->type != VALUE_STRING)
        return run_fail(r, HP_EINVAL, "the argument \"%s\" must be a string, not %s", name,
                        value_type_word(v));
    *out = v->string;
    return 0;
}

int argument_integer(struct run *r, const struct arguments *args, size_t i, const char *name,
                     int64_t fallback, int64_t *out)
{
    const struct value *v = argument_get(args, i, name);
    *out = fallback;
    if (!v || v->type == VALUE_NONE)
        return 0;
    if (v->type != VALUE_INT && v->type != VALUE_BOOL)
        return run_fail(r, HP_EINVAL, "the argument \"%s\" must be a whole number, not %s", name,
                        value_type_word(v));
    *out = value_as_integer(v);
    return 0;
}

bool argument_true(const struct arguments *args, size_t i, const char *name, bool fallback)
{
    const struct value *v = argument_get(args, i, name);
    return v ? value_true(v) : fallback;
}
