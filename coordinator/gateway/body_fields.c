#include "coordinator/gateway/body_fields.h"

#include <math.h>
#include <string.h>

/* What no int64_t has; both its ends read so as a double. */
#define WHOLE_BEYOND 9223372036854775808.0

int body_field_refuse(const char **param, const char *name, struct err *e, const char *text)
{
    *param = name;
    return err_set(e, HP_EINVAL, "%s: %s", name, text);
}

int body_field_number(const json_t *root, const char *name, double min, double max, double fallback,
                      double *out, const char **param, struct err *e)
{
    const json_t *v = json_object_get(root, name);
    *out = fallback;
    if (!v || json_is_null(v))
        return 0;
    if (!json_is_number(v))
        return body_field_refuse(param, name, e, "must be a number");
    double got = json_number_value(v);
    if (!isfinite(got) || got < min || got > max) {
        *param = name;
        return err_set(e, HP_EINVAL, "%s: %.15g is not between %.15g and %.15g", name, got, min,
                       max);
    }
    *out = got;
    return 0;
}

int body_field_whole(const json_t *root, const char *name, int64_t min, int64_t max,
                     int64_t fallback, int64_t *out, const char **param, struct err *e)
{
    double v;
    int rc =
        body_field_number(root, name, (double)min, (double)max, (double)fallback, &v, param, e);
    if (rc == 0 && v != floor(v))
        return body_field_refuse(param, name, e, "must be a whole number");
    const json_t *exact = json_object_get(root, name);
    if (rc == 0 && !json_is_integer(exact) && fabs(v) >= WHOLE_BEYOND)
        return body_field_refuse(param, name, e, "is beyond 64 bits");
    *out = json_is_integer(exact) ? json_integer_value(exact) : rc == 0 ? (int64_t)v : fallback;
    return rc;
}

int body_field_flag(const json_t *root, const char *name, bool *out, const char **param,
                    struct err *e)
{
    const json_t *v = json_object_get(root, name);
    if (v && !json_is_null(v) && !json_is_boolean(v))
        return body_field_refuse(param, name, e, "must be true or false");
    *out = json_is_true(v);
    return 0;
}

int body_field_object(const json_t *v, const char *name, const char **param, struct err *e)
{
    return !v || json_is_null(v) || json_is_object(v)
               ? 0
               : body_field_refuse(param, name, e, "must be an object");
}

int body_field_text(const json_t *v, const char *name, const char **param, struct err *e)
{
    return !v || json_is_null(v) || json_is_string(v)
               ? 0
               : body_field_refuse(param, name, e, "must be a text");
}

int body_field_content(const json_t *v, const char *name, const char **param, struct err *e)
{
    const json_t *part;
    size_t i;
    bool fits = !v || json_is_null(v) || json_is_string(v) || json_is_array(v);
    json_array_foreach(v, i, part)
    {
        const char *type = json_string_value(json_object_get(part, "type"));
        bool says = json_is_string(json_object_get(part, "text"));
        fits = fits && (json_is_string(part) || (says && (!type || strcmp(type, "text") == 0)));
    }
    return fits ? 0
                : body_field_refuse(param, name, e,
                                    "must be a text, or a list of parts of type \"text\"");
}

int body_field_tokens(const json_t *root, const char *name, int64_t *out, const char **param,
                      struct err *e)
{
    const json_t *v = json_object_get(root, name);
    *out = 0;
    bool endless = json_is_integer(v) && json_integer_value(v) == -1;
    if (!v || json_is_null(v) || endless)
        return 0;
    if (json_is_number(v) && json_number_value(v) < 1)
        return body_field_refuse(
            param, name, e, "must be at least 1; leave it out to go on to the end of the context");
    return body_field_whole(root, name, 1, INT32_MAX, 0, out, param, e);
}
