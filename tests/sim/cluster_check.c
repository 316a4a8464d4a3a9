/* The simulated cluster: what holds of the coordinator between any two of its events, whatever has
 * happened. Where it does not, the run ends at once and says the seed and the time: the event
 * before is the one that broke it. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/clients.h"
#include "coordinator/deployment.h"
#include "coordinator/member.h"
#include "coordinator/prefixes.h"
#include "coordinator/sequence.h"
#include "tests/sim/cluster_int.h"

struct check {
    const struct sim *s;
    const struct deployment *d;
};

static void must(const struct check *c, bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "# seed %llu at %.6f s (trace %016llx): \"%s\": %s\n",
            (unsigned long long)c->s->seed, (double)c->s->clock.now_ns * 1e-9,
            (unsigned long long)c->s->trace, c->d->name, what);
    abort();
}

/* ---- sequences ---- */

/* Who answers nobody is there for another one that knows of it. */
static void owner_check(const struct check *c, const struct sequence *s)
{
    const struct handoff *h = s->handoff;
    const struct sequence *other = !h ? NULL : h->to == s ? h->from : h->to;
    must(c, !h || h->to == s || h->from == s, "a sequence has the handoff of two others");
    must(c, !other || other->handoff == h, "a sequence is handed over by one that knows nothing");
    must(c, !other || other->state != SEQUENCE_CLOSED, "a sequence is tied to one that has ended");
    must(c, s->kind != SEQUENCE_PREFILL || (h && h->from == s), "a reader reads for nobody");
    must(c,
         (s->kind != SEQUENCE_MOVE && s->kind != SEQUENCE_REPLICA) || (h && h->to == s && h->from),
         "a copy is of nobody");
}

static uint32_t list_check(const struct check *c, const struct sequence *first, int state)
{
    uint32_t n = 0;
    for (const struct sequence *s = first; s; s = s->next, n++) {
        must(c, s->state == state && s->deployment == c->d, "a sequence is in another's list");
        must(c, sequence_of_request(c->s->core, s->request) == s, "a request finds another's");
        must(c, state != SEQUENCE_ACTIVE || sequence_active(c->d, s->id) == s,
             "a number finds another sequence");
        must(c, state == SEQUENCE_ACTIVE || !sequence_is_silent(s), "who answers nobody waits");
        owner_check(c, s);
    }
    return n;
}

static void counts_check(const struct check *c)
{
    const struct deployment *d = c->d;
    uint32_t active = list_check(c, d->active, SEQUENCE_ACTIVE),
             waiting = list_check(c, d->waiting_first, SEQUENCE_WAITING), rows_active = 0,
             rows_waiting = 0, rows_all = 0;
    const struct client_row *rows = &d->nobody;
    for (const struct client_row *r = d->clients; rows; rows = r, r = r ? r->hh.next : NULL) {
        rows_active += rows->n_active;
        rows_waiting += rows->n_waiting;
        rows_all += rows->n_requests;
    }
    must(c, active == d->n_active && active == HASH_CNT(by_id, d->active_by_id),
         "those that run are counted wrong");
    must(c, waiting == d->n_waiting, "those that wait are counted wrong");
    must(c, rows_active == active && rows_waiting == waiting && rows_all == active + waiting,
         "whose requests they are is counted wrong");
    must(c,
         deployment_serves(d) || !active || d->state == DEPLOYMENT_READY || deployment_prepares(d),
         "sequences run where nothing serves");
}

/* ---- memory ---- */

/* Each page has as many holders as there are who have it. */
static void pages_check(const struct check *c)
{
    const struct kv_account *a = &c->d->kv;
    uint32_t *growing = calloc((size_t)a->n_pages + 1, sizeof *growing), used = 0, grows = 0;
    must(c, growing != NULL, "no memory");
    for (const struct sequence *s = c->d->active; s; s = s->next)
        for (uint32_t i = 0; i < s->holding.n_pages; i++)
            growing[s->holding.pages[i]]++;
    for (uint32_t i = 0; i < a->n_pages; i++) {
        const struct kv_account_page *p = &a->pages[i];
        must(c, p->growing == growing[i], "a page is held by those who have it not");
        must(c, p->holders >= p->growing, "a page has fewer holders than have it");
        must(c, prefixes_kept(c->d) || p->holders == p->growing, "a page is kept for nobody");
        used += p->holders > 0;
        grows += p->growing > 0;
    }
    must(c, used == a->used && grows == a->used_growing, "pages are counted wrong");
    must(c, used + a->n_spare == a->n_pages, "a page is lost");
    free(growing);
}

static uint64_t pages_ordered(const struct sim *s, const char *agent)
{
    uint64_t n = 0;
    for (size_t i = 0; i < s->core->n_deployments; i++) {
        const struct deployment *d = s->core->deployments[i];
        for (int k = 0; deployment_serves(d) && k < d->n_stages; k++)
            n += strcmp(d->stages[k].agent->name, agent) == 0 ? d->kv.used : 0;
    }
    return n;
}

bool sim_pages_differ(const struct sim *s)
{
    for (int i = 0; s->core && i < s->n_agents; i++) {
        const struct sim_agent *a = s->agents[i];
        uint64_t promised = 0;
        for (size_t k = 0; a->alive && k < a->n_stages; k++)
            promised += a->stages[k].kv.used;
        if (a->alive && promised != pages_ordered(s, a->name))
            return true;
    }
    return false;
}

/* ---- agents ---- */

static void agent_must(const struct sim *s, const struct sim_agent *a, bool holds, const char *what)
{
    if (holds)
        return;
    fprintf(stderr, "# seed %llu at %.6f s (trace %016llx): %s: %s\n", (unsigned long long)s->seed,
            (double)s->clock.now_ns * 1e-9, (unsigned long long)s->trace, a->name, what);
    abort();
}

static void stage_pages_check(const struct sim *s, const struct sim_agent *a,
                              const struct sim_stage *st)
{
    const struct kv_account *k = &st->kv;
    struct kv_account_page *has = calloc((size_t)k->n_pages + 1, sizeof *has);
    uint32_t used = 0, grows = 0;
    agent_must(s, a, has != NULL, "no memory");
    for (size_t i = 0; i < st->n_sequences; i++) {
        const struct kv_holding *h = &st->sequences[i].holding;
        for (uint32_t p = 0; p < h->n_pages; p++) {
            has[h->pages[p]].holders++;
            has[h->pages[p]].growing += !h->kept;
        }
    }
    for (uint32_t p = 0; p < k->n_pages; p++) {
        agent_must(s, a,
                   k->pages[p].holders == has[p].holders && k->pages[p].growing == has[p].growing,
                   "a page is held by those who have it not");
        used += has[p].holders > 0;
        grows += has[p].growing > 0;
    }
    agent_must(s, a, used == k->used && grows == k->used_growing, "pages are counted wrong");
    agent_must(s, a, used + k->n_spare == k->n_pages, "a page is lost");
    free(has);
}

void sim_agent_check(const struct sim *s, const struct sim_agent *a, uint64_t slot)
{
    struct agent_core_view v = agent_core_view(a->core);
    uint64_t open = 0, orders = 0;
    for (size_t i = 0; i < a->n_stages; i++) {
        const struct sim_stage *st = &a->stages[i];
        for (size_t q = 0; q < st->n_sequences; q++)
            open += !st->sequences[q].holding.kept;
        if (st->slot == slot)
            stage_pages_check(s, a, st);
    }
    for (int d = 0; d < s->n_devices; d++)
        orders += a->executors[d].n_orders;
    if (orders) /* what is ordered and not done yet the core counts already */
        return;
    agent_must(s, a, open == v.n_sequences, "its core counts other sequences than its stages have");
    agent_must(s, a, a->buffers == v.n_held_frames, "a buffer is lost");
}

/* ---- all ---- */

static void places_check(const struct check *c)
{
    const struct deployment *d = c->d;
    must(c, !d->heir || d->state == DEPLOYMENT_MOVING || d->state >= DEPLOYMENT_STOPPING,
         "what has an heir stays");
    must(c, !deployment_serves(d) || (d->n_stages > 0 && d->model), "it serves without stages");
}

void sim_core_check(const struct sim *s)
{
    struct check c = {.s = s};
    size_t all = 0, ends = 0;
    for (size_t i = 0; s->core && i < s->core->n_deployments; i++) {
        c.d = s->core->deployments[i];
        counts_check(&c);
        pages_check(&c);
        places_check(&c);
        all += c.d->n_active + c.d->n_waiting;
    }
    for (const struct sequence *q = s->core ? s->core->sequences : NULL; q; q = q->by_request.next)
        ends += q->ends;
    if (!c.d)
        return;
    must(&c, all == HASH_CNT(by_request, s->core->sequences), "a request has no sequence");
    must(&c, ends == s->core->n_ends, "room for the ends of requests is counted wrong");
}
