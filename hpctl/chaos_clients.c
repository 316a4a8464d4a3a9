#include "hpctl/chaos_clients.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "common/vector.h"

static void run_forget(struct chaos_clients *c)
{
    free(c->said);
    free(c->last_s);
    free(c->differs);
    c->said = NULL;
    c->last_s = NULL;
    c->differs = NULL;
}

int chaos_clients_begin(struct chaos_clients *c, const struct load_run *run, bool learning,
                        struct err *e)
{
    size_t n = run->plan->n;
    run_forget(c);
    c->run = run;
    c->learning = learning;
    c->n_pauses = 0;
    if (!c->answers)
        c->answers = calloc(c->n_prompts, sizeof *c->answers);
    c->said = calloc(n, sizeof *c->said);
    c->last_s = calloc(n, sizeof *c->last_s);
    c->differs = calloc(n, sizeof *c->differs);
    return c->answers && c->said && c->last_s && c->differs ? 0 : err_no_memory(e, "clients");
}

static void pause_note(struct chaos_clients *c, double from_s, double to_s)
{
    struct chaos_pause p = {from_s, to_s};
    if (to_s - from_s >= CHAOS_PAUSE_S && !vector_push(c->pauses, c->n_pauses, c->room_pauses, p))
        c->no_memory = true;
}

void chaos_clients_hear(struct chaos_clients *c, size_t index, const char *text, size_t n,
                        double now_s)
{
    struct buffer *answer = &c->answers[c->run->plan->requests[index].prompt];
    if (c->learning) {
        buffer_append(answer, text, n);
        c->no_memory = c->no_memory || answer->failed;
        return;
    }
    size_t at = c->said[index];
    if (at + n > answer->size || memcmp(answer->data + at, text, n) != 0)
        c->differs[index] = true;
    c->said[index] = at + n;
    if (c->last_s[index] > 0) /* before, it may wait for others, as on any day */
        pause_note(c, c->last_s[index], now_s);
    c->last_s[index] = now_s;
}

struct chaos_counts chaos_clients_count(const struct chaos_clients *c)
{
    struct chaos_counts n = {0};
    for (size_t i = 0; i < c->run->plan->n; i++) {
        const struct load_result *r = &c->run->results[i];
        size_t whole = c->answers[c->run->plan->requests[i].prompt].size;
        bool cut = r->outcome == LOAD_DONE && c->said[i] < whole;
        n.whole += r->outcome == LOAD_DONE;
        n.refused += r->outcome == LOAD_REFUSED;
        n.failed += r->outcome == LOAD_FAILED;
        n.open += r->outcome == LOAD_OPEN;
        n.different += c->differs[i] || cut;
        n.tokens += r->answer_tokens;
    }
    return n;
}

double chaos_clients_pause(const struct chaos_clients *c, const struct chaos_fault *f)
{
    double longest = 0;
    for (size_t i = 0; i < c->n_pauses; i++) {
        const struct chaos_pause *p = &c->pauses[i];
        if (p->from_s < f->healed_s && p->to_s > f->begun_s)
            longest = fmax(longest, p->to_s - p->from_s);
    }
    return longest;
}

void chaos_clients_free(struct chaos_clients *c)
{
    run_forget(c);
    for (size_t i = 0; c->answers && i < c->n_prompts; i++)
        buffer_free(&c->answers[i]);
    free(c->answers);
    free(c->pauses);
    *c = (struct chaos_clients){0};
}
