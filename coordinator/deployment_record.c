/* A deployment as text: the options that it was asked for with, its record in the store, and what
 * people see of it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/core_int.h"

/* ---- the spec
 * -------------------------------------------------------------------------------------------------
 */

void deployment_spec_free(struct deployment_spec *s)
{
    json_decref(s->options);
    free(s->ranges);
    free(s->slices);
    *s = (struct deployment_spec){0};
}

int deployment_range_add(struct deployment_spec *s, const char *agent, size_t length, int first,
                         int end, struct err *e)
{
    if (length == 0 || length >= sizeof s->ranges->agent)
        return err_set(e, HP_EINVAL, "\"%.*s\" is not the name of an agent", (int)length, agent);
    if (s->n_ranges >= CORE_MAX_STAGES)
        return err_set(e, HP_ELIMIT, "a deployment has at most %d stages", CORE_MAX_STAGES);
    for (int i = 0; i < s->n_ranges; i++)
        if (strlen(s->ranges[i].agent) == length && memcmp(s->ranges[i].agent, agent, length) == 0)
            return err_set(e, HP_EINVAL,
                           "agent \"%.*s\" is named twice: it holds one stage of a deployment",
                           (int)length, agent);
    size_t count = (size_t)s->n_ranges;
    struct deployment_range *r = core_array_add(&s->ranges, &count, sizeof *r);
    if (!r)
        return err_set(e, HP_ENOMEM, "no memory for a deployment");
    s->n_ranges = (int)count;
    memcpy(r->agent, agent, length);
    r->first = first;
    r->end = end;
    return 0;
}

/* "A,B" */
static int agents_read(struct deployment_spec *s, const char *text, struct err *e)
{
    int rc = 0;
    while (rc == 0 && *text) {
        size_t n = strcspn(text, ",");
        rc = deployment_range_add(s, text, n, 0, 0, e);
        text += n + (text[n] == ',');
    }
    return rc;
}

/* "0-22:A,23-45:B", both ends included; "7:A" is one layer. */
static int layers_read(struct deployment_spec *s, const char *text, struct err *e)
{
    int rc = 0;
    s->with_layers = true;
    while (rc == 0 && *text) {
        char *after;
        long first = strtol(text, &after, 10), last = first;
        bool good = after != text;
        if (good && *after == '-') {
            text = after + 1;
            last = strtol(text, &after, 10);
            good = after != text;
        }
        if (!good || *after != ':' || first < 0 || last < first || last > 1000000)
            return err_set(e, HP_EINVAL, "--layers: \"%.40s\" is not FIRST-LAST:AGENT", text);
        text = after + 1;
        size_t n = strcspn(text, ",");
        rc = deployment_range_add(s, text, n, (int)first, (int)last + 1, e);
        text += n + (text[n] == ',');
    }
    return rc;
}

static int option_text(const json_t *options, const char *key, const char **out, struct err *e)
{
    const json_t *v = json_object_get(options, key);
    *out = v && !json_is_null(v) ? json_string_value(v) : "";
    return *out ? 0 : err_set(e, HP_EINVAL, "option \"%s\" is not text", key);
}

static int option_number(const json_t *options, const char *key, uint64_t *out, struct err *e)
{
    const json_t *v = json_object_get(options, key);
    if (v && !json_is_null(v) &&
        (!json_is_integer(v) || json_integer_value(v) < 0 || json_integer_value(v) > UINT32_MAX))
        return err_set(e, HP_EINVAL, "option \"%s\" is not a number from 0 to %u", key, UINT32_MAX);
    *out = (uint64_t)json_integer_value(v);
    return 0;
}

uint64_t deployment_batch_tokens(const struct deployment_spec *s)
{
    uint64_t most = s->slice > DEPLOYMENT_BATCH_TOKENS ? s->slice : DEPLOYMENT_BATCH_TOKENS;
    for (uint32_t i = 0; i < s->n_slices; i++)
        most = s->slices[i] > most ? s->slices[i] : most;
    return most;
}

int deployment_spec_read(json_t *options, struct deployment_spec *out, struct err *e)
{
    struct deployment_spec s = {.options =
                                    json_is_object(options) ? json_incref(options) : json_object()};
    const char *agents, *layers, *compute;
    int rc;
    if ((rc = option_text(s.options, "agents", &agents, e)) == 0 &&
        (rc = option_text(s.options, "layers", &layers, e)) == 0 &&
        (rc = option_text(s.options, "compute", &compute, e)) == 0 &&
        (rc = option_text(s.options, "source_machine", &s.source_machine, e)) == 0 &&
        (rc = option_text(s.options, "source_path", &s.source_path, e)) == 0 &&
        (rc = option_number(s.options, "max_context", &s.max_context, e)) == 0 &&
        (rc = option_number(s.options, "slice", &s.slice, e)) == 0 &&
        (rc = option_number(s.options, "max_sequences", &s.max_sequences, e)) == 0) {
        if (agents[0] && layers[0])
            rc = err_set(e, HP_EINVAL,
                         "--agents and --layers say the same thing twice: give one of them");
        else
            rc = layers[0] ? layers_read(&s, layers, e) : agents_read(&s, agents, e);
    }
    if (rc == 0 && s.max_sequences > DEPLOYMENT_MAX_SEQUENCES)
        rc = err_set(e, HP_EINVAL, "--max-sequences %llu is more than %d",
                     (unsigned long long)s.max_sequences, DEPLOYMENT_MAX_SEQUENCES);
    if (rc == 0 && json_is_object(json_object_get(s.options, "plan")))
        rc = s.n_ranges
                 ? err_set(e, HP_EINVAL,
                           "a plan says where the stages are: leave --agents and --layers out")
                 : deployment_plan_read(&s, e);
    if (rc == 0 && compute[0] && strcmp(compute, "auto") != 0 && strcmp(compute, "f32") != 0)
        rc = err_set(e, HP_EINVAL, "--compute is \"%.40s\"; it can be auto or f32", compute);
    if (rc < 0) {
        deployment_spec_free(&s);
        return rc;
    }
    s.f32 = strcmp(compute, "f32") == 0;
    s.upload_only = json_is_true(json_object_get(s.options, "upload_only"));
    *out = s;
    return 0;
}

/* ---- where the stages are
 * --------------------------------------------------------------------------------------- */

json_t *deployment_layout(const struct deployment *d)
{
    json_t *stages = json_array();
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        json_array_append_new(stages, json_pack("{s:s, s:i, s:i, s:f, s:f}", "agent",
                                                s->agent->name, "first_layer", s->first_layer,
                                                "end_layer", s->end_layer, "compute_s",
                                                s->compute_s, "memory_bytes", s->memory_bytes));
    }
    return json_pack("{s:o, s:O?, s:I, s:I, s:I, s:I, s:I}", "stages", stages, "plan", d->plan,
                     "plan_tokens", (json_int_t)d->plan_tokens, "context", (json_int_t)d->context,
                     "kv_tokens", (json_int_t)d->kv_tokens, "max_sequences",
                     (json_int_t)d->max_sequences, "max_batch_tokens",
                     (json_int_t)d->max_batch_tokens);
}

bool deployment_layout_usable(struct core *c, const json_t *layout)
{
    const json_t *stages = json_object_get(layout, "stages");
    for (size_t i = 0; i < json_array_size(stages); i++) {
        const char *name = json_string_value(json_object_get(json_array_get(stages, i), "agent"));
        const struct member *m = name ? member_find(c, name) : NULL;
        /* One that is joining just now will be ready in a moment: waiting for it is better than
         * moving. */
        if (!m || m->draining || (m->state != MEMBER_READY && m->state != MEMBER_JOINING))
            return false;
    }
    return json_array_size(stages) > 0;
}

int deployment_layout_set(struct core *c, struct deployment *d, const json_t *layout, struct err *e)
{
    const json_t *rows = json_object_get(layout, "stages");
    size_t n = json_array_size(rows);
    struct deployment_stage *stages = n && n <= CORE_MAX_STAGES ? calloc(n, sizeof *stages) : NULL;
    if (!stages)
        return err_set(e, HP_EPARSE, "the layout of deployment \"%s\" has %zu stages", d->name, n);
    for (size_t i = 0; i < n; i++) {
        const json_t *row = json_array_get(rows, i);
        const char *name = json_string_value(json_object_get(row, "agent"));
        stages[i].agent = name ? member_find(c, name) : NULL;
        stages[i].first_layer = (int)json_integer_value(json_object_get(row, "first_layer"));
        stages[i].end_layer = (int)json_integer_value(json_object_get(row, "end_layer"));
        stages[i].compute_s = json_number_value(json_object_get(row, "compute_s"));
        stages[i].memory_bytes = json_number_value(json_object_get(row, "memory_bytes"));
        if (!stages[i].agent) {
            free(stages);
            return err_set(e, HP_ENOENT,
                           "deployment \"%s\" was on agent \"%s\", which is not known any more",
                           d->name, name ? name : "");
        }
    }
    stages_free(d);
    d->stages = stages;
    d->n_stages = (int)n;
    json_t *plan = json_incref(json_object_get(layout, "plan"));
    json_decref(d->plan);
    d->plan = plan;
    d->plan_tokens = (uint64_t)json_integer_value(json_object_get(layout, "plan_tokens"));
    d->context = (uint64_t)json_integer_value(json_object_get(layout, "context"));
    d->kv_tokens = (uint64_t)json_integer_value(json_object_get(layout, "kv_tokens"));
    d->max_sequences = (uint64_t)json_integer_value(json_object_get(layout, "max_sequences"));
    d->max_batch_tokens = (uint64_t)json_integer_value(json_object_get(layout, "max_batch_tokens"));
    return 0;
}

/* ---- the record
 * ---------------------------------------------------------------------------------------------------
 */

static json_t *sessions_of(const struct deployment *d)
{
    json_t *sessions = json_array();
    for (int i = 0; i < d->n_stages; i++)
        json_array_append_new(sessions, json_integer((json_int_t)d->stages[i].input_session));
    return sessions;
}

static void sessions_read(struct deployment *d, const json_t *sessions)
{
    for (int i = 0; i < d->n_stages; i++)
        d->stages[i].input_session =
            (uint64_t)json_integer_value(json_array_get(sessions, (size_t)i));
}

void deployment_keep(struct core *c, const struct deployment *d)
{
    json_t *record =
        json_pack("{s:I, s:I, s:s, s:O, s:I, s:I, s:o, s:o?, s:O?, s:O?}", "id", (json_int_t)d->id,
                  "created_s", (json_int_t)d->created_s, "model", d->model->id, "options",
                  d->spec.options, "generation", (json_int_t)d->generation, "session",
                  (json_int_t)d->session, "sessions", sessions_of(d), "layout",
                  d->n_stages ? deployment_layout(d) : NULL, "served", d->served, "wish", d->wish);
    core_keep_json(c, "deployment", d->name, record);
}

static int record_read(struct core *c, struct deployment *d, const json_t *record, struct err *e)
{
    const char *model = json_string_value(json_object_get(record, "model"));
    d->model = model ? core_model_find(c, model) : NULL;
    if (!d->model)
        return err_set(e, HP_EPARSE,
                       "the store's record deployment/%s names a model that is not there", d->name);
    int rc = deployment_spec_read(json_object_get(record, "options"), &d->spec, e);
    if (rc < 0)
        return rc;
    d->id = (uint64_t)json_integer_value(json_object_get(record, "id"));
    d->created_s = (uint64_t)json_integer_value(json_object_get(record, "created_s"));
    d->generation = (uint64_t)json_integer_value(json_object_get(record, "generation"));
    d->session = (uint64_t)json_integer_value(json_object_get(record, "session"));
    const json_t *served = json_object_get(record, "served"),
                 *layout = json_object_get(record, "layout");
    if (json_is_object(served))
        d->served = json_deep_copy(served);
    const json_t *wish = json_object_get(record, "wish");
    if (json_is_object(wish))
        d->wish = json_deep_copy(wish);
    d->state = DEPLOYMENT_PLANNED;
    /* A layout on an agent that has been removed is planned anew. */
    struct err ignored;
    if (json_is_object(layout) && deployment_layout_set(c, d, layout, &ignored) == 0) {
        sessions_read(d, json_object_get(record, "sessions"));
        machine_move(deployment_states, &d->state, DEPLOYMENT_PREPARING);
        d->recovering = true;
        d->until_ns = core_now(c) + core_ms(CORE_REJOIN_MS);
    }
    return 0;
}

int deployments_restore(struct core *c, const char *name, const json_t *record, struct err *e)
{
    struct deployment *d = calloc(1, sizeof *d);
    struct deployment **place =
        d ? core_array_add(&c->deployments, &c->n_deployments, sizeof *place) : NULL;
    if (!place) {
        free(d);
        return err_set(e, HP_ENOMEM, "no memory for deployments");
    }
    *place = d;
    core_text_set(d->name, sizeof d->name, name);
    d->since_ns = core_now(c);
    int rc = record_read(c, d, record, e);
    if (rc < 0) {
        c->n_deployments--; /* the last one */
        deployment_free(d);
    } else if (d->id >= c->next_deployment) {
        c->next_deployment = d->id + 1;
    }
    return rc;
}

/* ---- for people
 * ------------------------------------------------------------------------------------------------------
 */

static const struct member_held *held_of(const struct deployment *d,
                                         const struct deployment_stage *s)
{
    for (size_t i = 0; i < s->agent->n_held; i++)
        if (s->agent->held[i].deployment == d->id && s->agent->held[i].generation == d->generation)
            return &s->agent->held[i];
    return NULL;
}

json_t *deployment_stages_describe(const struct deployment *d)
{
    json_t *stages = json_array();
    for (int i = 0; i < d->n_stages; i++) {
        const struct deployment_stage *s = &d->stages[i];
        const struct member_held *h = held_of(d, s);
        json_t *row = json_pack(
            "{s:s, s:i, s:i, s:s, s:s, s:I, s:I, s:I, s:f, s:f}", "agent", s->agent->name,
            "first_layer", s->first_layer, "last_layer", s->end_layer - 1, "state",
            s->status == STAGE_HERE ? "ready"
            : s->word[0]            ? s->word
                                    : "waiting",
            "member", member_states[s->agent->state].word, "done_bytes", (json_int_t)s->done_bytes,
            "total_bytes", (json_int_t)s->total_bytes, "moved_bytes", (json_int_t)s->moved_bytes,
            "memory_bytes", s->memory_bytes, "planned_compute_s", s->compute_s);
        if (h) {
            json_object_set_new(row, "kv_used_tokens", json_integer((json_int_t)h->kv_used_tokens));
            json_object_set_new(row, "sequences", json_integer((json_int_t)h->sequences));
            json_object_set_new(row, "batches_done", json_integer((json_int_t)h->batches_done));
            json_object_set_new(row, "busy_s", json_real(h->busy_s));
            json_object_set_new(row, "planned_s", json_real(h->planned_s));
        }
        json_array_append_new(stages, row);
    }
    return stages;
}

json_t *deployment_describe(const struct core *c, const struct deployment *d, bool with_plan)
{
    (void)c;
    uint64_t moved = 0;
    for (int i = 0; i < d->n_stages; i++)
        moved += d->stages[i].moved_bytes;
    json_t *out = json_pack(
        "{s:s, s:I, s:s, s:s, s:I, s:s, s:s, s:s, s:I, s:I, s:I, s:i, s:i, s:I, s:I, s:o}", "name",
        d->name, "id", (json_int_t)d->id, "state",
        d->placing && d->state == DEPLOYMENT_PLANNED ? "planning"
                                                     : deployment_states[d->state].word,
        "text", d->why.text, "generation", (json_int_t)d->generation, "model", d->model->name,
        "model_id", d->model->id, "compute", d->spec.f32 ? "f32" : "auto", "context",
        (json_int_t)d->context, "kv_tokens", (json_int_t)d->kv_tokens, "max_sequences",
        (json_int_t)d->max_sequences, "sequences_active", (int)d->n_active, "sequences_waiting",
        (int)d->n_waiting, "created_s", (json_int_t)d->created_s, "moved_bytes", (json_int_t)moved,
        "stages", deployment_stages_describe(d));
    if (with_plan && d->plan)
        json_object_set(out, "plan", d->plan);
    return out;
}
