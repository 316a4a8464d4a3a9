#include "coordinator/stage_uploads.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"
#include "coordinator/effects.h"
#include "coordinator/member.h"
#include "coordinator/model_slots.h"
#include "coordinator/stages.h"

/* What an agent wants and nobody has been asked for yet. Both lists are sorted, so one walk
 * compares them. */
static json_t *chunks_to_ask(struct deployment_stage *s)
{
    json_t *chunks = json_array();
    size_t a = 0;
    for (size_t i = 0; i < s->n_wanted; i++) {
        while (a < s->n_asked && s->asked[a] < s->wanted[i])
            a++;
        if (a == s->n_asked || s->asked[a] != s->wanted[i])
            json_array_append_new(chunks, json_integer(s->wanted[i]));
    }
    return chunks;
}

static void asked_set(struct deployment_stage *s)
{
    /* Without memory they are asked for twice, which costs no more than the bytes. */
    s->n_asked = vector_reserve(s->asked, s->room_asked, s->n_wanted) ? s->n_wanted : 0;
    if (s->n_asked)
        memcpy(s->asked, s->wanted, s->n_asked * sizeof *s->asked);
}

static void upload_ask(struct coord *c, struct deployment *d, struct deployment_stage *s)
{
    uint64_t now = coord_now(c);
    if (now - s->progress_ns > coord_ms(DEPLOYMENT_UPLOAD_MS)) {
        s->n_asked = 0;
        s->progress_ns = now;
    }
    json_t *chunks = chunks_to_ask(s);
    if (json_array_size(chunks) == 0) {
        json_decref(chunks);
        return;
    }
    if (!s->upload_session)
        s->upload_session = stages_session_create(c);
    stages_grant(c, d, s->agent, s->upload_session, false);
    asked_set(s);
    json_t *target =
        json_pack("{s:s, s:o, s:o}", "agent", s->agent->name, "address",
                  json_hex(s->agent->address, s->agent->address_size), "chunks", chunks);
    effects_answer(c, d->listener_peer, d->listener_ask, true,
                   json_pack("{s:s, s:I, s:[o]}", "phase", "upload", "session",
                             (json_int_t)s->upload_session, "targets", target));
}

bool stage_uploads_ask(struct coord *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        struct deployment_stage *s = &d->stages[i];
        if (s->n_wanted == 0 || s->status != STAGE_WORKING)
            continue;
        if (!d->listener_ask)
            return false;
        upload_ask(c, d, s);
    }
    return true;
}

void stage_uploads_end(struct coord *c, struct deployment *d)
{
    for (int i = 0; i < d->n_stages; i++) {
        struct deployment_stage *s = &d->stages[i];
        if (s->upload_session)
            stages_grant(c, d, s->agent, s->upload_session, true);
        s->upload_session = 0;
        s->n_asked = 0;
    }
    for (size_t i = 0; i < c->n_members; i++) {
        const struct member *m = c->members[i];
        for (size_t k = 0; k < m->n_models; k++)
            if (strcmp(m->models[k].id, d->model->id) == 0)
                stages_grant(c, d, m, d->session,
                             true); /* a stage of this generation goes on using the token */
    }
}
