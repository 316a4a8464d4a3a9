/* A completion whose answer may be read once more: its choices are opened and left at the kept
 * stream (kept_streams.h), which tells them from their first token on. */
#include "common/env.h"
#include "coordinator/gateway/kept_stops.h"
#include "coordinator/gateway/openai_completion_int.h"
#include "coordinator/gateway/pool_scores.h"

int completion_choice_open(struct completion *c, struct openai_choice *choice,
                           const struct request_spec *spec, struct err *e)
{
    const struct requests *r = c->openai->requests;
    const struct openai_body *b = c->body;
    const struct kept_stops stops = {.model = b->model,
                                     .texts = b->stops,
                                     .n_texts = b->n_stops,
                                     .ids = b->stop_ids,
                                     .n_ids = b->n_stop_ids,
                                     .like = &choice->text};
    if (c->in_pools)
        return pool_scores_open(c->openai->pools, c->model, spec,
                                env_now_ns(&env_real) - c->came_ns, &choice->scored,
                                &c->retry_after_s, e);
    if (c->kept && !c->kept->stops.size)
        kept_stops_write(&stops, &c->kept->stops);
    int rc = c->kept ? kept_choice_open(c->kept, choice->index, spec, &choice->request, e)
                     : r->open(r->ctx, spec, &choice->request, e);
    choice->request = rc < 0 ? 0 : choice->request;
    return rc;
}

void completion_choice_leave(struct completion *c, struct openai_choice *choice, bool satisfied,
                             struct request_usage *usage)
{
    const struct requests *r = c->openai->requests;
    if (choice->request && c->kept)
        kept_choice_leave(c->kept, choice->request, satisfied, usage);
    else if (choice->request)
        r->cancel(r->ctx, choice->request, satisfied, usage);
    choice->request = 0;
    pool_scores_cancel(&choice->scored);
}

void completion_position_read(struct completion *c)
{
    struct event_id had;
    struct openai_answer *a = &c->answer;
    a->kept = c->kept != NULL;
    a->marks = a->kept && a->stream && a->head.dialect->pulse;
    /* What is computed anew, since nobody kept it, goes on where its reader was. */
    c->goes_on = a->marks &&
                 event_id_read(http_request_of(c->x)->last_event_id, a->n_choices, &had) &&
                 (!c->again || kept_stream_told(c->kept, &had));
    for (uint32_t i = 0; c->goes_on && i < a->n_choices; i++) {
        a->choices[i].n_had = had.tokens[i];
        a->choices[i].had_end = had.ended[i];
    }
}

void completion_unkeep(struct completion *c)
{
    if (c->kept)
        kept_stream_leave(c->kept, c);
    c->kept = NULL;
}
