#include "coordinator/sequence_create.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/model_slots.h"
#include "coordinator/shares.h"

/* A model that pools gives rows and no tokens, the others tokens and no rows. */
static int kind_check(const struct deployment *d, bool embeds, struct err *e)
{
    if (embeds == (d->model->facts.pooling != 0))
        return 0;
    return err_set(e, HP_EINVAL,
                   embeds ? "\"%s\" is a model that writes text: embeddings are made by encoders "
                            "(BERT and its likes), and by models whose files name a pooling"
                          : "\"%s\" makes embeddings and writes no text: POST /v1/embeddings asks "
                            "for these",
                   d->name);
}

/* A text of an encoder is one batch. */
static int text_check(const struct deployment *d, size_t n, struct err *e)
{
    uint64_t most = d->context < d->max_batch_tokens ? d->context : d->max_batch_tokens;
    if (n > most)
        return err_set(e, HP_EINVAL, "the text has %zu tokens; \"%s\" reads at most %llu at once%s",
                       n, d->name, (unsigned long long)most,
                       most < d->context ? " (`hpctl deploy --slice` says how many)" : "");
    return 0;
}

static int prompt_check(const struct deployment *d, const uint32_t *ids, size_t n, bool embeds,
                        struct err *e)
{
    const struct model_facts *f = &d->model->facts;
    int rc = kind_check(d, embeds, e);
    rc = rc < 0 || !embeds ? rc : text_check(d, n, e);
    if (rc < 0)
        return rc;
    if (n == 0)
        return err_set(e, HP_EINVAL, "the prompt is empty");
    if (n >= d->context && !embeds)
        return err_set(e, HP_EINVAL,
                       "the prompt has %zu tokens; \"%s\" has a context of %llu, of which at least "
                       "one is for the answer",
                       n, d->name, (unsigned long long)d->context);
    for (size_t i = 0; i < n; i++)
        if (ids[i] >= f->vocabulary)
            return err_set(e, HP_EINVAL, "token %zu of the prompt is %u; the vocabulary has %u", i,
                           ids[i], f->vocabulary);
    return 0;
}

/* Room for n more at once, which who has nothing there may always ask for. */
static int queue_check(struct coord *c, const struct deployment *d, const struct sequence_asked *a,
                       struct err *e)
{
    uint32_t own = shares_waiting_of(d, a->client), n = a->n_requests;
    double wait_s = shares_wait_s(d, a->client, a->priority);
    if (d->n_waiting + n <= COORD_MAX_WAITING && (!own || own + n <= COORD_MAX_WAITING_OF_CLIENT) &&
        wait_s <= SHARES_WAIT_MOST_S)
        return 0;
    c->counts.rejected++;
    if (wait_s > SHARES_WAIT_MOST_S)
        return err_set(e, HP_EBUSY,
                       "a request would wait %.0f s for room on \"%s\", where %u wait already, and "
                       "none waits more than %d s: try again later",
                       wait_s, d->name, d->n_waiting, SHARES_WAIT_MOST_S);
    return err_set(
        e, HP_EBUSY,
        "%u requests wait for \"%s\" already, %u of them of this client: try again later",
        d->n_waiting, d->name, own);
}

uint64_t sequence_kv_tokens(const struct sequence *s)
{
    return (s->n_prompt + s->max_tokens + DEPLOYMENT_KV_ROUND - 1) / DEPLOYMENT_KV_ROUND *
           DEPLOYMENT_KV_ROUND;
}

int sequence_make(struct coord *c, struct deployment *d, const struct sequence_asked *a,
                  struct sequence **out, struct err *e)
{
    struct sequence *s = calloc(1, sizeof *s);
    uint32_t *prompt = malloc(a->n * sizeof *prompt);
    if (!s || !prompt) {
        free(s);
        free(prompt);
        return err_set(e, HP_ENOMEM, "no memory for a prompt of %zu tokens", a->n);
    }
    memcpy(prompt, a->ids, a->n * sizeof *prompt);
    uint64_t room = d->context - a->n;
    s->prompt = prompt;
    s->n_prompt = s->n_ids = s->room_ids = a->n;
    s->embeds = s->alone = a->embeds; /* what a token becomes depends on those behind it */
    s->max_tokens = a->embeds ? 0 : a->max_tokens && a->max_tokens < room ? a->max_tokens : room;
    s->kv_tokens = sequence_kv_tokens(s);
    s->sampling = sampling_greedy;
    snprintf(s->client, sizeof s->client, "%s", a->client);
    s->priority = a->priority;
    s->deployment = d;
    s->asked_ns = coord_now(c);
    s->request = c->next_request++;
    if (!sequence_wait(c, d, s)) {
        sequence_free(s);
        return err_set(e, HP_ENOMEM, "no memory for a request");
    }
    *out = s;
    return 0;
}

int sequence_create(struct coord *c, struct deployment *d, const struct sequence_asked *a,
                    struct sequence **out, struct err *e)
{
    if (!deployment_takes(d)) {
        c->counts.rejected++;
        return err_set(e, HP_EBUSY, "\"%s\" is %s%s%s: try again later", d->name,
                       deployment_states[d->state].word, d->why.code ? ": " : "", d->why.text);
    }
    int rc = prompt_check(d, a->ids, a->n, a->embeds, e);
    rc = rc < 0 || !a->n_requests ? rc : queue_check(c, d, a, e);
    return rc < 0 ? rc : sequence_make(c, d, a, out, e);
}
