#include "coordinator/pools/pool_missing.h"

#include <string.h>

#include "common/json.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_measure_runs.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_profiles.h"
#include "coordinator/pools/pool_spec.h"

/* What is known of one network on the kinds of devices that there are. */
struct missing_network {
    json_t *profiles[POOL_MEASURE_RUNS]; /* the store's */
    const char *kinds[POOL_MEASURE_RUNS];
    const char
        *unknown[POOL_MEASURE_RUNS]; /* kinds of which nothing is known, with a free device */
    int n_profiles, n_unknown;
};

static bool kinds_have(const char *const *kinds, int n, const char *kind)
{
    for (int i = 0; i < n; i++)
        if (strcmp(kinds[i], kind) == 0)
            return true;
    return false;
}

static void kind_look_up(struct coord *c, const struct pool_profile_of *of, const struct member *m,
                         const char *kind, struct missing_network *n)
{
    const json_t *record;
    struct err unused;
    if (kinds_have(n->unknown, n->n_unknown, kind) || kinds_have(n->kinds, n->n_profiles, kind))
        return;
    if (pool_profiles_find(c, of, kind, &record)) {
        if (record) {
            n->profiles[n->n_profiles] = json_incref((json_t *)(uintptr_t)record);
            n->kinds[n->n_profiles++] = kind;
        }
    } else if (!pool_measure_is_disturbed(c, m, &unused)) {
        n->unknown[n->n_unknown++] = kind;
    }
}

static void network_look_up(struct coord *c, const struct pool_spec *s,
                            const struct pool_profile_of *of, struct missing_network *n)
{
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (int d = 0; pool_member_is_wanted(s, m) && d < member_device_count(m); d++)
            if (n->n_profiles + n->n_unknown < POOL_MEASURE_RUNS)
                kind_look_up(c, of, m, member_kind(m, d), n);
    }
}

static json_t *known_json(const struct missing_network *n)
{
    json_t *known = json_array();
    for (int i = 0; i < n->n_profiles; i++)
        json_array_append_new(known, json_string(n->kinds[i]));
    return known;
}

/* The network with where it comes from, as pool_measuring.h has it. */
static json_t *ask_json(const json_t *document, json_t *network)
{
    return json_pack("{s:O, s:O?, s:O?, s:O?}", "network", network, "source_machine",
                     json_object_get(document, "source_machine"), "upload_only",
                     json_object_get(document, "upload_only"), "agents",
                     json_object_get(document, "agents"));
}

static bool was_tried(const json_t *document, const char *name)
{
    const json_t *row;
    size_t i;
    json_array_foreach(json_object_get(document, "measured"), i, row)
    {
        if (json_is_string(row) && strcmp(json_string_value(row), name) == 0)
            return true;
    }
    return false;
}

static int network_fill(json_t *document, json_t *network, const char *name,
                        struct missing_network *n, struct err *e)
{
    json_t *left_out = json_array(), *profile = NULL;
    int rc = pool_profiles_join(n->profiles, n->kinds, n->n_profiles, POOL_PROFILE_BLOCKS, left_out,
                                &profile, e);
    json_decref(left_out); /* those kinds have no times, and are not planned with */
    if (rc < 0)
        return err_at(e, "what was measured of \"%s\"", name);
    json_object_set(network, "bounds", json_object_get(profile, "bounds"));
    json_object_set_new(json_object_get(document, "profiles"), name, profile);
    return 0;
}

/* *measure: what is to be measured of it first; NULL: it has a profile now. */
static int network_check(struct coord *c, json_t *document, json_t *network, const char *name,
                         json_t **measure, struct err *e)
{
    struct missing_network n = {0};
    struct pool_spec *spec = NULL;
    json_t *ask = ask_json(document, network);
    int rc = ask ? pool_spec_network_read(json_incref(ask), &spec, e)
                 : err_no_memory(e, "a measurement");
    if (rc == 0) {
        const struct pool_profile_of of = {spec->models[0].id, json_object_get(network, "dims")};
        bool tried = was_tried(document, name);
        network_look_up(c, spec, &of, &n);
        if (!tried && (n.n_unknown > 0 || n.n_profiles == 0)) {
            json_object_set_new(ask, "any", json_true());
            json_object_set_new(ask, "known", known_json(&n));
            *measure = json_incref(ask);
        } else if (n.n_profiles > 0) {
            rc = network_fill(document, network, name, &n, e);
        } else {
            rc = err_set(e, HP_EUNSUPPORTED, "no device that is here could measure \"%s\"", name);
        }
    }
    for (int i = 0; i < n.n_profiles; i++)
        json_decref(n.profiles[i]);
    pool_spec_release(&spec);
    json_decref(ask);
    return rc;
}

int pool_missing_fill(struct coord *c, json_t *document, json_t **measure, const char **name,
                      struct err *e)
{
    json_t *profiles = json_object_get(document, "profiles"), *network;
    size_t i;
    *measure = NULL;
    if (!json_is_object(profiles))
        return 0; /* whoever reads the document says so */
    json_array_foreach(json_object_get(document, "networks"), i, network)
    {
        *name = json_string_value(json_object_get(network, "name"));
        if (!*name || json_object_get(profiles, *name))
            continue;
        if (json_object_get(network, "lengths")) {
            err_set(e, HP_EUNSUPPORTED, "model \"%s\" has lengths, and no profile of them", *name);
            return err_hint(e, "`hpctl profile model FILE --local --lengths ..` makes one; "
                               "\"profile\" is its path");
        }
        int rc = network_check(c, document, network, *name, measure, e);
        if (rc < 0 || *measure)
            return rc;
    }
    return 0;
}
