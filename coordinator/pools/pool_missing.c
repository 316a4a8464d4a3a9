#include "coordinator/pools/pool_missing.h"

#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/json.h"
#include "coordinator/member.h"
#include "coordinator/pools/pool_measure_runs.h"
#include "coordinator/pools/pool_planning.h"
#include "coordinator/pools/pool_profiles.h"
#include "coordinator/pools/pool_spec.h"
#include "coordinator/pools/pool_workload.h"

/* Of one that has several lengths each gets its part of the time, and so much at least. */
static const double LENGTH_BUDGET_S = 4;

/* What is known of one network, in one of its lengths, on the kinds of devices that there are. */
struct missing_network {
    json_t *dims;                        /* sizes of its free dimensions */
    json_t *profiles[POOL_MEASURE_RUNS]; /* the store's */
    const char *kinds[POOL_MEASURE_RUNS];
    const char
        *unknown[POOL_MEASURE_RUNS]; /* kinds of which nothing is known, with a free device */
    const char *refused[POOL_MEASURE_RUNS]; /* kinds that cannot run it */
    int n_profiles, n_unknown, n_refused;
};

/* In all of them, the longest first; one that has a single size has one. */
struct missing_lengths {
    json_t *document, *network;
    const char *name;
    struct missing_network list[MESSAGE_MAX_SIZES];
    int n;
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
        } else if (n->n_refused < POOL_MEASURE_RUNS &&
                   !kinds_have(n->refused, n->n_refused, kind)) {
            n->refused[n->n_refused++] = kind;
        }
    } else if (!pool_measure_is_disturbed(c, m, &unused)) {
        n->unknown[n->n_unknown++] = kind;
    }
}

/* Of kinds that `among` has alone; NULL: of all. */
static void network_look_up(struct coord *c, const struct pool_spec *s,
                            const struct pool_profile_of *of, const struct missing_network *among,
                            struct missing_network *n)
{
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (int d = 0; pool_member_is_wanted(s, m) && d < member_device_count(m); d++)
            if (n->n_profiles + n->n_unknown < POOL_MEASURE_RUNS &&
                (!among || kinds_have(among->kinds, among->n_profiles, member_kind(m, d))))
                kind_look_up(c, of, m, member_kind(m, d), n);
    }
}

/* ---- lengths ---- */

static int64_t length_of(const struct missing_lengths *l, int k)
{
    return json_integer_value(json_array_get(json_object_get(l->network, "lengths"), (size_t)k));
}

/* The sizes that it has in its k-th length. */
static json_t *dims_make(const struct missing_lengths *l, int k)
{
    const json_t *said = json_object_get(l->network, "dims"), *symbol;
    json_t *dims = json_is_object(said) ? json_deep_copy(said) : json_object();
    size_t i;
    json_array_foreach(json_object_get(l->network, "length_symbols"), i, symbol)
    {
        if (json_is_string(symbol))
            json_object_set_new(dims, json_string_value(symbol), json_integer(length_of(l, k)));
    }
    return dims;
}

static int lengths_open(json_t *document, json_t *network, struct missing_lengths *l, struct err *e)
{
    size_t n = json_array_size(json_object_get(network, "lengths"));
    *l = (struct missing_lengths){.document = document,
                                  .network = network,
                                  .name = json_string_value(json_object_get(network, "name"))};
    if (n > MESSAGE_MAX_SIZES)
        return err_set(e, HP_EPARSE, "model \"%.60s\" has %zu lengths; at most %d are served",
                       l->name, n, MESSAGE_MAX_SIZES);
    l->n = n ? (int)n : 1;
    for (int k = 0; k < l->n; k++)
        if ((l->list[k].dims = dims_make(l, k)) == NULL)
            return err_no_memory(e, "a measurement");
    return 0;
}

static void lengths_close(struct missing_lengths *l)
{
    for (int k = 0; k < l->n; k++) {
        for (int i = 0; i < l->list[k].n_profiles; i++)
            json_decref(l->list[k].profiles[i]);
        json_decref(l->list[k].dims);
    }
}

/* ---- what is to be measured ---- */

/* Kinds that need not be measured. */
static json_t *known_json(const struct missing_lengths *l, int k)
{
    const struct missing_network *n = &l->list[k], *longest = &l->list[0];
    json_t *known = json_array();
    for (int i = 0; i < n->n_profiles; i++)
        json_array_append_new(known, json_string(n->kinds[i]));
    for (int i = 0; i < longest->n_refused; i++)
        json_array_append_new(known, json_string(longest->refused[i]));
    return known;
}

/* The network with where it comes from, as pool_measuring.h has it. */
static json_t *ask_json(const struct missing_lengths *l, int k)
{
    json_t *network = json_copy(l->network);
    if (network)
        json_object_set(network, "dims", l->list[k].dims);
    return json_pack("{s:o, s:O?, s:O?, s:O?, s:f}", "network", network, "source_machine",
                     json_object_get(l->document, "source_machine"), "upload_only",
                     json_object_get(l->document, "upload_only"), "agents",
                     json_object_get(l->document, "agents"), "budget_s",
                     fmax(POOL_MEASURE_BUDGET_S / (double)l->n, LENGTH_BUDGET_S));
}

/* What stands in the document's "measured" for it. */
static json_t *tried_name(const struct missing_lengths *l, int k)
{
    return json_object_get(l->network, "lengths")
               ? json_sprintf("%s, length %lld", l->name, (long long)length_of(l, k))
               : json_string(l->name);
}

/* Whether it was tried before; from now on it was. */
static bool length_tried(const struct missing_lengths *l, int k)
{
    json_t *name = tried_name(l, k), *row, *rows = json_object_get(l->document, "measured");
    bool found = false;
    size_t i;
    json_array_foreach(rows, i, row)
    {
        found = found || json_equal(row, name);
    }
    if (!json_is_array(rows)) {
        rows = json_array();
        json_object_set_new(l->document, "measured", rows);
    }
    if (!found)
        json_array_append(rows, name);
    json_decref(name);
    return found;
}

/* ---- what is known ---- */

/* Where one of its lengths has no times of a kind, none counts there. */
static void kinds_agree(struct missing_lengths *l)
{
    struct missing_network *longest = &l->list[0];
    for (int k = 1; k < l->n; k++)
        for (int i = longest->n_profiles; i-- > 0;) {
            if (kinds_have(l->list[k].kinds, l->list[k].n_profiles, longest->kinds[i]))
                continue;
            json_decref(longest->profiles[i]);
            longest->n_profiles--;
            longest->profiles[i] = longest->profiles[longest->n_profiles];
            longest->kinds[i] = longest->kinds[longest->n_profiles];
        }
}

/* The profile of its k-th length, in the blocks of the longest. */
static int length_join(const struct missing_lengths *l, int k, struct split *split, json_t **out,
                       struct err *e)
{
    const struct missing_network *n = &l->list[k];
    json_t *left_out = json_array();
    int rc = pool_profiles_join(n->profiles, n->kinds, n->n_profiles, POOL_PROFILE_BLOCKS, split,
                                left_out, out, e);
    json_decref(left_out); /* those kinds have no times, and are not planned with */
    if (rc == 0 && json_object_get(l->network, "lengths"))
        json_object_set_new(*out, "length", json_integer(length_of(l, k)));
    return rc;
}

static int network_fill(struct missing_lengths *l, struct err *e)
{
    struct split split = {0};
    json_t *profile = NULL, *shorter = json_object();
    kinds_agree(l);
    int rc = l->list[0].n_profiles > 0
                 ? length_join(l, 0, &split, &profile, e)
                 : err_set(e, HP_EUNSUPPORTED, "no kind of device has times of all its lengths");
    for (int k = 1; k < l->n && rc == 0; k++) {
        char key[24];
        json_t *one = NULL;
        snprintf(key, sizeof key, "%lld", (long long)length_of(l, k));
        rc = length_join(l, k, &split, &one, e);
        json_object_set_new(shorter, key, one);
    }
    if (rc == 0 && l->n > 1)
        json_object_set(profile, "lengths", shorter);
    json_decref(shorter);
    if (rc < 0) {
        json_decref(profile);
        return err_at(e, "what was measured of \"%s\"", l->name);
    }
    json_object_set(l->network, "bounds", json_object_get(profile, "bounds"));
    json_object_set_new(json_object_get(l->document, "profiles"), l->name, profile);
    return 0;
}

/* *measure: what is to be measured of that length first; NULL: nothing. */
static int length_check(struct coord *c, struct missing_lengths *l, int k, json_t **measure,
                        struct err *e)
{
    struct missing_network *n = &l->list[k];
    struct pool_spec *spec = NULL;
    json_t *ask = ask_json(l, k);
    int rc = ask ? pool_spec_network_read(json_incref(ask), &spec, e)
                 : err_no_memory(e, "a measurement");
    if (rc == 0) {
        const struct pool_profile_of of = {spec->models[0].id, n->dims};
        network_look_up(c, spec, &of, k ? &l->list[0] : NULL, n);
        if ((n->n_unknown > 0 || n->n_profiles == 0) && !length_tried(l, k)) {
            json_object_set_new(ask, "any", json_true());
            json_object_set_new(ask, "known", known_json(l, k));
            *measure = json_incref(ask);
        } else if (n->n_profiles == 0) {
            rc =
                err_set(e, HP_EUNSUPPORTED, "no device that is here could measure \"%s\"", l->name);
        }
    }
    pool_spec_release(&spec);
    json_decref(ask);
    return rc;
}

/* *measure: what is to be measured of it first; NULL: it has a profile now. */
static int network_check(struct coord *c, json_t *document, json_t *network, json_t **measure,
                         struct err *e)
{
    struct missing_lengths *l = malloc(sizeof *l);
    if (!l)
        return err_no_memory(e, "a measurement");
    int rc = lengths_open(document, network, l, e);
    for (int k = 0; k < l->n && rc == 0 && !*measure; k++)
        rc = length_check(c, l, k, measure, e);
    if (rc == 0 && !*measure)
        rc = network_fill(l, e);
    lengths_close(l);
    free(l);
    return rc;
}

/* What is wrong with the rest is said before anything is measured for it. */
static int workload_check(json_t *document, struct err *e)
{
    struct json_at at = {.file = "the workload that is applied", .value = document};
    struct workload w;
    int rc = pool_workload_read(&at, &w, e);
    if (rc == 0)
        workload_free(&w);
    return rc;
}

int pool_missing_fill(struct coord *c, json_t *document, json_t **measure, struct err *e)
{
    json_t *profiles = json_object_get(document, "profiles"), *network;
    size_t i;
    *measure = NULL;
    if (!json_is_object(profiles))
        return 0; /* whoever reads the document says so */
    int checked = workload_check(document, e);
    if (checked < 0)
        return checked;
    json_array_foreach(json_object_get(document, "networks"), i, network)
    {
        const char *name = json_string_value(json_object_get(network, "name"));
        if (!name || json_object_get(profiles, name))
            continue;
        int rc = network_check(c, document, network, measure, e);
        if (rc < 0 || *measure)
            return rc;
    }
    return 0;
}
