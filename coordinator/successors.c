#include "coordinator/successors.h"

#include <stdio.h>

#include "common/log.h"
#include "common/utf8.h"
#include "coordinator/deployment_options.h"
#include "coordinator/effects.h"
#include "coordinator/handoffs.h"
#include "coordinator/model_slots.h"
#include "coordinator/record.h"
#include "coordinator/sequence.h"
#include "coordinator/sequence_ends.h"

static const char ending_next[] = "/next", ending_last[] = "/last";

/* False: the name is too long for that. */
static bool name_make(const struct deployment *d, const char *ending, char out[DEPLOYMENT_NAME])
{
    return snprintf(out, DEPLOYMENT_NAME, "%s%s", d->name, ending) < DEPLOYMENT_NAME;
}

struct deployment *successor_of(struct coord *c, const struct deployment *d)
{
    char name[DEPLOYMENT_NAME];
    bool named = name_make(d, ending_next, name);
    return !named || d->spec.succeeds[0] ? NULL : deployment_find(c, name);
}

bool successor_begin(struct coord *c, struct deployment *d, struct stage_layout *layout)
{
    char name[DEPLOYMENT_NAME], last[DEPLOYMENT_NAME];
    struct deployment_spec spec;
    struct deployment *next;
    struct err e = {0};
    if (!name_make(d, ending_last, last) || deployment_find(c, last) ||
        !name_make(d, ending_next, name))
        return false;
    if (d->succession_tried || !d->model->facts.kv_before || d->spec.succeeds[0] ||
        d->spec.prefill_of[0] || d->spec.copy_of[0] || d->heir)
        return false;
    d->succession_tried = true;
    json_t *options = json_copy(d->spec.options);
    json_object_set_new(options, "succeeds", json_string(d->name));
    int rc = deployment_options_read(options, &spec, &e);
    json_decref(options);
    if (rc == 0 && (rc = record_begin(c, name, d->model, &spec, &next, &e)) < 0)
        deployment_spec_free(&spec);
    if (rc < 0) {
        log_warn("coordinator", "no_successor", "deployment=%s why=\"%s\"", d->name, e.text);
        return false;
    }
    next->generation = d->generation;
    next->created_s = d->created_s;
    next->served = stage_layout_use(layout); /* taken as it is while its agents are here */
    return true;
}

bool successor_wanted(struct coord *c, const struct deployment *d)
{
    const struct deployment *before = deployment_find(c, d->spec.succeeds);
    return before && before->state == DEPLOYMENT_SERVING &&
           (before->yields || deployment_stages_drain(before));
}

void successor_queue_take(const struct coord *c, struct deployment *before, struct deployment *d)
{
    for (struct sequence *s = before->waiting_first; s; s = s->next) {
        s->deployment = d;
        s->awaits = 0;
        s->of->n_waiting--;
        client_row_leave(before, s->of);
        s->of = client_row_hold(c, d, s->client);
        s->of->n_waiting++;
    }
    if (!before->waiting_first)
        return;
    before->waiting_last->next = d->waiting_first;
    d->waiting_first = before->waiting_first;
    d->waiting_last = d->waiting_last ? d->waiting_last : before->waiting_last;
    d->n_waiting += before->n_waiting;
    before->waiting_first = before->waiting_last = NULL;
    before->n_waiting = 0;
}

void successor_take_over(struct coord *c, struct deployment *before, struct deployment *d)
{
    char name[DEPLOYMENT_NAME];
    utf8_copy(name, sizeof name, before->name);
    log_info("coordinator", "successor", "deployment=%s generation=%llu sequences=%u", name,
             (unsigned long long)d->generation, before->n_active);
    effects_forget(c, "deployment", d->name);
    json_object_del(d->spec.options, "succeeds");
    d->spec.succeeds = "";
    char last[DEPLOYMENT_NAME];
    name_make(before, ending_last, last);
    utf8_copy(before->name, sizeof before->name, last);
    utf8_copy(d->name, sizeof d->name, name);
    d->answer_tokens = before->answer_tokens;
    d->ran_s = before->ran_s;
    d->targets = before->targets;
    d->growth_counts = before->growth_counts;
    d->losses = before->losses;
    d->prefix_counts = before->prefix_counts;
    d->spill_counts = before->spill_counts;
    d->draft_counts = before->draft_counts;
    d->tokens = before->tokens;
    d->handoffs = before->handoffs;
    d->peer_counts = before->peer_counts;
    d->replicas = before->replicas;
    before->heir = d->id;
    successor_queue_take(c, before, d);
    record_keep(c, d);
}
