#include "coordinator/measured_profile.h"

#include <string.h>

static const char *const notes[] = {"layers", "batch",     "source", "useful_slice",
                                    "pace",   "corrected", "scratch"};

bool measured_profile_is_note(const char *key)
{
    for (size_t i = 0; i < sizeof notes / sizeof *notes; i++)
        if (strcmp(notes[i], key) == 0)
            return true;
    return false;
}

static int document_read(json_t *document, struct profile *out, struct err *e)
{
    struct json_at at = {.file = "profile", .value = document};
    int rc = document ? profile_from_json(&at, out, e)
                      : err_set(e, HP_ENOMEM, "no memory for a profile");
    json_decref(document);
    return rc;
}

/* An hp-profile/1 with one layer of each class, so that the format is read in one place. */
static int classes_read(const json_t *tables, struct profile *out, struct err *e)
{
    json_t *layers = json_array(), *own = json_object(), *table;
    const char *name;
    json_object_foreach((json_t *)(uintptr_t)tables, name, table)
    {
        if (measured_profile_is_note(name))
            continue;
        json_array_append_new(layers,
                              json_pack("{s:s, s:i}", "class", name, "output_bytes_per_token", 0));
        json_object_set(own, name, table);
    }
    bool any = json_array_size(layers) > 0;
    json_t *document = json_pack("{s:s, s:o, s:{s:o}}", "format", "hp-profile/1", "layers", layers,
                                 "latency", "kind", own);
    if (any)
        return document_read(document, out, e);
    json_decref(document);
    return 0;
}

static int layers_read(const json_t *tables, struct profile *out, struct err *e)
{
    json_t *layers = json_object_get(tables, "layers"), *batch = json_object_get(tables, "batch"),
           *useful = json_object_get(tables, "useful_slice");
    json_t *document = json_pack("{s:s, s:{}}", "format", "hp-profile/1", "latency");
    if (json_array_size(layers))
        json_object_set(document, "layers", layers);
    else
        json_object_set_new(
            document, "layers",
            json_pack("[{s:s, s:i}]", "class", "none", "output_bytes_per_token", 0));
    if (batch)
        json_object_set(document, "batch", batch);
    if (useful)
        json_object_set_new(document, "useful_slice", json_pack("{s:O}", "kind", useful));
    int rc = document_read(document, out, e);
    if (rc == 0 && !json_array_size(layers))
        out->n_layers = 0;
    return rc;
}

static int resident_read(const json_t *tables, struct measured_profile *p, struct err *e)
{
    const json_t *layers = json_object_get(tables, "layers");
    p->resident_bytes =
        arena_alloc(&p->layers.arena, (size_t)p->layers.n_layers + 1, sizeof *p->resident_bytes);
    const char *pace = json_string_value(json_object_get(tables, "pace"));
    p->pace = pace ? arena_strdup(&p->layers.arena, pace) : NULL;
    p->paced = json_object_get(tables, "batch") != NULL;
    if (!p->resident_bytes || (pace && !p->pace))
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    for (int i = 0; i < p->layers.n_layers; i++)
        p->resident_bytes[i] =
            json_number_value(json_object_get(json_array_get(layers, (size_t)i), "resident_bytes"));
    return 0;
}

/* As profile_check has found it. */
static int scratch_read(const json_t *tables, struct measured_profile *p, struct err *e)
{
    const json_t *note = json_object_get(tables, "scratch"),
                 *tokens = json_object_get(note, "tokens"), *bytes = json_object_get(note, "bytes");
    size_t n = json_array_size(tokens);
    p->scratch = arena_alloc(&p->layers.arena, n + 1, sizeof *p->scratch);
    if (!p->scratch)
        return err_set(e, HP_ENOMEM, "no memory for a profile");
    for (size_t i = 0; i < n; i++)
        p->scratch[i] = (struct measured_scratch){json_number_value(json_array_get(tokens, i)),
                                                  json_number_value(json_array_get(bytes, i))};
    p->n_scratch = n;
    return 0;
}

double measured_profile_scratch(const struct measured_profile *p, double tokens)
{
    for (size_t i = 0; i < p->n_scratch; i++)
        if (p->scratch[i].tokens >= tokens)
            return p->scratch[i].bytes;
    const struct measured_scratch *last = p->n_scratch ? &p->scratch[p->n_scratch - 1] : NULL;
    return last ? last->bytes * (tokens / last->tokens) : 0;
}

int measured_profile_read(const json_t *tables, struct measured_profile *out, struct err *e)
{
    struct measured_profile p = {0};
    int rc = classes_read(tables, &p.classes, e);
    if (rc == 0)
        rc = layers_read(tables, &p.layers, e);
    if (rc == 0)
        rc = resident_read(tables, &p, e);
    if (rc == 0)
        rc = scratch_read(tables, &p, e);
    if (rc < 0)
        measured_profile_free(&p);
    else
        *out = p;
    return rc;
}

void measured_profile_free(struct measured_profile *p)
{
    profile_free(&p->classes);
    profile_free(&p->layers);
    *p = (struct measured_profile){0};
}

const struct profile_table *measured_profile_table(const struct measured_profile *p,
                                                   const char *class_name)
{
    for (int i = 0; i < p->classes.n_classes; i++)
        if (strcmp(p->classes.classes[i], class_name) == 0)
            return profile_table_of(&p->classes, 0, i);
    return NULL;
}
