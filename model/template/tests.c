#include "model/template/tests.h"

#include <string.h>

#include "model/template/arithmetic.h"
#include "model/template/compare.h"
#include "model/template/filters.h"
#include "model/template/methods.h"
#include "model/template/print.h"
#include "model/template/tree.h"

/* Whether the rest of a division by `by`, or by the argument where that is 0, is `wanted`. */
static int test_division(struct run *r, const struct value *in, const struct arguments *args,
                         int64_t by, int64_t wanted, bool *out)
{
    const struct value *given = argument_get(args, 0, "num");
    struct value divisor = by      ? value_integer(by)
                           : given ? *given
                                   : value_none(),
                 rest, rest_wanted = value_integer(wanted);
    *out = false;
    int rc = run_binary(r, '%', in, &divisor, &rest);
    if (rc == 0)
        *out = value_equal(r, &rest, &rest_wanted, 0);
    return rc;
}

static int test_comparison(struct run *r, int op, const struct value *in,
                           const struct arguments *args, bool *out)
{
    const struct value *other = argument_get(args, 0, "other");
    return other ? run_compare(r, op, in, other, out)
                 : run_fail(r, HP_EINVAL, "a test needs an argument");
}

/* upper, lower: of the value as a string. */
static int test_case(struct run *r, const struct value *in, enum method_id id, bool *out)
{
    struct method m = {.id = id};
    struct text t = {"", 0};
    struct value is = value_bool(false);
    int rc = value_to_text(r, in, &t);
    m.self = value_text(t);
    if (rc == 0)
        rc = run_method(r, &m, &(struct arguments){0}, &is);
    *out = value_true(&is);
    return rc;
}

enum test {
    T_DEFINED,
    T_UNDEFINED,
    T_NONE,
    T_STRING,
    T_MAPPING,
    T_ITERABLE,
    T_SEQUENCE,
    T_NUMBER,
    T_INTEGER,
    T_FLOAT,
    T_BOOLEAN,
    T_TRUE,
    T_FALSE,
    T_CALLABLE,
    T_EVEN,
    T_ODD,
    T_DIVISIBLE,
    T_COMPARED,
    T_SAME,
    T_UPPER,
    T_LOWER,
    T_FILTER,
    T_TEST,
    T_ESCAPED
};

static const struct {
    const char *name;
    enum test test;
    int op;
} tests[] = {
    {"defined", T_DEFINED, 0},
    {"undefined", T_UNDEFINED, 0},
    {"none", T_NONE, 0},
    {"string", T_STRING, 0},
    {"mapping", T_MAPPING, 0},
    {"iterable", T_ITERABLE, 0},
    {"sequence", T_SEQUENCE, 0},
    {"number", T_NUMBER, 0},
    {"integer", T_INTEGER, 0},
    {"float", T_FLOAT, 0},
    {"boolean", T_BOOLEAN, 0},
    {"true", T_TRUE, 0},
    {"false", T_FALSE, 0},
    {"callable", T_CALLABLE, 0},
    {"even", T_EVEN, 0},
    {"odd", T_ODD, 0},
    {"divisibleby", T_DIVISIBLE, 0},
    {"equalto", T_COMPARED, OP_EQ},
    {"eq", T_COMPARED, OP_EQ},
    {"==", T_COMPARED, OP_EQ},
    {"ne", T_COMPARED, OP_NE},
    {"!=", T_COMPARED, OP_NE},
    {"lt", T_COMPARED, '<'},
    {"lessthan", T_COMPARED, '<'},
    {"<", T_COMPARED, '<'},
    {"gt", T_COMPARED, '>'},
    {"greaterthan", T_COMPARED, '>'},
    {">", T_COMPARED, '>'},
    {"le", T_COMPARED, OP_LE},
    {"<=", T_COMPARED, OP_LE},
    {"ge", T_COMPARED, OP_GE},
    {">=", T_COMPARED, OP_GE},
    {"in", T_COMPARED, OP_IN},
    {"sameas", T_SAME, 0},
    {"upper", T_UPPER, 0},
    {"lower", T_LOWER, 0},
    {"filter", T_FILTER, 0},
    {"test", T_TEST, 0},
    {"escaped", T_ESCAPED, 0},
};

enum { N_TESTS = sizeof tests / sizeof *tests };

static int test_find(struct text name)
{
    for (int i = 0; i < N_TESTS; i++)
        if (text_is(name, tests[i].name))
            return i;
    return -1;
}

static bool test_is_known(struct text name)
{
    return test_find(name) >= 0;
}

static bool is_kind(enum test test, const struct value *v)
{
    enum value_type t = v->type;
    switch (test) {
    case T_DEFINED: return t != VALUE_UNDEFINED;
    case T_UNDEFINED: return t == VALUE_UNDEFINED;
    case T_NONE: return t == VALUE_NONE;
    case T_STRING: return t == VALUE_STRING;
    case T_MAPPING: return t == VALUE_DICT;
    /* Python finds an undefined value to be an empty sequence. */
    case T_ITERABLE:
        return t == VALUE_STRING || t == VALUE_LIST || t == VALUE_DICT || t == VALUE_UNDEFINED;
    case T_SEQUENCE:
        return t == VALUE_STRING || (t == VALUE_LIST && v->list->kind != LIST_LAZY) ||
               t == VALUE_DICT || t == VALUE_UNDEFINED;
    case T_NUMBER: return value_is_number(v);
    case T_INTEGER: return t == VALUE_INT;
    case T_FLOAT: return t == VALUE_FLOAT;
    case T_BOOLEAN: return t == VALUE_BOOL;
    case T_TRUE: return t == VALUE_BOOL && v->boolean;
    case T_FALSE: return t == VALUE_BOOL && !v->boolean;
    case T_CALLABLE: return t == VALUE_FUNCTION || t == VALUE_METHOD || t == VALUE_MACRO;
    case T_FILTER: return t == VALUE_STRING && template_has_filter(v->string);
    case T_ESCAPED: return t == VALUE_STRING && v->safe;
    case T_TEST: return t == VALUE_STRING && test_is_known(v->string);
    default: return false;
    }
}

static bool same_object(const struct value *a, const struct value *b)
{
    if (a->type != b->type)
        return false;
    switch (a->type) {
    case VALUE_NONE: return true;
    case VALUE_BOOL: return a->boolean == b->boolean;
    case VALUE_INT: return a->integer == b->integer;
    case VALUE_STRING:
        return a->string.size == b->string.size &&
               memcmp(a->string.data, b->string.data, a->string.size) == 0;
    case VALUE_LIST: return a->list == b->list;
    case VALUE_DICT:
    case VALUE_NAMESPACE: return a->dict == b->dict;
    default: return false;
    }
}

int run_test(struct run *r, struct text name, const struct value *in, const struct arguments *args,
             bool *out)
{
    int i = test_find(name);
    if (i < 0)
        return run_fail(r, HP_EUNSUPPORTED, "the test \"%.*s\" is not known", (int)name.size,
                        name.data);
    const struct value *other = argument_get(args, 0, "other");
    switch (tests[i].test) {
    case T_EVEN: return test_division(r, in, args, 2, 0, out);
    case T_ODD: return test_division(r, in, args, 2, 1, out);
    case T_DIVISIBLE: return test_division(r, in, args, 0, 0, out);
    case T_COMPARED: return test_comparison(r, tests[i].op, in, args, out);
    case T_UPPER: return test_case(r, in, METHOD_ISUPPER, out);
    case T_LOWER: return test_case(r, in, METHOD_ISLOWER, out);
    case T_SAME: *out = other && same_object(in, other); return 0;
    default:
        *out = is_kind(tests[i].test, in);
        return in->type == VALUE_STRING ? run_tick_bytes(r, in->string.size) : 0;
    }
}
