#include "coordinator/pools/pool_profiles.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"
#include "common/json.h"
#include "common/log.h"
#include "common/profile.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"

enum { POINT_MAX_SECONDS = 3600 };

/* ---- what can be believed ---- */

static int times_check(const struct profile *p, struct err *e)
{
    for (int k = 0; k < p->n_classes; k++) {
        const struct profile_table *t = profile_table_of(p, 0, k);
        for (int i = 0; i < t->n_x * t->n_y; i++)
            if (!isnan(t->seconds[i]) && t->seconds[i] > POINT_MAX_SECONDS)
                return err_set(e, HP_EINVAL, "layer \"%.60s\" takes %g s, more than an hour",
                               p->classes[k], t->seconds[i]);
    }
    return 0;
}

int pool_profile_check(json_t *profile, const char *kind, struct err *e)
{
    struct profile p = {0};
    struct json_at at = {.file = "the profile", .value = profile};
    int rc = profile_from_json(&at, &p, e);
    if (rc < 0)
        return rc;
    if (p.shape != PROFILE_FIXED || p.n_kinds != 1 || strcmp(p.kinds[0], kind) != 0)
        rc = err_set(e, HP_EINVAL, "it is none of a network on a %s alone", kind);
    else if (p.n_layers > SPLIT_MAX_LAYERS)
        rc = err_set(e, HP_ELIMIT, "it has %d layers; at most %d are taken", p.n_layers,
                     SPLIT_MAX_LAYERS);
    rc = rc < 0 ? rc : times_check(&p, e);
    profile_free(&p);
    return rc;
}

/* ---- kept ---- */

/* Equal sizes give equal texts. NULL: no memory. */
static char *dims_text(const json_t *dims)
{
    return json_is_object(dims) ? json_dumps(dims, JSON_COMPACT | JSON_SORT_KEYS) : strdup("{}");
}

static struct pool_kept_profile *kept_find(const struct pool_service *s, const char *model,
                                           const char *dims, const char *kind)
{
    for (size_t i = 0; s && i < s->n_profiles; i++) {
        struct pool_kept_profile *p = &s->profiles[i];
        if (strcmp(p->model, model) == 0 && strcmp(p->kind, kind) == 0 &&
            strcmp(p->dims, dims) == 0)
            return p;
    }
    return NULL;
}

static char *key_make(const char *model, const char *dims, const char *kind)
{
    struct buffer text = {0};
    char hex[DIGEST_HEX];
    buffer_printf(&text, "%s\n%s\n%s", model, dims, kind);
    struct digest d = digest_of(text.data, text.size);
    digest_hex(&d, hex);
    char *key = text.failed ? NULL : strdup(hex);
    buffer_free(&text);
    return key;
}

static void kept_free(struct pool_kept_profile *p)
{
    free(p->key);
    free(p->dims);
    json_decref(p->record);
}

/* Takes the record. NULL: no memory. */
static struct pool_kept_profile *kept_put(struct coord *c, const struct pool_profile_of *of,
                                          const char *kind, json_t *record)
{
    struct pool_service *s = pool_service_of(c);
    char *dims = dims_text(of->dims), *key = dims ? key_make(of->model, dims, kind) : NULL;
    struct pool_kept_profile *p = s && key ? kept_find(s, of->model, dims, kind) : NULL;
    if (p) {
        json_decref(p->record);
        p->record = record;
        free(dims);
        free(key);
        return p;
    }
    p = s && key ? vector_add(s->profiles, s->n_profiles, s->room_profiles) : NULL;
    if (!p) {
        free(dims);
        free(key);
        json_decref(record);
        return NULL;
    }
    *p = (struct pool_kept_profile){.key = key, .dims = dims, .record = record};
    utf8_copy(p->model, sizeof p->model, of->model);
    utf8_copy(p->kind, sizeof p->kind, kind);
    return p;
}

int pool_profiles_set(struct coord *c, const struct pool_profile_of *of, const char *name,
                      const char *kind, json_t *profile, struct err *e)
{
    json_t *record = NULL;
    if (profile) {
        record = json_pack("{s:s, s:s, s:s, s:b, s:O}", "model", of->model, "name", name, "kind",
                           kind, "all_cores", 1, "profile", profile);
        if (!record)
            return err_no_memory(e, "a profile");
        if (json_is_object(of->dims))
            json_object_set_new(record, "dims", json_deep_copy(of->dims));
    }
    struct pool_kept_profile *p = kept_put(c, of, kind, record);
    if (!p)
        return err_no_memory(e, "a profile");
    if (record)
        effects_store_json(c, "network_profile", p->key, json_incref(record));
    else
        effects_forget(c, "network_profile", p->key);
    return 0;
}

bool pool_profiles_find(const struct coord *c, const struct pool_profile_of *of, const char *kind,
                        const json_t **record)
{
    char *dims = dims_text(of->dims);
    const struct pool_kept_profile *p = dims ? kept_find(c->pools, of->model, dims, kind) : NULL;
    free(dims);
    *record = p && p->record ? json_object_get(p->record, "profile") : NULL;
    return p != NULL;
}

int pool_profiles_restore(struct coord *c, const char *key, json_t *value, struct err *e)
{
    struct json_at at = {.file = key, .value = value}, profile;
    const char *model, *kind;
    struct err why = {0};
    int rc = json_get_string(&at, "model", &model, &why);
    rc = rc < 0 ? rc : json_get_string(&at, "kind", &kind, &why);
    rc = rc < 0 ? rc : json_get(&at, "profile", &profile, &why);
    rc = rc < 0 ? rc : pool_profile_check(profile.value, kind, &why);
    if (rc == 0 && !json_is_true(json_object_get(value, "all_cores")))
        rc = err_set(&why, HP_ESTALE, "one core was measured, and shares compute with all");
    if (rc == HP_ENOMEM)
        return err_no_memory(e, "a profile");
    if (rc < 0) {
        log_warn("coordinator", "profile_dropped", "key=\"%s\" why=\"%s\"", key, why.text);
        effects_forget(c, "network_profile", key);
        return 0;
    }
    const struct pool_profile_of of = {model, json_object_get(value, "dims")};
    return kept_put(c, &of, kind, json_incref(value)) ? 0 : err_no_memory(e, "a profile");
}

void pool_profiles_free(struct pool_service *s)
{
    for (size_t i = 0; i < s->n_profiles; i++)
        kept_free(&s->profiles[i]);
    free(s->profiles);
}

/* ---- put together ---- */

static const char *layer_name(const json_t *profile, size_t i)
{
    const json_t *layer = json_array_get(json_object_get(profile, "layers"), i);
    const char *name = json_string_value(json_object_get(layer, "class"));
    return name ? name : "";
}

static size_t layer_count(const json_t *profile)
{
    return json_array_size(json_object_get(profile, "layers"));
}

static int layers_compare(const json_t *a, const json_t *b, struct err *e)
{
    size_t n = layer_count(a), other = layer_count(b), i = 0;
    while (i < n && i < other && strcmp(layer_name(a, i), layer_name(b, i)) == 0)
        i++;
    if (i == n && n == other)
        return 0;
    return err_set(e, HP_EINVAL,
                   "it runs the network in %zu layers, and others in %zu: their blocks could not "
                   "follow each other",
                   other, n);
}

static void profile_merge(json_t *into, const json_t *from)
{
    json_object_update(json_object_get(into, "latency"), json_object_get(from, "latency"));
    json_array_extend(json_object_get(into, "measured"), json_object_get(from, "measured"));
}

int pool_profiles_join(json_t *const *profiles, const char *const *kinds, int n, int blocks,
                       struct split *split, json_t *left_out, json_t **out, struct err *e)
{
    const json_t *first = profiles[0];
    json_t *all = json_pack("{s:s, s:O?, s:O, s:{}, s:[]}", "format", "hp-profile/1", "model",
                            json_object_get(first, "model"), "layers",
                            json_object_get(first, "layers"), "latency", "measured");
    if (!all)
        return err_no_memory(e, "a profile");
    for (int i = 0; i < n; i++) {
        struct err why = {0};
        if (layers_compare(first, profiles[i], &why) == 0)
            profile_merge(all, profiles[i]);
        else
            json_array_append_new(left_out, json_pack("{s:s, s:s, s:s}", "kind", kinds[i], "code",
                                                      status_word(why.code), "message", why.text));
    }
    if (!json_object_get(first, "pace")) {
        int rc = pools_split_document(all, blocks, split, out, e);
        json_decref(all);
        return rc;
    }
    if (json_object_get(first, "bounds"))
        json_object_set(all, "bounds", json_object_get(first, "bounds"));
    *out = all;
    return 0;
}

static void table_slower(json_t *into, const json_t *other)
{
    json_t *rows = json_object_get(into, "seconds"), *row, *cell;
    size_t i, k;
    json_array_foreach(rows, i, row) json_array_foreach(row, k, cell)
    {
        const json_t *theirs =
            json_array_get(json_array_get(json_object_get(other, "seconds"), i), k);
        if (json_is_number(cell) && json_number_value(theirs) > json_number_value(cell))
            json_array_set_new(row, k, json_real(json_number_value(theirs)));
    }
}

/* The first kind's tables. */
static json_t *tables_of(const json_t *profile)
{
    return json_object_iter_value(json_object_iter(json_object_get(profile, "latency")));
}

int pool_profiles_slower(json_t *into, const json_t *other, struct err *e)
{
    const char *name;
    json_t *table;
    int rc = layers_compare(into, other, e);
    if (rc < 0)
        return rc;
    json_object_foreach(tables_of(into), name, table)
        table_slower(table, json_object_get(tables_of(other), name));
    json_array_extend(json_object_get(into, "measured"), json_object_get(other, "measured"));
    return 0;
}

/* ---- for people ---- */

static const char *kept_name(const struct pool_kept_profile *p)
{
    const char *name = json_string_value(json_object_get(p->record, "name"));
    return name ? name : "";
}

void pool_profiles_describe(const struct coord *c, json_t *rows)
{
    for (size_t i = 0; c->pools && i < c->pools->n_profiles; i++) {
        const struct pool_kept_profile *p = &c->pools->profiles[i];
        if (!p->record)
            continue;
        json_array_append_new(
            rows, json_pack("{s:s, s:s, s:s, s:s, s:I, s:b, s:s}", "model", p->model, "name",
                            kept_name(p), "kind", p->kind, "compute", "f32", "classes",
                            (json_int_t)layer_count(json_object_get(p->record, "profile")),
                            "corrected", 0, "dims", p->dims));
    }
}

int pool_profiles_remove(struct coord *c, const char *model, const char *kind)
{
    struct pool_service *s = c->pools;
    int removed = 0;
    for (size_t i = s ? s->n_profiles : 0; i-- > 0;) {
        struct pool_kept_profile *p = &s->profiles[i];
        bool meant = strcmp(kept_name(p), model) == 0 ||
                     (strlen(model) >= 6 && strncmp(p->model, model, strlen(model)) == 0);
        if (!meant || (kind[0] && strcmp(kind, p->kind) != 0))
            continue;
        removed += p->record != NULL;
        if (p->record)
            effects_forget(c, "network_profile", p->key);
        kept_free(p);
        vector_remove(s->profiles, s->n_profiles, i);
    }
    return removed;
}
