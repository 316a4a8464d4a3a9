#include "coordinator/stage_layout.h"

#include <stdlib.h>
#include <string.h>

#include "common/utf8.h"
#include "transport/message.h"

/* ---- plans ---- */

struct deployment_plan *deployment_plan_create(json_t *document, uint64_t tokens)
{
    struct deployment_plan *p = calloc(1, sizeof *p);
    const json_t *slices = json_object_get(document, "slices");
    size_t n = json_array_size(slices);
    int *copy = p && n ? calloc(n, sizeof *copy) : NULL;
    if (!p || (n && !copy)) {
        free(p);
        return NULL;
    }
    for (size_t k = 0; k < n; k++)
        copy[k] = (int)json_integer_value(json_array_get(slices, k));
    *p = (struct deployment_plan){1, json_incref(document), tokens, copy, (int)n};
    return p;
}

struct deployment_plan *deployment_plan_use(struct deployment_plan *p)
{
    if (p)
        p->refs++;
    return p;
}

void deployment_plan_release(struct deployment_plan **plan)
{
    struct deployment_plan *p = *plan;
    *plan = NULL;
    if (!p || --p->refs > 0)
        return;
    json_decref(p->document);
    free(p->slices);
    free(p);
}

/* ---- layouts ---- */

struct stage_layout *stage_layout_create(int n_stages)
{
    struct stage_layout *l = calloc(1, sizeof *l + (size_t)n_stages * sizeof *l->stages);
    if (l) {
        l->refs = 1;
        l->n_stages = n_stages;
    }
    return l;
}

struct stage_layout *stage_layout_use(struct stage_layout *l)
{
    if (l)
        l->refs++;
    return l;
}

void stage_layout_release(struct stage_layout **layout)
{
    struct stage_layout *l = *layout;
    *layout = NULL;
    if (!l || --l->refs > 0)
        return;
    deployment_plan_release(&l->plan);
    free(l);
}

bool stage_layout_same_stages(const struct stage_layout *a, const struct stage_layout *b)
{
    for (int i = 0; a->n_stages == b->n_stages && i < a->n_stages; i++) {
        const struct layout_stage *x = &a->stages[i], *y = &b->stages[i];
        if (strcmp(x->agent, y->agent) != 0 || x->device != y->device ||
            x->first_layer != y->first_layer || x->end_layer != y->end_layer ||
            x->compute_s < y->compute_s || x->compute_s > y->compute_s ||
            x->memory_bytes < y->memory_bytes || x->memory_bytes > y->memory_bytes)
            return false;
    }
    return a->n_stages == b->n_stages;
}

/* ---- as records have it ---- */

json_t *stage_layout_to_json(const struct stage_layout *l)
{
    if (!l)
        return NULL;
    json_t *stages = json_array();
    for (int i = 0; i < l->n_stages; i++) {
        const struct layout_stage *s = &l->stages[i];
        json_array_append_new(stages, json_pack("{s:s, s:i, s:i, s:i, s:f, s:f}", "agent", s->agent,
                                                "device", s->device, "first_layer", s->first_layer,
                                                "end_layer", s->end_layer, "compute_s",
                                                s->compute_s, "memory_bytes", s->memory_bytes));
    }
    return json_pack("{s:o, s:O?, s:s, s:I, s:I, s:I, s:I, s:I}", "stages", stages, "plan",
                     l->plan ? l->plan->document : NULL, "wire", frame_dtype_word(l->wire),
                     "plan_tokens", (json_int_t)(l->plan ? l->plan->tokens : 0), "context",
                     (json_int_t)l->context, "kv_tokens", (json_int_t)l->kv_tokens, "max_sequences",
                     (json_int_t)l->max_sequences, "max_batch_tokens",
                     (json_int_t)l->max_batch_tokens);
}

static uint64_t number_of(const json_t *object, const char *key)
{
    return (uint64_t)json_integer_value(json_object_get(object, key));
}

static void stage_read(const json_t *row, struct layout_stage *out)
{
    json_int_t device = json_integer_value(json_object_get(row, "device"));
    *out = (struct layout_stage){
        .device = device > 0 && device < MESSAGE_MAX_DEVICES ? (int)device : 0,
        .first_layer = (int)json_integer_value(json_object_get(row, "first_layer")),
        .end_layer = (int)json_integer_value(json_object_get(row, "end_layer")),
        .compute_s = json_number_value(json_object_get(row, "compute_s")),
        .memory_bytes = json_number_value(json_object_get(row, "memory_bytes")),
    };
    utf8_copy(out->agent, sizeof out->agent, json_string_value(json_object_get(row, "agent")));
}

int stage_layout_from_json(const json_t *value, struct stage_layout **out, struct err *e)
{
    const json_t *rows = json_object_get(value, "stages");
    size_t n = json_array_size(rows);
    if (n == 0 || n > COORD_MAX_STAGES)
        return err_set(e, HP_EPARSE, "a layout of %zu stages", n);
    struct stage_layout *l = stage_layout_create((int)n);
    json_t *document = json_object_get(value, "plan");
    if (l)
        l->plan = deployment_plan_create(json_is_object(document) ? document : NULL,
                                         number_of(value, "plan_tokens"));
    if (!l || !l->plan) {
        stage_layout_release(&l);
        return err_set(e, HP_ENOMEM, "no memory for a layout");
    }
    for (size_t i = 0; i < n; i++)
        stage_read(json_array_get(rows, i), &l->stages[i]);
    frame_dtype_of_word(json_string_value(json_object_get(value, "wire")), &l->wire);
    l->context = number_of(value, "context");
    l->kv_tokens = number_of(value, "kv_tokens");
    l->max_sequences = number_of(value, "max_sequences");
    l->max_batch_tokens = number_of(value, "max_batch_tokens");
    *out = l;
    return 0;
}
