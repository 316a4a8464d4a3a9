/* The simulated cluster: clients and their requests. */
#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "common/log.h"
#include "coordinator/store/store.h"
#include "tests/sim/cluster_int.h"

static struct sim_client *client_of(void *ctx, uint64_t request)
{
    struct sim_client *c = ctx;
    if (c->request != request || !c->open) {
        c->sim->wrong++;
        return NULL;
    }
    return c;
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct sim_client *c = client_of(ctx, request);
    for (size_t i = 0; c && i < n; i++) {
        size_t shown = c->n_expected - (c->ends_early ? 1 : 0);
        bool right = c->n_now < shown && ids[i] == c->expected[c->n_now];
        c->sim->wrong += !right;
        if (c->n_now < SIM_MAX_OUTPUT)
            c->got[c->n_now++] = ids[i];
        c->n_got = c->n_now > c->n_got ? c->n_now : c->n_got;
    }
}

/* Each position once, in order: what an undisturbed run says of the token that follows it. */
static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct sim_client *c = client_of(ctx, request);
    struct toy_memory *m = c ? &c->scored : NULL;
    uint32_t width = !c ? 1 : of_prompt ? c->prompt_width : c->said_width;
    while (c && !of_prompt && m->length + 1 < c->n_prompt)
        toy_position(m, 0, TOY_LAYERS, c->prompt[m->length]);
    for (size_t i = 0; c && width && i < n; i += width) {
        size_t at = m->length, told = at - (c->n_prompt - 1); /* told: not of the prompt */
        bool known = of_prompt ? at + 1 < c->n_prompt : told < c->n_expected;
        uint32_t token = !known ? 0 : at < c->n_prompt ? c->prompt[at] : c->expected[told - 1];
        uint32_t next = !known ? 0 : of_prompt ? c->prompt[at + 1] : c->expected[told];
        struct score right[SIM_SCORES];
        toy_scores(toy_position(m, 0, TOY_LAYERS, token), next, width, right);
        c->sim->wrong +=
            !known || n - i < width || memcmp(right, scores + i, width * sizeof *right) != 0;
        *(of_prompt ? &c->n_prompt_scored : &c->n_scored) += 1;
    }
    if (c && (n == 0 || width == 0))
        c->sim->wrong++;
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct sim_client *c = client_of(ctx, request);
    if (!c)
        return;
    c->open = false;
    c->finished = c->leaves = true;
    c->usage = *usage;
    size_t shown = c->n_expected - (c->ends_early ? 1 : 0);
    c->sim->wrong += (c->said_width && c->n_scored != c->n_expected) ||
                     (c->prompt_width && c->n_prompt_scored != c->n_prompt - 1);
    c->sim->wrong += c->n_now != shown || (finish == REQUEST_STOP) != c->ends_early ||
                     usage->output_tokens != c->n_expected;
    c->sim->cached += usage->cached_tokens;
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct sim_client *c = client_of(ctx, request);
    (void)usage;
    if (!c)
        return;
    c->open = false;
    c->failed = c->leaves = true;
    c->why = *why;
    c->sim->wrong += why->code == 0 || why->text[0] == 0;
}

/* It begins as another's prompt and answer, to n tokens at most. */
static void prompt_begin(struct sim_client *c, const struct sim_client *o, size_t n)
{
    for (size_t i = 0; i < n && i < o->n_prompt + o->n_expected; i++)
        c->prompt[i] = i < o->n_prompt ? o->prompt[i] : o->expected[i - o->n_prompt];
}

static void prompt_draw(struct sim *s, struct sim_client *c)
{
    for (size_t i = 0; i < c->n_prompt; i++)
        c->prompt[i] = (uint32_t)sim_random(s, toy_few_words ? 3 : TOY_VOCABULARY);
    if (s->alike <= 0 || s->n_clients == 0 || sim_random(s, 1000) >= (uint64_t)(1000 * s->alike))
        return;
    size_t back = s->n_clients < 8 ? (size_t)s->n_clients : 8;
    prompt_begin(c, c - 1 - sim_random(s, back), c->n_prompt - sim_random(s, c->n_prompt / 4 + 1));
}

struct sim_client *sim_request(struct sim *s, size_t n, size_t max_tokens, struct err *e)
{
    return sim_request_of(s, "toy", n, max_tokens, e);
}

static struct sim_client *client_make(struct sim *s, size_t n, struct err *e)
{
    if (!s->core || s->n_clients == SIM_CLIENTS) {
        err_set(e, HP_ENOCLUSTER, "no coordinator");
        return NULL;
    }
    struct sim_client *c = &s->clients[s->n_clients];
    *c = (struct sim_client){.sim = s, .n_prompt = n};
    prompt_draw(s, c);
    return c;
}

static struct request_callbacks callbacks_of(struct sim_client *c)
{
    return (struct request_callbacks){.ctx = c,
                                      .tokens = on_tokens,
                                      .finished = on_finished,
                                      .failed = on_failed,
                                      .scores = on_scores};
}

/* `of`: the request that it forks of; 0: none. So many will fork of it. */
static struct sim_client *client_open_fork(struct sim *s, struct sim_client *c, const char *name,
                                           size_t max_tokens, uint64_t of, uint32_t n_forks,
                                           struct err *e)
{
    c->n_expected = toy_run(c->prompt, c->n_prompt, false, c->expected,
                            max_tokens < SIM_MAX_OUTPUT ? max_tokens : SIM_MAX_OUTPUT);
    if (s->scored && !of && !n_forks) {
        c->said_width = 1 + (uint32_t)s->n_clients % SIM_SCORES;
        c->prompt_width = s->n_clients % 3 || s->streams ? 0 : 2;
    }
    c->ends_early = c->n_expected && c->expected[c->n_expected - 1] == TOY_END;
    c->max_tokens = max_tokens;
    snprintf(c->name, sizeof c->name, "%s", name);
    if (s->streams && !c->stream)
        c->stream = 1 + sim_random(s, UINT64_MAX - 1);
    struct request_spec r = {.model = name,
                             .prompt = c->prompt,
                             .n_prompt = c->n_prompt,
                             .max_tokens = max_tokens,
                             .sampling = &sampling_greedy,
                             .fork_of = of,
                             .n_forks = n_forks,
                             .said_scores = c->said_width,
                             .prompt_scores = c->prompt_width,
                             .stream = c->stream,
                             .note = {(const uint8_t *)&c->stream, sizeof c->stream},
                             .callbacks = callbacks_of(c)};
    if (s->requests.open(s->requests.ctx, &r, &c->request, e) < 0)
        return NULL;
    c->open = true;
    s->n_clients++;
    if (!of && !n_forks)
        sim_core_settle(s);
    return c;
}

static struct sim_client *client_open(struct sim *s, struct sim_client *c, const char *name,
                                      size_t max_tokens, struct err *e)
{
    return client_open_fork(s, c, name, max_tokens, 0, 0, e);
}

struct sim_client *sim_request_of(struct sim *s, const char *name, size_t n, size_t max_tokens,
                                  struct err *e)
{
    struct sim_client *c = client_make(s, n, e);
    return c ? client_open(s, c, name, max_tokens, e) : NULL;
}

struct sim_client *sim_request_after(struct sim *s, const struct sim_client *other, size_t n,
                                     size_t max_tokens, struct err *e)
{
    struct sim_client *c = client_make(s, n, e);
    if (c)
        prompt_begin(c, other, n);
    return c ? client_open(s, c, "toy", max_tokens, e) : NULL;
}

struct sim_client *sim_request_forked(struct sim *s, size_t n, uint32_t n_forks, size_t max_tokens,
                                      struct err *e)
{
    struct sim_client *first = client_make(s, n, e), *c = first;
    bool good = c && client_open_fork(s, c, "toy", max_tokens, 0, n_forks, e);
    for (uint32_t i = 0; good && i < n_forks; i++) {
        c = client_make(s, n, e);
        if (c)
            memcpy(c->prompt, first->prompt, n * sizeof *c->prompt);
        good =
            c && client_open_fork(s, c, "toy", max_tokens - i % max_tokens, first->request, 0, e);
    }
    sim_core_settle(s);
    return good ? first : NULL;
}

/* ---- after the death of their coordinator ---- */

static void stream_found(void *out, const struct request_before *r)
{
    struct sim *s = out;
    for (int i = 0; i < s->n_clients; i++) {
        struct sim_client *c = &s->clients[i];
        if (c->stream != r->stream || !c->asks)
            continue;
        assert(r->note.size == sizeof c->stream && memcmp(r->note.data, &c->stream, 8) == 0);
        c->found = true;
        if (!r->ended)
            continue;
        c->asks = false;
        if (r->n_scores)
            on_scores(c, c->request, false, r->scores, r->n_scores);
        on_tokens(c, c->request, r->ids, r->n);
        on_finished(c, c->request, r->finish, &r->usage);
    }
}

void sim_clients_return(struct sim *s)
{
    s->requests.streams(s->requests.ctx, stream_found, s);
    for (int i = 0; i < s->n_clients; i++) {
        struct sim_client *c = &s->clients[i];
        const struct request_callbacks callbacks = callbacks_of(c);
        if (!c->asks || !c->found)
            continue;
        c->request = s->requests.attach(s->requests.ctx, c->stream, &callbacks);
        c->asks = c->request == 0;
        c->resumed += c->request != 0;
    }
}

/* Refused while the deployment does not serve: the next time, then. */
void sim_clients_ask(struct sim *s)
{
    for (int i = 0; i < s->n_clients; i++) {
        struct sim_client *c = &s->clients[i];
        struct err ignored;
        struct request_spec r = {.model = c->name,
                                 .prompt = c->prompt,
                                 .n_prompt = c->n_prompt,
                                 .max_tokens = c->max_tokens,
                                 .sampling = &sampling_greedy,
                                 .said_scores = c->said_width,
                                 .stream = c->stream,
                                 .note = {(const uint8_t *)&c->stream, sizeof c->stream},
                                 .callbacks = callbacks_of(c)};
        if (c->asks && s->requests.open(s->requests.ctx, &r, &c->request, &ignored) == 0)
            c->asks = false;
        if (c->leaves && c->stream)
            s->requests.forget(s->requests.ctx, c->stream);
        c->leaves = false;
    }
}

void sim_cancel(struct sim *s, struct sim_client *c)
{
    if (!c->open || !s->core)
        return;
    c->open = c->asks = false;
    c->cancelled = c->leaves = true;
    s->requests.cancel(s->requests.ctx, c->request, false, NULL);
    sim_core_settle(s);
}

bool sim_quiet(struct sim *s)
{
    for (int i = 0; i < s->n_clients; i++)
        if (s->clients[i].open)
            return false;
    return true;
}

uint64_t sim_leftovers(const struct sim *s)
{
    struct coord_view v = s->core ? coord_view(s->core) : (struct coord_view){0};
    uint64_t n = v.sequences_active + v.sequences_waiting;
    for (int i = 0; i < s->n_agents; i++) {
        const struct sim_agent *a = s->agents[i];
        if (!a->alive)
            continue;
        struct agent_core_view view = agent_core_view(a->core);
        n += view.n_sequences + view.n_held_frames + a->buffers;
        for (size_t k = 0; k < a->n_stages; k++)
            for (size_t q = 0; q < a->stages[k].n_sequences; q++)
                n += !a->stages[k].sequences[q].holding.kept;
    }
    return n;
}
