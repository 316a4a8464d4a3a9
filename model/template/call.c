#include "model/template/call.h"

#include <stdio.h>
#include <string.h>
#include <time.h>

#include "model/template/collections.h"
#include "model/template/eval.h"
#include "model/template/methods.h"
#include "model/template/print.h"
#include "model/template/statements.h"

enum { RANGE_MAX = 100000 };

static int call_range(struct run *r, const struct arguments *args, struct value *out)
{
    int64_t start = 0, stop = 0, step = 1;
    int rc = argument_integer(r, args, 0, "start", 0, args->n > 1 ? &start : &stop);
    if (rc == 0 && args->n > 1)
        rc = argument_integer(r, args, 1, "stop", 0, &stop);
    if (rc == 0)
        rc = argument_integer(r, args, 2, "step", 1, &step);
    if (rc < 0)
        return rc;
    if (args->n == 0 || step == 0)
        return run_fail(r, HP_EINVAL,
                        args->n ? "range() arg 3 must not be zero"
                                : "range expected at least 1 argument, got 0");
    /* Beyond the most that a range may have the list is not made at once, and refused below. */
    uint64_t span = step > 0 ? (uint64_t)stop - (uint64_t)start : (uint64_t)start - (uint64_t)stop;
    uint64_t stride = step > 0 ? (uint64_t)step : 0 - (uint64_t)step,
             count = (step > 0 ? start < stop : start > stop) ? (span - 1) / stride + 1 : 0;
    rc = value_new_list(r, LIST_RANGE, count <= RANGE_MAX ? (size_t)count : 0, out);
    if (rc == 0) {
        out->list->start = start;
        out->list->stop = stop;
        out->list->step = step;
    }
    for (int64_t i = start; rc == 0 && (step > 0 ? i < stop : i > stop);) {
        if (out->list->n == RANGE_MAX)
            return run_fail(r, HP_ELIMIT, "a range of more than %d numbers", RANGE_MAX);
        rc = list_push(r, out->list, value_integer(i));
        if (__builtin_add_overflow(i, step, &i))
            break;
    }
    return rc;
}

static int make_dict(struct run *r, enum value_type type, const struct arguments *args,
                     struct value *out)
{
    int rc = value_new_dict(r, type, out);
    const struct value *from = args->n ? &args->values[0] : NULL;
    if (from && from->type != VALUE_DICT)
        return run_fail(r, HP_EINVAL, "a dict cannot be made of %s", value_type_word(from));
    for (size_t i = 0; rc == 0 && from && i < from->dict->n; i++)
        rc = dict_set(r, out->dict, from->dict->pairs[i].key, from->dict->pairs[i].value);
    for (size_t i = 0; rc == 0 && i < args->n_named; i++)
        rc = dict_set(r, out->dict, args->named[i].key, args->named[i].value);
    return rc;
}

static int call_namespace(struct run *r, const struct arguments *args, struct value *out)
{
    return make_dict(r, VALUE_NAMESPACE, args, out);
}

static int call_dict(struct run *r, const struct arguments *args, struct value *out)
{
    return make_dict(r, VALUE_DICT, args, out);
}

static int call_raise_exception(struct run *r, const struct arguments *args, struct value *out)
{
    struct text message = {"the template refuses", 20};
    *out = value_none();
    int rc = args->n ? value_to_text(r, &args->values[0], &message) : 0;
    if (rc < 0)
        return rc;
    return err_set(r->e, HP_EINVAL, "%.*s", (int)(message.size < 700 ? message.size : 700),
                   message.data);
}

static int call_strftime_now(struct run *r, const struct arguments *args, struct value *out)
{
    struct text format;
    char pattern[128], text[512];
    int rc = argument_text(r, args, 0, "format", text_of("%Y-%m-%d"), &format);
    if (rc < 0)
        return rc;
    if (format.size >= sizeof pattern)
        return run_fail(r, HP_ELIMIT, "a date format of %zu bytes", format.size);
    memcpy(pattern, format.data, format.size);
    pattern[format.size] = 0;
    time_t now = r->now_s ? (time_t)r->now_s : time(NULL);
    struct tm parts = {0};
    localtime_r(&now, &parts);
    struct buffer b = {0};
    buffer_append(&b, text, strftime(text, sizeof text, pattern, &parts));
    rc = value_copy_text(r, &b, out);
    buffer_free(&b);
    return rc;
}

static const struct {
    const char *name;
    int (*call)(struct run *r, const struct arguments *args, struct value *out);
} functions[] = {
    {"range", call_range},
    {"namespace", call_namespace},
    {"dict", call_dict},
    {"raise_exception", call_raise_exception},
    {"strftime_now", call_strftime_now},
};

bool template_has_function(struct text name)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (text_is(name, functions[i].name))
            return true;
    return false;
}

static int run_function(struct run *r, struct text name, const struct arguments *args,
                        struct value *out)
{
    for (size_t i = 0; i < sizeof functions / sizeof *functions; i++)
        if (text_is(name, functions[i].name))
            return functions[i].call(r, args, out);
    return run_fail(r, HP_EBUG, "no function %.*s", (int)name.size, name.data);
}

static bool is_parameter(const struct macro *m, struct text name)
{
    for (const struct node *p = m->node->children; p; p = p->next)
        if (p->text.size == name.size && memcmp(p->text.data, name.data, name.size) == 0)
            return true;
    return false;
}

/* Arguments beyond the parameters, where the macro's body speaks of them; then `caller`. */
static int bind_others(struct run *r, const struct macro *m, const struct arguments *args,
                       size_t n_parameters)
{
    int uses = m->node->op;
    struct value extra, names, caller = value_undefined(text_of("caller"));
    bool refused = args->n > n_parameters && !(uses & MACRO_VARARGS);
    int rc = value_new_list(r, LIST_TUPLE, 0, &extra);
    rc = rc < 0 ? rc : value_new_dict(r, VALUE_DICT, &names);
    for (size_t i = n_parameters; rc == 0 && i < args->n; i++)
        rc = list_push(r, extra.list, args->values[i]);
    for (size_t k = 0; rc == 0 && k < args->n_named; k++) {
        struct text name = args->named[k].key.string;
        if (is_parameter(m, name))
            continue;
        if (text_is(name, "caller") && uses & MACRO_CALLER)
            caller = args->named[k].value;
        else if (uses & MACRO_KWARGS && !text_is(name, "caller"))
            rc = dict_set(r, names.dict, args->named[k].key, args->named[k].value);
        else
            refused = true;
    }
    if (rc == 0 && refused)
        rc = run_fail(r, HP_EINVAL, "the macro %.*s takes no such argument",
                      (int)m->node->text.size, m->node->text.data);
    if (rc == 0 && uses & MACRO_VARARGS)
        rc = run_bind(r, text_of("varargs"), extra);
    if (rc == 0 && uses & MACRO_KWARGS)
        rc = run_bind(r, text_of("kwargs"), names);
    if (rc == 0 && uses & MACRO_CALLER && !is_parameter(m, text_of("caller")))
        rc = run_bind(r, text_of("caller"), caller);
    return rc;
}

static int bind_parameters(struct run *r, const struct macro *m, const struct arguments *args)
{
    size_t i = 0;
    for (const struct node *p = m->node->children; p; p = p->next, i++) {
        struct value v = value_undefined(p->text);
        const struct value *given = i < args->n ? &args->values[i] : NULL;
        for (size_t k = 0; k < args->n_named && !given; k++) {
            struct text name = args->named[k].key.string;
            if (name.size == p->text.size && memcmp(name.data, p->text.data, name.size) == 0) {
                given = &args->named[k].value;
            }
        }
        int rc = given ? 0 : p->a ? run_evaluate(r, p->a, &v) : 0;
        if (rc == 0)
            rc = run_bind(r, p->text, given ? *given : v);
        if (rc < 0)
            return rc;
    }
    return bind_others(r, m, args, i);
}

static int run_macro(struct run *r, const struct macro *m, const struct arguments *args,
                     struct value *out)
{
    struct scope *saved;
    int rc = run_tick(r, 1);
    if (rc == 0)
        rc = run_scope_push(r, m->scope, &saved);
    if (rc < 0)
        return rc;
    int loops = r->loop_depth;
    r->loop_depth = 0;
    rc = bind_parameters(r, m, args);
    if (rc == 0)
        rc = run_capture(r, m->node->others, out);
    r->loop_depth = loops;
    run_scope_pop(r, saved);
    return rc;
}

int run_call(struct run *r, const struct value *callee, const struct arguments *args,
             struct value *out)
{
    switch (callee->type) {
    case VALUE_FUNCTION: return run_function(r, callee->string, args, out);
    case VALUE_METHOD: return run_method(r, callee->method, args, out);
    case VALUE_MACRO: return run_macro(r, callee->macro, args, out);
    case VALUE_UNDEFINED:
        return run_fail(r, HP_EINVAL, "'%.*s' is undefined", (int)callee->string.size,
                        callee->string.data);
    default: return run_fail(r, HP_EINVAL, "'%s' object is not callable", value_type_word(callee));
    }
}
