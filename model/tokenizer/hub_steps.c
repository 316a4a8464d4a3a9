#include "model/tokenizer/hub_steps.h"

#include <string.h>

enum { NESTING_MAX = 4 };

int hub_steps_each(struct tokenizer *t, const struct json_at *at, const char *list, int depth,
                   hub_step_fn each, void *ctx, struct err *e)
{
    const char *type;
    int rc = json_get_string(at, "type", &type, e);
    if (rc < 0)
        return rc;
    if (strcmp(type, "Sequence") != 0)
        return each(t, at, type, ctx, e);
    struct json_at steps;
    size_t n;
    if (depth == NESTING_MAX)
        return json_fail(at, e, "is nested deeper than %d", NESTING_MAX);
    rc = json_get(at, list, &steps, e);
    if (rc == 0)
        rc = json_as_array(&steps, &n, e);
    for (size_t i = 0; rc == 0 && i < n; i++) {
        struct json_at item = json_item(&steps, i);
        rc = hub_steps_each(t, &item, list, depth + 1, each, ctx, e);
    }
    return rc;
}

int hub_step_unsupported(const struct json_at *at, const char *what, const char *type,
                         const char *known, struct err *e)
{
    char path[256];
    json_path(at, path, sizeof path);
    return err_set(e, HP_EUNSUPPORTED, "%s: %s: the %s \"%.100s\" is not supported%s%s", at->file,
                   path, what, type, known ? "; known are " : "", known ? known : "");
}
