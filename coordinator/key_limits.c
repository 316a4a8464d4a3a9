#include "coordinator/key_limits.h"

#include <stddef.h>
#include <string.h>

#include "coordinator/requests.h"

/* The numbers of a key, by the names that documents and hpctl have for them. */
static const struct limit_row {
    const char *name;
    size_t at;
} numbers[] = {
    {"requests_per_minute", offsetof(struct key_limits, requests_per_minute)},
    {"tokens_per_minute", offsetof(struct key_limits, tokens_per_minute)},
    {"tokens_per_day", offsetof(struct key_limits, tokens_per_day)},
    {"tokens_total", offsetof(struct key_limits, tokens_total)},
};
enum { N_NUMBERS = sizeof numbers / sizeof *numbers };

static const int64_t MOST = INT64_C(1000000000000000); /* exact as a double, and no sum overflows */

static uint64_t *number_of(struct key_limits *l, const struct limit_row *row)
{
    return (uint64_t *)(void *)((char *)l + row->at);
}

void key_limits_init(struct key_limits *l)
{
    *l = (struct key_limits){.weight = 1};
}

void key_limits_fini(struct key_limits *l)
{
    json_decref(l->models);
    l->models = NULL;
}

static int whole_read(const json_t *document, const char *name, int64_t least, int64_t most,
                      int64_t *out, struct err *e)
{
    const json_t *value = json_object_get(document, name);
    if (!value)
        return 0;
    if (!json_is_integer(value) || json_integer_value(value) < least ||
        json_integer_value(value) > most)
        return err_set(e, HP_EINVAL, "%s of an API key is a whole number from %lld to %lld", name,
                       (long long)least, (long long)most);
    *out = json_integer_value(value);
    return 0;
}

static int numbers_change(struct key_limits *l, const json_t *document, struct err *e)
{
    int rc = 0;
    for (size_t i = 0; i < N_NUMBERS && rc == 0; i++) {
        int64_t value = (int64_t)*number_of(l, &numbers[i]);
        if (json_is_null(json_object_get(document, numbers[i].name)))
            value = 0;
        else
            rc = whole_read(document, numbers[i].name, 0, MOST, &value, e);
        *number_of(l, &numbers[i]) = (uint64_t)value;
    }
    return rc;
}

static bool model_name_is_good(const json_t *name)
{
    const char *text = json_string_value(name);
    return text && *text && strlen(text) == json_string_length(name) &&
           strlen(text) < KEY_MODEL_BYTES;
}

static int models_check(const json_t *models, struct err *e)
{
    const json_t *name;
    size_t i;
    if (!json_is_array(models) || json_array_size(models) == 0 ||
        json_array_size(models) > KEY_MAX_MODELS)
        return err_set(e, HP_EINVAL, "models of an API key are 1 to %d names of deployments",
                       KEY_MAX_MODELS);
    json_array_foreach(models, i, name)
    {
        if (!model_name_is_good(name))
            return err_set(e, HP_EINVAL,
                           "models of an API key: number %zu is no name of 1 to %d bytes", i + 1,
                           KEY_MODEL_BYTES - 1);
    }
    return 0;
}

int key_limits_change(struct key_limits *l, const json_t *document, struct err *e)
{
    struct key_limits next = *l;
    int64_t weight = l->weight, priority = l->priority;
    json_t *models = json_object_get(document, "models");
    int rc = whole_read(document, "weight", 1, KEY_MAX_WEIGHT, &weight, e);
    if (rc == 0)
        rc = whole_read(document, "priority", -REQUEST_PRIORITY_MOST, REQUEST_PRIORITY_MOST,
                        &priority, e);
    if (rc == 0)
        rc = numbers_change(&next, document, e);
    if (rc == 0 && models && !json_is_null(models))
        rc = models_check(models, e);
    if (rc == 0 && models) {
        next.models = json_is_null(models) ? NULL : json_deep_copy(models);
        if (!next.models && !json_is_null(models))
            rc = err_set(e, HP_ENOMEM, "no memory for the models of an API key");
    }
    if (rc < 0)
        return rc;
    if (models)
        json_decref(l->models);
    next.weight = (uint32_t)weight;
    next.priority = (int32_t)priority;
    *l = next;
    return 0;
}

bool key_limits_write(const struct key_limits *l, json_t *out)
{
    struct key_limits own = *l;
    bool whole = json_object_set_new(out, "weight", json_integer(l->weight)) == 0 &&
                 json_object_set_new(out, "priority", json_integer(l->priority)) == 0;
    for (size_t i = 0; i < N_NUMBERS; i++) {
        uint64_t value = *number_of(&own, &numbers[i]);
        whole &= json_object_set_new(out, numbers[i].name,
                                     value ? json_integer((json_int_t)value) : json_null()) == 0;
    }
    json_t *models = l->models ? json_deep_copy(l->models) : json_null();
    return json_object_set_new(out, "models", models) == 0 && whole;
}

bool key_limits_allow(const struct key_limits *l, const char *model)
{
    const json_t *name;
    size_t i;
    json_array_foreach(l->models, i, name)
    {
        if (strcmp(json_string_value(name), model) == 0)
            return true;
    }
    return !l->models;
}
