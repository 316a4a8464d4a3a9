/* A completion from its tokens on: its choices in the core, and their answer. */
#include "common/env.h"
#include "coordinator/gateway/openai_completion_int.h"
#include "coordinator/gateway/served_model.h"

enum { CHOICES_AT_ONCE = 32 }; /* the next prompt is opened while fewer are open */

/* ---- the answer ---- */

/* A stream begins with the first token: until then a request that fails is answered with a status,
 * which clients understand better than an event (429 and 503 are tried again). */
static void stream_begin(struct completion *c)
{
    if (!c->answer.stream || c->streams)
        return;
    c->streams = c->spoke = true;
    http_stream_begin(c->x, c->answer.head.dialect->stream_type);
    answer_begin(&c->answer, c->goes_on);
}

static void choice_end(struct completion *c, struct openai_choice *choice, const char *finish,
                       const struct request_usage *usage)
{
    stream_begin(c);
    if (!c->again)
        latency_note(&c->openai->latency, c->body->model, usage);
    if (!answer_choice_end(&c->answer, choice, finish, usage))
        completion_give_up(c);
    else if (!c->answer.n_left)
        completion_destroy(c);
    else
        completion_open(c);
}

/* ---- what the core tells ---- */

static bool body_stops_at(const struct openai_body *b, uint32_t id)
{
    for (int i = 0; i < b->n_stop_ids; i++)
        if (b->stop_ids[i] == id)
            return true;
    return false;
}

/* The ids of a choice's prompt, which are there as long as they are told of. */
static const uint32_t *prompt_of(const struct completion *c, const struct openai_choice *choice,
                                 size_t *n)
{
    const size_t *ends = (const size_t *)(const void *)c->prompt.ends.data;
    size_t i = choice->index / c->body->n_choices, from = i ? ends[i - 1] : 0;
    *n = ends[i] - from;
    return (const uint32_t *)(const void *)c->prompt.ids.data + from;
}

/* The first token of a prompt follows nothing. */
static void prompt_scores_begin(const struct completion *c, struct openai_choice *choice)
{
    size_t n;
    if (choice->scores.prompt_width && !choice->scores.n_prompt)
        answer_scores_prompt(&choice->scores, prompt_of(c, choice, &n)[0], NULL, c->body->echo);
}

/* Counts what a choice holds now. False: that is too much, and the completion has failed. */
static bool scores_count(struct completion *c, struct openai_choice *choice)
{
    struct err e = {0};
    size_t bytes = answer_scores_bytes(&choice->scores), before = choice->scores.counted_bytes;
    choice->scores.counted_bytes = bytes;
    c->scores_bytes += bytes - before;
    c->openai->scores_bytes += bytes - before;
    if (answer_scores_failed(&choice->scores))
        err_set(&e, HP_ENOMEM, "no memory for the answer's logprobs");
    else if (c->scores_bytes > ANSWER_SCORES_BYTES)
        err_set(&e, HP_ELIMIT,
                "the answer would have more than %d MiB of logprobs: ask for fewer of them, or for "
                "fewer prompts at once",
                ANSWER_SCORES_BYTES >> 20);
    else if (bytes > before && c->openai->scores_bytes > ANSWER_SCORES_ALL_BYTES)
        err_set(&e, HP_EBUSY,
                "answers with logprobs that are being made have more than %d MiB together: try "
                "again later",
                ANSWER_SCORES_ALL_BYTES >> 20);
    if (e.code == 0)
        return true;
    completion_fail(c, &e);
    return false;
}

static void on_scores(void *ctx, uint64_t request, bool of_prompt, const struct score *scores,
                      size_t n)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    struct answer_scores *s = &choice->scores;
    size_t n_prompt;
    (void)request;
    prompt_scores_begin(c, choice);
    if (!of_prompt)
        answer_scores_come(s, scores, n);
    const uint32_t *ids = of_prompt ? prompt_of(c, choice, &n_prompt) : NULL;
    for (size_t i = 0; of_prompt && i + s->prompt_width <= n && s->n_prompt < n_prompt;
         i += s->prompt_width)
        answer_scores_prompt(s, ids[s->n_prompt], scores + i, c->body->echo);
    scores_count(c, choice);
}

/* A line has ended later than its body lets an answer go on. */
static bool choice_is_late(const struct completion *c, struct openai_choice *choice)
{
    uint64_t most_ms = c->body->most_ms, now_ns = most_ms ? env_now_ns(&env_real) : 0;
    if (!most_ms)
        return false;
    choice->first_ns = choice->first_ns ? choice->first_ns : now_ns;
    return choice->text.line_ended && now_ns - choice->first_ns > most_ms * 1000000;
}

/* Of an answer that is kept it is not known before its end. */
static void choice_usage_read(const struct completion *c, struct openai_choice *choice)
{
    const struct requests *r = c->openai->requests;
    if (c->answer.head.tells_timings && !c->kept && !c->in_pools && choice->request)
        r->usage(r->ctx, choice->request, &choice->usage);
    choice->usage.output_tokens = choice->n_read;
}

/* False: nothing more is to be told of the choice, and the completion may be gone. `had`: its
 * reader has them from before. `behind`: tokens that came with these and are not read. */
static bool choice_read(struct openai_choice *choice, const uint32_t *ids, size_t n, size_t behind,
                        bool had)
{
    struct completion *c = choice->owner;
    struct request_usage usage = {0};
    size_t read = 0; /* what was sampled behind the end is not used */
    size_t mark = answer_mark(&c->answer);
    while (read < n && !choice->text.stopped) {
        uint32_t id = ids[read++];
        if (body_stops_at(c->body, id)) {
            completion_finish(&choice->text);
            answer_scores_end(&choice->scores, id);
        } else {
            completion_push(&choice->text, id);
            answer_scores_token(&choice->scores, id);
            if (choice_is_late(c, choice))
                completion_limit(&choice->text);
            answer_count(&c->answer, choice);
        }
    }
    choice->n_read += (uint32_t)read;
    choice_usage_read(c, choice);
    if (!scores_count(c, choice))
        return false;
    if (choice->text.text.failed || choice->reader.held.failed) {
        struct err e = {0};
        err_set(&e, HP_ENOMEM, "no memory for the answer");
        completion_fail(c, &e);
        return false;
    }
    if (choice->text.stopped) {
        answer_settle(&c->answer, mark, had);
        completion_choice_leave(c, choice, true, &usage);
        size_t unread = n - read + behind;
        usage.output_tokens -= usage.output_tokens > unread ? unread : 0;
        if (c->kept)
            usage.output_tokens = choice->n_read;
        choice_end(c, choice, choice->text.limited ? "length" : c->answer.head.dialect->stopped,
                   &usage);
        return false;
    }
    if (c->answer.stream && !answer_push(&c->answer, choice, mark, had)) {
        completion_give_up(c);
        return false;
    }
    c->spoke |= c->answer.told && !had; /* a call that grows tells nothing */
    return true;
}

static void on_tokens(void *ctx, uint64_t request, const uint32_t *ids, size_t n)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    (void)request;
    if (c->body->no_answer)
        return;
    prompt_scores_begin(c, choice);
    stream_begin(c);
    size_t had = choice->n_had > choice->n_read ? choice->n_had - choice->n_read : 0;
    had = had < n ? had : n;
    if (!had || choice_read(choice, ids, had, n - had, true))
        if (n > had)
            choice_read(choice, ids + had, n - had, 0, false);
}

static void on_finished(void *ctx, uint64_t request, enum request_finish finish,
                        const struct request_usage *usage)
{
    struct openai_choice *choice = ctx;
    struct completion *c = choice->owner;
    struct request_usage told = *usage;
    (void)request;
    if (c->body->no_answer)
        told.output_tokens = 0;
    prompt_scores_begin(c, choice);
    if (finish == REQUEST_STOP && !c->body->no_answer) {
        answer_scores_end(&choice->scores, usage->end_token);
        choice->request = 0;
        if (!scores_count(c, choice))
            return;
    }
    choice_end(c, choice, finish == REQUEST_STOP ? "stop" : "length", &told);
}

static void on_failed(void *ctx, uint64_t request, const struct err *why,
                      const struct request_usage *usage)
{
    struct openai_choice *choice = ctx;
    (void)request, (void)usage;
    choice->request = 0;
    completion_fail(choice->owner, why);
}

/* ---- open ---- */

/* What is to be said of its tokens, and the text that stands before them. */
static void choice_score(const struct completion *c, struct openai_choice *choice,
                         uint32_t said_width, uint32_t prompt_width)
{
    const struct openai_body *b = c->body;
    const size_t *ends = (const size_t *)(const void *)c->prompt.echo_ends.data;
    size_t i = choice->index / b->n_choices, from = b->echo && i ? ends[i - 1] : 0;
    choice->scores.tokenizer = choice->text.stream.tokenizer;
    choice->scores.shape = c->answer.head.chat ? SCORES_OF_CHAT : c->answer.head.dialect->shape;
    choice->scores.probabilities = b->probabilities;
    choice->scores.lists_ids =
        choice->scores.shape == SCORES_OF_LLAMA && (b->stream || b->return_tokens);
    choice->scores.tells = b->logprobs;
    choice->scores.all = b->prompt_logprobs;
    choice->scores.top = b->top;
    choice->scores.prompt_top = b->prompt_top;
    choice->scores.said_width = said_width;
    choice->scores.prompt_width = prompt_width;
    choice->n_echo = b->echo ? ends[i] - from : 0;
    choice->echo = b->echo ? (const char *)c->prompt.echo.data + from : NULL;
}

/* Scores of each token that is said: where they are asked for, or choose the best answers. */
static uint32_t said_width_of(const struct openai_body *b)
{
    if (b->no_answer)
        return 0;
    return b->logprobs ? 1 + b->top : b->n_given < b->n_choices;
}

/* Scores of each token of the prompt, where it is told with them. */
static uint32_t prompt_width_of(const struct openai_body *b)
{
    bool echoes = b->echo && b->logprobs;
    uint32_t echo_top = echoes ? b->top : 0;
    uint32_t top = echo_top > b->prompt_top ? echo_top : b->prompt_top;
    return echoes || b->prompt_logprobs ? 1 + top : 0;
}

/* All choices of the next prompt or none: the first one's prompt is everybody's, each draws with a
 * seed of its own. */
static int choices_open(struct completion *c, struct err *e)
{
    uint32_t prompt_width = prompt_width_of(c->body), said_width = said_width_of(c->body);
    uint32_t n = c->body->n_choices, first = c->n_opened;
    const size_t *ends = (const size_t *)(const void *)c->prompt.ends.data;
    size_t from = first ? ends[first / n - 1] : 0;
    struct sampling_params sampling = c->body->sampling;
    struct request_spec request = {
        .model = c->body->model,
        .prompt = (const uint32_t *)(const void *)c->prompt.ids.data + from,
        .n_prompt = ends[first / n] - from,
        .max_tokens = c->body->max_tokens,
        .sampling = &sampling,
        .n_forks = prompt_width ? 0 : n - 1,
        .said_scores = said_width,
        .prompt_scores = prompt_width,
        .ignore_end = c->body->ignore_end,
        .priority = c->body->priority,
        .client = c->client,
        .number = http_request_number(c->x),
    };
    int rc = 0;
    for (uint32_t i = first; i < first + n && rc == 0; i++) {
        struct openai_choice *choice = &c->answer.choices[i];
        request.callbacks = (struct request_callbacks){.ctx = choice,
                                                       .tokens = on_tokens,
                                                       .finished = on_finished,
                                                       .failed = on_failed,
                                                       .scores = on_scores};
        choice_score(c, choice, said_width, prompt_width);
        choice->usage.prompt_tokens = request.n_prompt;
        rc = completion_choice_open(c, choice, &request, e);
        request.fork_of = prompt_width ? 0 : c->answer.choices[first].request;
        request.n_forks = 0;
        sampling.seed++;
    }
    if (rc == 0) {
        c->n_opened += n;
        patience_renew(&c->patience);
        return 0;
    }
    for (uint32_t i = first + n; i-- > first;) /* as completion_cancel */
        completion_choice_leave(c, &c->answer.choices[i], false, NULL);
    return rc;
}

static int prompt_open(struct completion *c, struct err *e)
{
    struct served_model found;
    const struct request_model *m = &found.row;
    int rc = served_model_find(c->openai, c->client, c->body->model, &found, e);
    c->retry_after_s = rc == 0 ? m->retry_after_s : 1;
    if (rc == 0 && !m->serving && !m->waits)
        rc = openai_not_serving(m, e);
    else if (rc == 0 && (m->model != c->model || found.in_pools != c->in_pools))
        rc = err_set(e, HP_ESTALE, "\"%s\" was deployed anew in this moment: try again",
                     c->body->model);
    return rc < 0 ? rc : choices_open(c, e);
}

static void on_again(void *ctx)
{
    completion_open(ctx);
}

static uint32_t choices_running(const struct completion *c)
{
    return c->n_opened - (c->answer.n_choices - c->answer.n_left);
}

/* As many more as may be in the core at once. A full queue, or its key's rate, refuses a request
 * that has not begun; one that has waits for its turn. */
void completion_open(struct completion *c)
{
    struct err e = {0};
    int rc = 0;
    while (rc == 0 && c->n_opened < c->answer.n_choices && choices_running(c) < CHOICES_AT_ONCE)
        rc = prompt_open(c, &e);
    if (c->n_opened == c->answer.n_choices && !c->body->echo && !c->body->prompt_logprobs)
        prompt_free(&c->prompt);
    if (rc == 0 ||
        ((rc == HP_EBUSY || rc == HP_ERATE) && c->n_opened > 0 && !c->in_pools &&
         (choices_running(c) > 0 || patience_wait(&c->patience, c->openai->loop, on_again, c))))
        return;
    if (c->n_opened > 0)
        completion_fail(c, &e);
    else
        completion_refuse(c, rc, e.text, rc == HP_EINVAL ? (c->chat ? "messages" : "prompt") : NULL,
                          openai_model_code(rc));
}
