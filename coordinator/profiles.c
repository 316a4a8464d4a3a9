#include "coordinator/profiles.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/profile.h"
#include "coordinator/core_int.h"

enum {
    PROFILE_MAX_SECONDS = 3600,
    PROFILE_MAX_CLASSES = 256,
    PROFILE_MAX_LAYERS = 65536,
    PROFILE_SLACK_BYTES = 1 << 20
};

/* What stands beside the tables of classes. */
static bool is_beside(const char *key)
{
    static const char *const beside[] = {"layers",       "batch", "source",
                                         "useful_slice", "pace",  "corrected"};
    for (size_t i = 0; i < sizeof beside / sizeof *beside; i++)
        if (strcmp(beside[i], key) == 0)
            return true;
    return false;
}

/* ---- bytes
 * -------------------------------------------------------------------------------------------------------
 */

double profile_guessed_bytes(const struct core_layer *l, bool f32)
{
    /* Rows of the embedding are read from the file's own pages; matrices are packed into what the
     * backend computes in. */
    if (strcmp(l->class_name, "embed") == 0)
        return (double)l->param_bytes;
    return fmax((double)l->param_bytes, (double)l->elements * (f32 ? 4 : 2));
}

/* Within a factor of four of the weights, packed or as the file has them. */
static bool bytes_are_sane(const struct core_layer *l, bool f32, double bytes)
{
    double packed = (double)l->elements * (f32 ? 4 : 2),
           most = fmax((double)l->param_bytes, packed),
           least = fmin((double)l->param_bytes, packed);
    return isfinite(bytes) && bytes >= 0 && bytes <= 4 * most + PROFILE_SLACK_BYTES &&
           bytes >= least / 4 - PROFILE_SLACK_BYTES;
}

static const json_t *resident_of(const json_t *tables, int layer)
{
    return json_object_get(json_array_get(json_object_get(tables, "layers"), (size_t)layer),
                           "resident_bytes");
}

double profile_resident_bytes(const struct core_layer *l, bool f32, const json_t *tables, int layer)
{
    double bytes = json_number_value(resident_of(tables, layer));
    bool paced = json_object_get(tables, "batch") !=
                 NULL; /* of the profile's model, for which ours stands in */
    if (paced && bytes > 0 && isfinite(bytes))
        return bytes;
    return bytes > 0 && bytes_are_sane(l, f32, bytes) ? bytes : 0;
}

static int layers_check(const struct core_model *facts, bool f32, const json_t *tables,
                        struct err *e)
{
    const json_t *layers = json_object_get(tables, "layers");
    bool paced = json_object_get(tables, "batch") !=
                 NULL; /* of the model that a paced agent's profile is of */
    if (!layers)
        return 0;
    if (!json_is_array(layers) || json_array_size(layers) > PROFILE_MAX_LAYERS)
        return err_set(e, HP_EPARSE, "$.layers is not a list of at most %d layers",
                       PROFILE_MAX_LAYERS);
    if (!facts || paced)
        return 0;
    if (json_array_size(layers) != (size_t)facts->n_layers)
        return err_set(e, HP_EINVAL, "$.layers has %zu layers, the model %d",
                       json_array_size(layers), facts->n_layers);
    for (int i = 0; i < facts->n_layers; i++) {
        const json_t *bytes = resident_of(tables, i);
        if (bytes && (!json_is_number(bytes) ||
                      !bytes_are_sane(&facts->layers[i], f32, json_number_value(bytes))))
            return err_set(e, HP_EINVAL,
                           "$.layers[%d].resident_bytes is %g; weights of this layer take about %g",
                           i, json_number_value(bytes),
                           profile_guessed_bytes(&facts->layers[i], f32));
    }
    return 0;
}

/* ---- seconds
 * -------------------------------------------------------------------------------------------------------
 */

static int table_check(const struct profile_table *t, const char *name, struct err *e)
{
    for (int j = 0; j < t->n_y; j++) {
        double longest = 0;
        for (int i = 0; i < t->n_x; i++) {
            double v = t->seconds[i * t->n_y + j];
            if (v > PROFILE_MAX_SECONDS)
                return err_set(e, HP_EINVAL, "$.%s.seconds[%d][%d] is %g, more than an hour", name,
                               i, j, v);
            if (v < longest / 4)
                return err_set(e, HP_EINVAL,
                               "$.%s.seconds[%d][%d] is %g, and a shorter slice takes %g", name, i,
                               j, v, longest);
            longest = fmax(longest, v);
        }
    }
    return 0;
}

/* One class at a time, as an hp-profile/1 of one layer, so that the format is read in one place. */
static int class_check(const char *name, json_t *table, struct err *e)
{
    json_t *doc =
        json_pack("{s:s, s:[{s:s, s:i}], s:{s:{s:O}}}", "format", "hp-profile/1", "layers", "class",
                  "class", "output_bytes_per_token", 0, "latency", "kind", "class", table);
    struct json_at at = {.file = name, .value = doc};
    struct profile p = {0};
    int rc = doc ? profile_from_json(&at, &p, e) : err_set(e, HP_ENOMEM, "no memory for a profile");
    if (rc == 0) {
        rc = table_check(&p.tables[0], name, e);
        profile_free(&p);
    }
    json_decref(doc);
    return rc;
}

/* What stands beside the classes, read as the planner will read it. */
static int beside_check(const json_t *tables, struct err *e)
{
    json_t *layers = json_object_get(tables, "layers"), *batch = json_object_get(tables, "batch"),
           *useful = json_object_get(tables, "useful_slice");
    json_t *doc =
        json_pack("{s:s, s:O?, s:{}}", "format", "hp-profile/1", "layers", layers, "latency");
    if (doc && !layers)
        json_object_set_new(
            doc, "layers", json_pack("[{s:s, s:i}]", "class", "none", "output_bytes_per_token", 0));
    if (doc && batch)
        json_object_set(doc, "batch", batch);
    if (doc && useful)
        json_object_set_new(doc, "useful_slice", json_pack("{s:O}", "kind", useful));
    struct json_at at = {.file = "profile", .value = doc};
    struct profile p = {0};
    int rc = doc ? profile_from_json(&at, &p, e) : err_set(e, HP_ENOMEM, "no memory for a profile");
    if (rc == 0)
        profile_free(&p);
    json_decref(doc);
    return rc;
}

int profile_check(const struct core_model *facts, bool f32, const json_t *tables, struct err *e)
{
    const char *name;
    json_t *table;
    if (!json_is_object(tables) || json_object_size(tables) > PROFILE_MAX_CLASSES)
        return err_set(e, HP_EPARSE, "a profile is an object of at most %d classes",
                       PROFILE_MAX_CLASSES);
    json_object_foreach((json_t *)tables, name, table)
    {
        int rc = is_beside(name) ? 0 : class_check(name, table, e);
        if (rc < 0)
            return rc;
    }
    int rc = layers_check(facts, f32, tables, e);
    return rc < 0 ? rc : beside_check(tables, e);
}

/* ---- what is kept
 * ---------------------------------------------------------------------------------------------------
 */

static char *profile_key(const char *model, const char *kind, const char *compute)
{
    char *key;
    return asprintf(&key, "%.64s/%s/%s", model, kind, compute) < 0 ? NULL : key;
}

json_t *core_profile_find(const struct core *c, const char *model, const char *kind,
                          const char *compute)
{
    char *key = profile_key(model, kind, compute);
    json_t *found = NULL;
    for (size_t i = 0; key && i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].key, key) == 0)
            found = c->profiles[i].tables;
    free(key);
    return found;
}

static int profile_put(struct core *c, const char *key, json_t *tables, struct err *e)
{
    for (size_t i = 0; i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].key, key) == 0) {
            json_decref(c->profiles[i].tables);
            c->profiles[i].tables = tables;
            return 0;
        }
    char *copy = strdup(key);
    struct core_profile *p = copy ? core_array_add(&c->profiles, &c->n_profiles, sizeof *p) : NULL;
    if (!p) {
        free(copy);
        json_decref(tables);
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    }
    *p = (struct core_profile){copy, tables};
    return 0;
}

int core_profile_set(struct core *c, const char *model, const char *kind, const char *compute,
                     json_t *tables, struct err *e)
{
    char *key = profile_key(model, kind, compute);
    if (!key) {
        json_decref(tables);
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    }
    core_keep_json(c, "profile", key, json_incref(tables));
    int rc = profile_put(c, key, tables, e);
    c->profiles_version++;
    free(key);
    return rc;
}

int profiles_restore(struct core *c, const char *key, json_t *value, struct err *e)
{
    struct err why = {0};
    if (profile_check(NULL, false, value, &why) == 0)
        return profile_put(c, key, json_incref(value), e);
    log_warn("coordinator", "profile_dropped", "key=\"%s\" why=\"%s\"", key, why.text);
    core_forget(c, "profile", key);
    return 0;
}

void profiles_free(struct core *c)
{
    for (size_t i = 0; i < c->n_profiles; i++) {
        free(c->profiles[i].key);
        json_decref(c->profiles[i].tables);
    }
    free(c->profiles);
}

/* ---- for people
 * ------------------------------------------------------------------------------------------------------
 */

/* A key is MODEL/KIND/COMPUTE, and a kind may have slashes. */
static void key_split(const char *key, char model[DIGEST_HEX], char kind[64], char compute[8])
{
    const char *first = strchr(key, '/'), *last = strrchr(key, '/');
    size_t n = first ? (size_t)(first - key) : strlen(key),
           k = first && last > first ? (size_t)(last - first - 1) : 0;
    snprintf(model, DIGEST_HEX, "%.*s", (int)n, key);
    snprintf(kind, 64, "%.*s", (int)k, first ? first + 1 : "");
    core_text_set(compute, 8, last && last != first ? last + 1 : "");
}

static const char *model_name(const struct core *c, const char *id)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i]->id, id) == 0)
            return c->models[i]->name;
    for (size_t i = 0; i < c->n_members; i++)
        for (size_t k = 0; k < c->members[i]->n_models; k++)
            if (strcmp(c->members[i]->models[k].id, id) == 0)
                return c->members[i]->models[k].name;
    return "";
}

static size_t classes_of(const json_t *tables)
{
    size_t n = 0;
    const char *name;
    json_t *table;
    json_object_foreach((json_t *)tables, name, table) n += !is_beside(name);
    return n;
}

json_t *profiles_describe(const struct core *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < c->n_profiles; i++) {
        char model[DIGEST_HEX], kind[64], compute[8];
        key_split(c->profiles[i].key, model, kind, compute);
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:o, s:s, s:I, s:b}", "model", model, "name",
                            model_name(c, model), "kind", json_text(kind), "compute", compute,
                            "classes", (json_int_t)classes_of(c->profiles[i].tables), "corrected",
                            json_object_get(c->profiles[i].tables, "corrected") != NULL));
    }
    return rows;
}

int profiles_remove(struct core *c, const char *asked, const char *kind, int *removed,
                    struct err *e)
{
    *removed = 0;
    for (size_t i = c->n_profiles; i-- > 0;) {
        char model[DIGEST_HEX], own[64], compute[8];
        key_split(c->profiles[i].key, model, own, compute);
        bool meant = strcmp(model_name(c, model), asked) == 0 ||
                     (strlen(asked) >= 6 && strncmp(model, asked, strlen(asked)) == 0);
        if (!meant || (kind[0] && strcmp(kind, own) != 0))
            continue;
        core_forget(c, "profile", c->profiles[i].key);
        free(c->profiles[i].key);
        json_decref(c->profiles[i].tables);
        core_array_remove(c->profiles, &c->n_profiles, sizeof *c->profiles, i);
        c->profiles_version++;
        (*removed)++;
    }
    return *removed ? 0
                    : err_set(e, HP_ENOENT, "nothing was measured of a model \"%.100s\"%s%.60s%s",
                              asked, kind[0] ? " on \"" : "", kind, kind[0] ? "\"" : "");
}
