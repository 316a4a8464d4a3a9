#include "coordinator/profile_check.h"

#include <math.h>
#include <string.h>

#include "common/json.h"
#include "common/profile.h"
#include "coordinator/model_facts.h"

enum {
    PROFILE_MAX_SECONDS = 3600,
    PROFILE_MAX_CLASSES = 256,
    PROFILE_MAX_LAYERS = 65536,
    PROFILE_SLACK_BYTES = 1 << 20,
    PROFILE_MAX_SCRATCH = 64 /* batches that it is told of */
};

double profile_guessed_bytes(const struct layer_facts *l, bool f32)
{
    /* Rows of the embedding are read from the file's own pages. Where the formats are not known,
     * matrices may be packed into what the backend computes in. */
    uint64_t kept = f32 ? l->kept_f32_bytes : l->kept_bytes;
    if (strcmp(l->class_name, "embed") == 0)
        return (double)l->param_bytes;
    if (kept > 0)
        return (double)kept;
    return fmax((double)l->param_bytes, (double)l->elements * (f32 ? 4 : 2));
}

/* Within a factor of four of the weights, packed or as the file has them. */
static bool bytes_are_sane(const struct layer_facts *l, bool f32, double bytes)
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

double profile_resident_bytes(const struct model_facts *f, int layer, bool f32,
                              const struct measured_profile *measured)
{
    const struct layer_facts *l = &f->layers[layer];
    const struct profile_part *part = f->parts ? &f->parts[layer] : NULL;
    int whole = part ? part->layer : layer;
    double bytes = whole < measured->layers.n_layers ? measured->resident_bytes[whole] : 0;
    bytes *= part ? part->share : 1;
    /* A paced agent's is of the profile's model, for which ours stands in. */
    if (measured->paced && bytes > 0 && isfinite(bytes))
        return bytes;
    return bytes > 0 && bytes_are_sane(l, f32, bytes) ? bytes : 0;
}

static int layers_check(const struct model_facts *facts, bool f32, const json_t *tables,
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

static int scratch_check(const json_t *tables, struct err *e)
{
    static const double most_bytes = 1e12;
    const json_t *note = json_object_get(tables, "scratch"),
                 *tokens = json_object_get(note, "tokens"), *bytes = json_object_get(note, "bytes");
    size_t n = json_array_size(tokens);
    double before = 0;
    if (!note)
        return 0;
    if (n == 0 || n > PROFILE_MAX_SCRATCH || json_array_size(bytes) != n)
        return err_set(e, HP_EPARSE, "$.scratch has no tokens and bytes, at most %d of each",
                       PROFILE_MAX_SCRATCH);
    for (size_t i = 0; i < n; i++) {
        double t = json_number_value(json_array_get(tokens, i)),
               b = json_number_value(json_array_get(bytes, i));
        if (!(t > before) || !(t <= most_bytes))
            return err_set(e, HP_EINVAL, "$.scratch.tokens[%zu] does not rise", i);
        if (!json_is_number(json_array_get(bytes, i)) || !(b >= 0) || !(b <= most_bytes))
            return err_set(e, HP_EINVAL, "$.scratch.bytes[%zu] is %g", i, b);
        before = t;
    }
    return 0;
}

int profile_check(const struct model_facts *facts, bool f32, const json_t *tables, struct err *e)
{
    const char *name;
    json_t *table;
    if (!json_is_object(tables) || json_object_size(tables) > PROFILE_MAX_CLASSES)
        return err_set(e, HP_EPARSE, "a profile is an object of at most %d classes",
                       PROFILE_MAX_CLASSES);
    json_object_foreach((json_t *)tables, name, table)
    {
        int rc = measured_profile_is_note(name) ? 0 : class_check(name, table, e);
        if (rc < 0)
            return rc;
    }
    int rc = layers_check(facts, f32, tables, e);
    rc = rc < 0 ? rc : scratch_check(tables, e);
    return rc < 0 ? rc : beside_check(tables, e);
}

void profile_scale(json_t *tables, double factor)
{
    const char *name;
    json_t *table, *row, *cell;
    size_t i, k;
    json_object_foreach(tables, name, table)
        json_array_foreach(json_object_get(table, "seconds"), i, row)
            json_array_foreach(row, k, cell) if (json_is_number(cell))
                json_array_set_new(row, k, json_real(json_number_value(cell) * factor));
    double before = json_number_value(json_object_get(tables, "corrected"));
    json_object_set_new(tables, "corrected", json_real((before > 0 ? before : 1) * factor));
}
