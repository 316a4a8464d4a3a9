#include "coordinator/model_slots.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/log.h"
#include "common/manifest.h"
#include "common/utf8.h"
#include "common/vector.h"
#include "coordinator/deployment.h"
#include "coordinator/effects.h"
#include "transport/message.h"

static void model_slot_free(struct model_slot *m)
{
    arena_free(&m->arena);
    free(m->manifest);
    free(m);
}

struct model_slot *model_slot_find(struct coord *c, const char *key)
{
    for (size_t i = 0; i < c->n_models; i++)
        if (strcmp(c->models[i]->key, key) == 0)
            return c->models[i];
    return NULL;
}

static int model_slot_add(struct coord *c, const char *id, uint32_t expert_groups, const char *name,
                          struct pack_span manifest, struct model_slot **out, struct err *e)
{
    struct model_slot *m = calloc(1, sizeof *m);
    uint8_t *copy = malloc(manifest.size);
    if (!m || !copy || !vector_push(c->models, c->n_models, c->room_models, m)) {
        free(m);
        free(copy);
        return err_set(e, HP_ENOMEM, "no memory for a manifest of %zu bytes", manifest.size);
    }
    memcpy(copy, manifest.data, manifest.size);
    m->manifest = copy;
    m->manifest_size = manifest.size;
    m->expert_groups = expert_groups;
    utf8_copy(m->id, sizeof m->id, id);
    utf8_copy(m->name, sizeof m->name, name);
    if (expert_groups > 1)
        snprintf(m->key, sizeof m->key, "%s.%u", id, expert_groups);
    else
        utf8_copy(m->key, sizeof m->key, id);
    *out = m;
    return 0;
}

static void model_slot_open(struct coord *c, struct model_slot *m)
{
    m->opening = true;
    m->failure.code = 0;
    struct coord_action *a = effects_add(c, COORD_MODEL_OPEN, m->manifest, m->manifest_size);
    if (a) {
        a->key = m->key;
        a->expert_groups = m->expert_groups;
        return;
    }
    m->opening = false;
    err_set(&m->failure, HP_ENOMEM, "no memory to open the model");
}

int model_slot_use(struct coord *c, struct pack_span manifest, struct model_slot **out,
                   struct err *e)
{
    struct digest digest = manifest_id(manifest.data, manifest.size);
    char id[DIGEST_HEX];
    digest_hex(&digest, id);
    *out = model_slot_find(c, id);
    if (!*out) {
        struct arena arena = {0};
        struct manifest decoded;
        int rc = manifest_decode(manifest.data, manifest.size, &arena, &decoded, e);
        if (rc == 0)
            rc = model_slot_add(c, id, 1, decoded.name, manifest, out, e);
        arena_free(&arena);
        if (rc < 0)
            return rc;
        if (c->running)
            effects_store_bytes(c, "model", id, manifest.data, manifest.size);
    }
    if (!(*out)->open && !(*out)->opening)
        model_slot_open(c, *out);
    return 0;
}

struct model_slot *model_slot_divided(struct coord *c, const struct model_slot *m,
                                      uint32_t expert_groups)
{
    char key[MODEL_SLOT_KEY];
    struct err ignored;
    snprintf(key, sizeof key, expert_groups > 1 ? "%s.%u" : "%s", m->id, expert_groups);
    struct model_slot *found = model_slot_find(c, key);
    if (!found &&
        model_slot_add(c, m->id, expert_groups, m->name,
                       (struct pack_span){m->manifest, m->manifest_size}, &found, &ignored) < 0)
        return NULL;
    if (!found->open && !found->opening)
        model_slot_open(c, found);
    return found;
}

int model_slot_experts(const struct model_slot *m)
{
    int most = 0;
    for (int i = 0; i < m->facts.n_layers; i++)
        most = m->facts.layers[i].experts > most ? m->facts.layers[i].experts : most;
    return most;
}

static int borders_copy(struct model_slot *m, const struct model_facts *facts)
{
    struct pack_list *borders =
        arena_memdup(&m->arena, facts->borders, (size_t)facts->n_layers * sizeof *borders);
    for (int i = 0; borders && i < facts->n_layers; i++) {
        struct message_value *values =
            arena_memdup(&m->arena, borders[i].items, borders[i].count * sizeof *values);
        for (size_t k = 0; values && k < borders[i].count; k++)
            if (!(values[k].name = arena_strdup(&m->arena, values[k].name)))
                return HP_ENOMEM;
        if (!values && borders[i].count)
            return HP_ENOMEM;
        borders[i].items = values;
    }
    m->facts.borders = borders;
    return borders ? 0 : HP_ENOMEM;
}

static int needs_copy(struct model_slot *m, const char *const *needs)
{
    size_t n = 0;
    while (needs[n])
        n++;
    const char **own = arena_memdup(&m->arena, needs, (n + 1) * sizeof *own);
    for (size_t i = 0; own && i < n; i++)
        if (!(own[i] = arena_strdup(&m->arena, own[i])))
            return HP_ENOMEM;
    m->facts.needs = own;
    return own ? 0 : HP_ENOMEM;
}

static int parts_copy(struct model_slot *m, const struct model_facts *facts)
{
    struct profile_part *parts =
        arena_memdup(&m->arena, facts->parts, (size_t)facts->n_layers * sizeof *parts);
    for (int i = 0; parts && i < facts->n_layers; i++)
        if (!(parts[i].class_name = arena_strdup(&m->arena, parts[i].class_name)))
            return HP_ENOMEM;
    m->facts.parts = parts;
    return parts ? 0 : HP_ENOMEM;
}

static int model_slot_fill(struct model_slot *m, const struct model_facts *facts)
{
    m->facts = *facts;
    struct layer_facts *layers =
        arena_memdup(&m->arena, facts->layers, (size_t)facts->n_layers * sizeof *layers);
    m->facts.end_ids =
        arena_memdup(&m->arena, facts->end_ids, facts->n_end_ids * sizeof *facts->end_ids);
    m->facts.architecture = arena_strdup(&m->arena, facts->architecture);
    if (!layers || !m->facts.architecture || (facts->n_end_ids && !m->facts.end_ids))
        return HP_ENOMEM;
    for (int i = 0; i < facts->n_layers; i++) {
        layers[i].name = arena_strdup(&m->arena, facts->layers[i].name);
        layers[i].class_name = arena_strdup(&m->arena, facts->layers[i].class_name);
        if (!layers[i].name || !layers[i].class_name)
            return HP_ENOMEM;
    }
    m->facts.layers = layers;
    if ((facts->needs && needs_copy(m, facts->needs) < 0) ||
        (facts->parts && parts_copy(m, facts) < 0))
        return HP_ENOMEM;
    if (facts->kv_before && !(m->facts.kv_before = arena_memdup(&m->arena, facts->kv_before,
                                                                ((size_t)facts->n_layers + 1) *
                                                                    sizeof *facts->kv_before)))
        return HP_ENOMEM;
    return facts->borders ? borders_copy(m, facts) : 0;
}

bool model_slots_opened(struct coord *c, const char *key, const struct model_facts *facts,
                        const struct err *why)
{
    struct model_slot *m = model_slot_find(c, key);
    if (!m)
        return false;
    m->opening = false;
    if (facts && model_slot_fill(m, facts) == 0)
        m->open = true;
    else if (why)
        m->failure = *why;
    else
        err_set(&m->failure, HP_ENOMEM, "no memory for the model's layers");
    if (m->failure.code)
        log_warn("coordinator", "model_failed", "model=%.12s name=%s why=\"%s\"", m->id, m->name,
                 m->failure.text);
    return true;
}

int model_slots_restore(struct coord *c, struct pack_span manifest, struct err *e)
{
    struct model_slot *slot;
    return model_slot_use(c, manifest, &slot, e);
}

void model_slots_free(struct coord *c)
{
    for (size_t i = 0; i < c->n_models; i++)
        model_slot_free(c->models[i]);
    free(c->models);
}

/* A divided model is made of the whole one, which the store has. */
static bool model_slot_is_used(const struct coord *c, const struct model_slot *m)
{
    bool used = m->opening || m->users;
    for (size_t k = 0; k < c->n_deployments; k++)
        used = used || c->deployments[k]->model == m ||
               (m->expert_groups == 1 && strcmp(c->deployments[k]->model->id, m->id) == 0);
    return used;
}

void model_slots_sweep(struct coord *c)
{
    for (size_t i = c->n_models; i-- > 0;) {
        struct model_slot *m = c->models[i];
        if (model_slot_is_used(c, m))
            continue;
        char *key = arena_strdup(effects_arena(c), m->key);
        struct coord_action *a = key ? effects_add(c, COORD_MODEL_CLOSE, NULL, 0) : NULL;
        if (!a)
            continue; /* the next sweep finds it */
        a->key = key;
        if (m->expert_groups == 1)
            effects_forget(c, "model", key);
        model_slot_free(m);
        vector_remove(c->models, c->n_models, i);
    }
}
