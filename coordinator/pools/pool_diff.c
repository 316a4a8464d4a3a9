#include "coordinator/pools/pool_diff.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/member.h"

enum { VALUE_PRECISION = 6, VALUE_SHOWN = 80 };

/* ---- what the workload says ---- */

/* A member of the document that is another, or new, or gone; `of` is the model's name and ": ". */
static void value_compare(json_t *out, const char *of, const char *key, const json_t *before,
                          const json_t *now)
{
    if (before && now && json_equal(before, now))
        return;
    const size_t how = JSON_ENCODE_ANY | JSON_COMPACT | JSON_REAL_PRECISION(VALUE_PRECISION);
    char *was = before ? json_dumps(before, how) : NULL, *is = now ? json_dumps(now, how) : NULL;
    json_array_append_new(out, json_sprintf("%s%s is %.*s, and was %.*s", of, key, (int)VALUE_SHOWN,
                                            is ? is : "not said any more", (int)VALUE_SHOWN,
                                            was ? was : "not said"));
    free(was);
    free(is);
}

static bool key_is_in(const char *const *keys, const char *key)
{
    while (*keys && strcmp(*keys, key) != 0)
        keys++;
    return *keys != NULL;
}

/* Members of two objects but those of `apart`, which are compared otherwise or only name files. */
static void members_compare(json_t *out, const char *of, const json_t *before, const json_t *now,
                            const char *const *apart)
{
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)(uintptr_t)now, key, value)
    {
        if (!key_is_in(apart, key))
            value_compare(out, of, key, json_object_get(before, key), value);
    }
    json_object_foreach((json_t *)(uintptr_t)before, key, value)
    {
        if (!key_is_in(apart, key) && !json_object_get(now, key))
            value_compare(out, of, key, value, NULL);
    }
}

static const json_t *workload_of(const struct pool_spec *s)
{
    return json_object_get(s->document, "workload");
}

static const json_t *model_of(const struct pool_spec *s, int model)
{
    return json_array_get(json_object_get(workload_of(s), "models"), (size_t)model);
}

static const json_t *profile_of(const struct pool_spec *s, const char *name)
{
    return json_object_get(json_object_get(s->document, "profiles"), name);
}

/* `name` is that of both. */
static void model_compare(json_t *out, const struct pool_spec *before, int was,
                          const struct pool_spec *now, int is, const char *name)
{
    static const char *const apart[] = {"name", "model", "profile", NULL};
    char of[POOL_WHY];
    snprintf(of, sizeof of, "%.100s: ", name);
    members_compare(out, of, model_of(before, was), model_of(now, is), apart);
    if (strcmp(before->models[was].id, now->models[is].id) != 0)
        json_array_append_new(out, json_sprintf("%sit is another network", of));
    if (!json_equal(profile_of(before, name), profile_of(now, name)))
        json_array_append_new(out, json_sprintf("%sits profile has other times or blocks", of));
}

static void spec_compare(json_t *out, const struct pool_spec *before, const struct pool_spec *now)
{
    static const char *const apart[] = {"format", "models", NULL};
    members_compare(out, "", workload_of(before), workload_of(now), apart);
    for (int i = 0; i < now->workload.n_models; i++) {
        const char *name = now->workload.models[i].name;
        int was = pool_spec_find(before, name);
        if (was >= 0)
            model_compare(out, before, was, now, i, name);
        else
            json_array_append_new(out, json_sprintf("%.100s: it is new", name));
    }
    for (int i = 0; i < before->workload.n_models; i++)
        if (pool_spec_find(now, before->workload.models[i].name) < 0)
            json_array_append_new(
                out, json_sprintf("%.100s: it is left out", before->workload.models[i].name));
    if (before->method != now->method)
        json_array_append_new(
            out, json_sprintf("it is planned by method %s", pools_method_words[now->method]));
}

/* ---- who computes ---- */

/* Whether one of a plan's shares before the n-th is on the agent of this name. */
static bool plan_uses(const struct pool_plan *p, int n, const char *name)
{
    for (int i = 0; i < n; i++)
        if (p->shares[i].agent && strcmp(p->shares[i].agent->name, name) == 0)
            return true;
    return false;
}

/* Agents of a plan that the other has not, each once. */
static void agents_compare(json_t *out, const struct pool_plan *p, const struct pool_plan *other,
                           const char *what)
{
    for (int i = 0; i < p->topology.n_shares; i++) {
        const struct member *m = p->shares[i].agent;
        if (m && !plan_uses(p, i, m->name) && !plan_uses(other, other->topology.n_shares, m->name))
            json_array_append_new(out, json_sprintf("agent %.100s %s", m->name, what));
    }
}

static void lost_shares_note(json_t *out, const struct pool_plan *p)
{
    int lost = 0;
    for (int i = 0; i < p->topology.n_shares; i++)
        lost += p->shares[i].state == POOL_SHARE_LOST;
    if (lost)
        json_array_append_new(out, json_sprintf("%d shares of what serves were on agents that are "
                                                "lost",
                                                lost));
}

json_t *pool_diff_reasons(const struct pool_plan *serves, const struct pool_plan *next)
{
    json_t *out = json_array();
    if (!serves) {
        json_array_append_new(out, json_string("nothing serves yet"));
        return out;
    }
    spec_compare(out, serves->spec, next->spec);
    lost_shares_note(out, serves);
    agents_compare(out, next, serves, "is used, which it was not");
    agents_compare(out, serves, next, "is not used any more");
    return out;
}
