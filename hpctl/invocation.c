/* The options of one command line, checked. */
#include <assert.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/units.h"
#include "hpctl/command.h"

const char *invocation_option(const struct invocation *in, const char *name)
{
    for (int i = 0; in->command->options && in->command->options[i].name; i++)
        if (strcmp(in->command->options[i].name, name) == 0)
            return in->values[i];
    assert(false && "the verb declares this option");
    return NULL;
}

int invocation_values(const struct invocation *in, const char *name, const char **out, int room)
{
    int n = 0;
    for (int i = 0; i < in->n_given; i++)
        if (strcmp(in->command->options[in->given[i].option].name, name) == 0 && n++ < room)
            out[n - 1] = in->given[i].value;
    return n;
}

bool invocation_flag(const struct invocation *in, const char *name)
{
    return invocation_option(in, name) != NULL;
}

int invocation_required(const struct invocation *in, const char *name, const char **out,
                        struct err *e)
{
    *out = invocation_option(in, name);
    if (*out)
        return 0;
    err_set(e, HP_EUSAGE, "hpctl %s needs --%s", in->command->path, name);
    return err_hint(e, "see `hpctl %s --help`", in->command->path);
}

int invocation_number(const struct invocation *in, const char *name, double fallback, double *out,
                      struct err *e)
{
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text)
        return 0;
    char *end;
    double v = strtod(text, &end);
    if (end == text || *end || !isfinite(v))
        return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a number", name, text);
    *out = v;
    return 0;
}

int invocation_duration(const struct invocation *in, const char *name, double fallback_s,
                        double *out_s, struct err *e)
{
    const char *text = invocation_option(in, name);
    *out_s = fallback_s;
    if (!text)
        return 0;
    char *end;
    double v = strtod(text, &end);
    double unit = strcmp(end, "s") == 0 ? 1 : strcmp(end, "ms") == 0 ? 1e-3 : 0;
    if (end != text && !*end && isfinite(v) && v > 0)
        return err_set(e, HP_EUSAGE, "--%s: %s lacks its unit: %sms or %ss", name, text, text,
                       text);
    if (end == text || unit == 0 || !isfinite(v) || !(v > 0))
        return err_set(e, HP_EUSAGE,
                       "--%s: \"%s\" is no time above 0 in ms or s, such as 200ms or 0.2s", name,
                       text);
    *out_s = v * unit;
    return 0;
}

int invocation_u64(const struct invocation *in, const char *name, uint64_t fallback, uint64_t *out,
                   struct err *e)
{
    double v;
    int rc = invocation_number(in, name, 0, &v, e);
    if (rc < 0)
        return rc;
    if (!invocation_option(in, name)) {
        *out = fallback;
        return 0;
    }
    if (v < 0 || v != floor(v) || v > 0x1p53)
        return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a whole number of 0 or more", name,
                       invocation_option(in, name));
    *out = (uint64_t)v;
    return 0;
}

int invocation_range(const struct invocation *in, const char *name, uint64_t fallback,
                     uint64_t least, uint64_t most, uint64_t *out, struct err *e)
{
    int rc = invocation_u64(in, name, fallback, out, e);
    if (rc < 0 || !invocation_option(in, name) || (*out >= least && *out <= most))
        return rc;
    return err_set(e, HP_EUSAGE, "--%s: %llu is out of range: %llu to %llu", name,
                   (unsigned long long)*out, (unsigned long long)least, (unsigned long long)most);
}

int invocation_above_zero(const struct invocation *in, const char *name, double fallback,
                          double most, double *out, struct err *e)
{
    int rc = invocation_number(in, name, fallback, out, e);
    if (rc < 0 || !invocation_option(in, name) || (*out > 0 && *out <= most))
        return rc;
    if (isinf(most))
        return err_set(e, HP_EUSAGE, "--%s: %g is out of range: above 0", name, *out);
    return err_set(e, HP_EUSAGE, "--%s: %g is out of range: above 0, at most %g", name, *out, most);
}

int invocation_bytes(const struct invocation *in, const char *name, uint64_t fallback,
                     uint64_t *out, struct err *e)
{
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text || units_bytes_parse(text, out))
        return 0;
    return err_set(e, HP_EUSAGE, "--%s: \"%s\" is not a size such as " UNITS_BYTES_HELP, name,
                   text);
}

int invocation_choice(const struct invocation *in, const char *name, const char *const *choices,
                      int fallback, int *out, struct err *e)
{
    const char *text = invocation_option(in, name);
    *out = fallback;
    if (!text)
        return 0;
    char list[256] = "";
    for (int i = 0; choices[i]; i++) {
        if (strcmp(choices[i], text) == 0) {
            *out = i;
            return 0;
        }
        size_t n = strlen(list);
        snprintf(list + n, sizeof list - n, "%s%s", i ? ", " : "", choices[i]);
    }
    return err_set(e, HP_EUSAGE, "--%s: \"%s\" is none of %s", name, text, list);
}

json_t *invocation_names(const struct invocation *in, const char *name)
{
    const char *text = invocation_option_or(in, name, "");
    json_t *list = json_array();
    while (*text) {
        size_t n = strcspn(text, ",");
        if (n)
            json_array_append_new(list, json_stringn(text, n));
        text += n + (text[n] == ',');
    }
    return list;
}

int invocation_print_json(const struct invocation *in, json_t *value, struct err *e)
{
    if (!value)
        return err_no_memory(e, "the answer");
    int rc = json_save(value, in->output ? in->output : "-", e);
    json_decref(value);
    return rc;
}
