/* Compiles and runs a template for a test. */
#ifndef HP_TESTS_UNIT_MODEL_TEMPLATE_RENDER_H
#define HP_TESTS_UNIT_MODEL_TEMPLATE_RENDER_H

#include <string.h>

#include "model/template/template.h"
#include "tests/test.h"

static inline int render(const char *source, const char *variables,
                         const struct template_limits *limits, struct buffer *out, struct err *e)
{
    struct chat_template *t = NULL;
    json_t *v = json_loads(variables, 0, NULL);
    assert_non_null(v);
    int rc = template_compile(source, strlen(source), &t, e);
    if (rc == 0)
        rc = template_render(t, v, limits, out, e);
    template_destroy(&t);
    json_decref(v);
    return rc;
}

/* Variables of every kind. */
static const char values[] = "{\"a\":1,\"b\":2.5,\"s\":\"Hello "
                             "World\",\"e\":\"\",\"n\":null,\"t\":true,\"l\":[3,1,2],\"ls\":[\"b\","
                             "\"A\",\"c\"],\"d\":{\"x\":1,\"y\":[1,2],\"k\":{\"k\""
                             ":\"v\"}},\"u\":\"žluťoučký 日本 "
                             "it's\",\"dd\":[{\"n\":\"x\",\"v\":2,\"g\":\"q\"},{\"n\":\"Y\",\"v\":"
                             "1},{\"n\":\"a\",\"v\":null}]}";

#endif
