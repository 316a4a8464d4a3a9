#include "coordinator/profiles.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "common/log.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/profile_check.h"

static char *profile_key(const char *model, const char *kind, const char *compute)
{
    char *key;
    return asprintf(&key, "%.64s/%s/%s", model, kind, compute) < 0 ? NULL : key;
}

const struct kept_profile *profiles_find(const struct coord *c, const char *model, const char *kind,
                                         const char *compute)
{
    char *key = profile_key(model, kind, compute);
    const struct kept_profile *found = NULL;
    for (size_t i = 0; key && i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].key, key) == 0)
            found = &c->profiles[i];
    free(key);
    return found;
}

static struct kept_profile *profile_of_key(struct coord *c, const char *key)
{
    for (size_t i = 0; i < c->n_profiles; i++)
        if (strcmp(c->profiles[i].key, key) == 0)
            return &c->profiles[i];
    char *copy = strdup(key);
    struct kept_profile *p = copy ? vector_add(c->profiles, c->n_profiles, c->room_profiles) : NULL;
    if (p)
        p->key = copy;
    else
        free(copy);
    return p;
}

/* Takes the tables. */
static int profile_put(struct coord *c, const char *key, json_t *tables, struct err *e)
{
    struct measured_profile measured;
    int rc = measured_profile_read(tables, &measured, e);
    struct kept_profile *p = rc < 0 ? NULL : profile_of_key(c, key);
    if (!p) {
        json_decref(tables);
        if (rc == 0)
            measured_profile_free(&measured);
        return rc < 0 ? rc : err_set(e, HP_ENOMEM, "no memory for a profile");
    }
    json_decref(p->record);
    measured_profile_free(&p->measured);
    p->record = tables;
    p->measured = measured;
    return 0;
}

static void kept_profile_free(struct kept_profile *p)
{
    free(p->key);
    json_decref(p->record);
    measured_profile_free(&p->measured);
}

int profiles_set(struct coord *c, const char *model, const char *kind, const char *compute,
                 json_t *tables, struct err *e)
{
    char *key = profile_key(model, kind, compute);
    if (!key) {
        json_decref(tables);
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    }
    effects_store_json(c, "profile", key, json_incref(tables));
    int rc = profile_put(c, key, tables, e);
    c->profiles_version++;
    free(key);
    return rc;
}

int profiles_restore(struct coord *c, const char *key, json_t *value, struct err *e)
{
    struct err why = {0};
    if (profile_check(NULL, false, value, &why) == 0)
        return profile_put(c, key, json_incref(value), e);
    log_warn("coordinator", "profile_dropped", "key=\"%s\" why=\"%s\"", key, why.text);
    effects_forget(c, "profile", key);
    return 0;
}

void profiles_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_profiles; i++)
        kept_profile_free(&c->profiles[i]);
    free(c->profiles);
}

/* ---- for people ---- */

/* A key is MODEL/KIND/COMPUTE, and a kind may have slashes. */
static void key_split(const char *key, char model[DIGEST_HEX], char kind[DEVICE_KIND],
                      char compute[8])
{
    const char *first = strchr(key, '/'), *last = strrchr(key, '/');
    size_t n = first ? (size_t)(first - key) : strlen(key),
           k = first && last > first ? (size_t)(last - first - 1) : 0;
    snprintf(model, DIGEST_HEX, "%.*s", (int)n, key);
    snprintf(kind, DEVICE_KIND, "%.*s", (int)k, first ? first + 1 : "");
    utf8_copy(compute, 8, last && last != first ? last + 1 : "");
}

static const char *model_name(const struct coord *c, const char *id)
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

size_t profiles_classes_of(const json_t *tables)
{
    size_t n = 0;
    const char *name;
    json_t *table;
    json_object_foreach((json_t *)tables, name, table) n += !measured_profile_is_note(name);
    return n;
}

json_t *profiles_describe(const struct coord *c)
{
    json_t *rows = json_array();
    for (size_t i = 0; i < c->n_profiles; i++) {
        char model[DIGEST_HEX], kind[DEVICE_KIND], compute[8];
        key_split(c->profiles[i].key, model, kind, compute);
        json_array_append_new(
            rows,
            json_pack("{s:s, s:s, s:o, s:s, s:I, s:b}", "model", model, "name",
                      model_name(c, model), "kind", json_text(kind), "compute", compute, "classes",
                      (json_int_t)profiles_classes_of(c->profiles[i].record), "corrected",
                      json_object_get(c->profiles[i].record, "corrected") != NULL));
    }
    return rows;
}

int profiles_remove(struct coord *c, const char *asked, const char *kind, int *removed,
                    struct err *e)
{
    *removed = 0;
    for (size_t i = c->n_profiles; i-- > 0;) {
        char model[DIGEST_HEX], own[DEVICE_KIND], compute[8];
        key_split(c->profiles[i].key, model, own, compute);
        bool meant = strcmp(model_name(c, model), asked) == 0 ||
                     (strlen(asked) >= 6 && strncmp(model, asked, strlen(asked)) == 0);
        if (!meant || (kind[0] && strcmp(kind, own) != 0))
            continue;
        effects_forget(c, "profile", c->profiles[i].key);
        kept_profile_free(&c->profiles[i]);
        vector_remove(c->profiles, c->n_profiles, i);
        c->profiles_version++;
        (*removed)++;
    }
    return *removed ? 0
                    : err_set(e, HP_ENOENT, "nothing was measured of a model \"%.100s\"%s%.60s%s",
                              asked, kind[0] ? " on \"" : "", kind, kind[0] ? "\"" : "");
}
