/* `hpctl run` and `hpctl chat`: talk to a deployment, or to a model file on this box, through the
 * gateway, as any client would. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "common/bytes.h"
#include "common/fs.h"
#include "hpctl/http_client.h"
#include "hpctl/shown.h"
#include "hpctl/talk.h"
#include "hpctl/verbs.h"

enum { PROMPT_MAX_BYTES = 64 << 20 };

/* ---- one answer ---- */

struct answer {
    struct buffer text;
    json_t *usage, *timings;
    char finish[16];
    bool quiet;
};

static int on_event(void *ctx, const json_t *event, struct err *e)
{
    struct answer *a = ctx;
    (void)e;
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *piece = json_object_get(json_object_get(choice, "delta"), "content");
    if (!piece)
        piece = json_object_get(choice, "text");
    if (json_is_string(piece)) {
        buffer_append(&a->text, json_string_value(piece), json_string_length(piece));
        if (!a->quiet) {
            fwrite(json_string_value(piece), 1, json_string_length(piece), stdout);
            fflush(stdout);
        }
    }
    const char *finish = json_string_value(json_object_get(choice, "finish_reason"));
    if (finish)
        snprintf(a->finish, sizeof a->finish, "%s", finish);
    json_t *usage = json_object_get(event, "usage"), *timings = json_object_get(event, "timings");
    if (json_is_object(usage) && !a->usage)
        a->usage = json_incref(usage);
    if (json_is_object(timings) && !a->timings)
        a->timings = json_incref(timings);
    return 0;
}

static void answer_free(struct answer *a)
{
    buffer_free(&a->text);
    json_decref(a->usage);
    json_decref(a->timings);
}

static int add_sampling(const struct invocation *in, json_t *body, struct err *e)
{
    static const char *const numbers[][2] = {
        {"temperature", "temperature"}, {"top-p", "top_p"}, {"min-p", "min_p"}};
    static const char *const wholes[][2] = {
        {"max-tokens", "max_tokens"}, {"top-k", "top_k"}, {"seed", "seed"}};
    for (size_t i = 0; i < 3; i++) {
        double v;
        uint64_t u;
        int rc = invocation_number(in, numbers[i][0], 0, &v, e);
        if (rc < 0 || (rc = invocation_u64(in, wholes[i][0], 0, &u, e)) < 0)
            return rc;
        if (invocation_option(in, numbers[i][0]))
            json_object_set_new(body, numbers[i][1], json_real(v));
        if (invocation_option(in, wholes[i][0]))
            json_object_set_new(body, wholes[i][1], json_integer((json_int_t)u));
    }
    if (invocation_option(in, "stop"))
        json_object_set_new(body, "stop", json_string(invocation_option(in, "stop")));
    return 0;
}

static int answer_ask(const struct invocation *in, struct context *where, const char *model,
                      json_t *messages, const char *raw, struct answer *a, struct err *e)
{
    json_t *body = json_pack("{s:s, s:b, s:{s:b}}", "model", model, "stream", 1, "stream_options",
                             "include_usage", 1);
    if (raw)
        json_object_set_new(body, "prompt", json_string(raw));
    else
        json_object_set(body, "messages", messages);
    json_object_set_new(body, "reasoning_format", json_string("none")); /* shown as it comes */
    int rc = add_sampling(in, body, e);
    if (rc < 0) {
        json_decref(body);
        return rc;
    }
    return http_post(where, raw ? "/v1/completions" : "/v1/chat/completions", body, on_event, a,
                     NULL, e);
}

/* What `run` and a turn of `chat` say with -o json; NULL: no memory. */
static json_t *answer_json(struct answer *a, const char *model)
{
    return json_pack("{s:s, s:s%, s:s, s:O?, s:O?}", "model", model, "text", buffer_cstr(&a->text),
                     a->text.size, "finish_reason", a->finish, "usage", a->usage, "timings",
                     a->timings);
}

static void print_timings(const struct answer *a)
{
    double prefill = number_member(a->timings, "prefill_s"),
           decode = number_member(a->timings, "decode_s"),
           planned = number_member(a->timings, "planned_s");
    double prompt = number_member(a->usage, "prompt_tokens"),
           made = number_member(a->usage, "completion_tokens");
    double cached =
        number_member(json_object_get(a->usage, "prompt_tokens_details"), "cached_tokens");
    fprintf(stderr, "%.0f prompt tokens", prompt);
    if (cached > 0)
        fprintf(stderr, " (%.0f were there already)", cached);
    fprintf(stderr, ", first token after %s", shown_seconds(prefill).s);
    if (planned > 0)
        fprintf(stderr, " (planned %s)", shown_seconds(planned).s);
    fprintf(stderr, "; %.0f tokens", made);
    if (made > 1 && decode > 0)
        fprintf(stderr, " at %.1f per second", (made - 1) / decode);
    else if (made > 1)
        fprintf(stderr, " at once");
    fprintf(stderr, "%s\n", strcmp(a->finish, "length") == 0 ? " (cut at the limit)" : "");
}

/* ---- run ---- */

static int run_run(struct invocation *in, struct err *e)
{
    struct talk t;
    struct answer a = {.quiet = in->json};
    const char *prompt = in->arguments[in->n_arguments - 1],
               *system = invocation_option(in, "system");
    struct buffer from_stdin = {0};
    int rc = 0;
    if (strcmp(prompt, "-") == 0) {
        if ((rc = fs_input_read(prompt, PROMPT_MAX_BYTES, &from_stdin, e)) < 0)
            return rc;
        prompt = buffer_cstr(&from_stdin);
    }
    if ((rc = talk_open(in, in->n_arguments == 2 ? in->arguments[0] : NULL, &t, e)) < 0) {
        buffer_free(&from_stdin);
        return rc;
    }
    json_t *messages = json_array();
    if (system)
        json_array_append_new(messages,
                              json_pack("{s:s, s:s}", "role", "system", "content", system));
    const json_t *user =
        json_item_add(messages, json_pack("{s:s, s:s}", "role", "user", "content", prompt));
    rc = user ? answer_ask(in, &t.where, t.name, messages,
                           invocation_flag(in, "raw") ? prompt : NULL, &a, e)
              : err_set(e, HP_EINVAL, "the prompt is not valid UTF-8");
    if (!in->json && a.text.size > 0) {
        printf("\n");
        fflush(stdout);
    }
    if (rc == 0 && in->json)
        rc = invocation_print_json(in, answer_json(&a, t.name), e);
    else if (rc == 0 && invocation_flag(in, "stats"))
        print_timings(&a);
    json_decref(messages);
    buffer_free(&from_stdin);
    answer_free(&a);
    talk_close(&t);
    return rc;
}

/* ---- chat ---- */

static int chat_turn(const struct invocation *in, struct context *where, const char *model,
                     json_t *messages, const char *line)
{
    struct answer a = {.quiet = in->json};
    struct err e = {0};
    json_t *said = json_pack("{s:s, s:s}", "role", "user", "content", line);
    if (!said) {
        fprintf(stderr, "that is not valid UTF-8\n");
        return 0;
    }
    json_array_append_new(messages, said);
    int rc = answer_ask(in, where, model, messages, NULL, &a, &e);
    if (rc == 0 && in->json)
        rc = invocation_print_json(in, answer_json(&a, model), &e);
    else if (!in->json && (rc == 0 || a.text.size))
        printf("\n");
    fflush(stdout);
    if (rc < 0) {
        fprintf(stderr, "hpctl: %s\n%s%s%s", e.text, e.hint[0] ? "  " : "", e.hint,
                e.hint[0] ? "\n" : "");
        json_array_remove(messages, json_array_size(messages) - 1);
    } else {
        json_array_append_new(messages, json_pack("{s:s, s:s%}", "role", "assistant", "content",
                                                  buffer_cstr(&a.text), a.text.size));
    }
    answer_free(&a);
    return rc;
}

static json_t *first_messages(const struct invocation *in)
{
    const char *system = invocation_option(in, "system");
    return system ? json_pack("[{s:s, s:s}]", "role", "system", "content", system) : json_array();
}

static int run_chat(struct invocation *in, struct err *e)
{
    struct talk t;
    char *line = NULL;
    size_t capacity = 0;
    bool terminal = isatty(STDIN_FILENO);
    int rc = talk_open(in, in->n_arguments ? in->arguments[0] : NULL, &t, e);
    if (rc < 0)
        return rc;
    terminal = terminal && !in->json;
    if (terminal)
        printf("talking to %s; /reset forgets, /exit or Ctrl-D ends\n", t.name);
    json_t *messages = first_messages(in);
    for (;;) {
        if (terminal) {
            printf("> ");
            fflush(stdout);
        }
        ssize_t n = getline(&line, &capacity, stdin);
        if (n < 0)
            break;
        line[strcspn(line, "\r\n")] = '\0';
        if (strcmp(line, "/exit") == 0 || strcmp(line, "/quit") == 0)
            break;
        if (strcmp(line, "/reset") == 0) {
            json_decref(messages);
            messages = first_messages(in);
        } else if (line[0] && chat_turn(in, &t.where, t.name, messages, line) < 0 && !terminal) {
            rc = err_set(e, HP_EINVAL, "the conversation broke off");
            break;
        }
    }
    free(line);
    json_decref(messages);
    talk_close(&t);
    return rc;
}

#define SAMPLING_OPTIONS                                                                           \
    {"system", "TEXT", "a system message", 0}, {"max-tokens", "N", "tokens to make at most", 0},   \
        {"temperature", "T", "0: always the likeliest (default 1)", 0},                            \
        {"top-p", "P", "keep the likeliest tokens that sum to P", 0},                              \
        {"top-k", "K", "keep the K likeliest", 0},                                                 \
        {"min-p", "P", "keep tokens at least P times as likely as the likeliest", 0},              \
        {"seed", "N", "same seed, same answer", 0}, {"stop", "TEXT", "end before this text", 0},   \
        OWN_OPTIONS,                                                                               \
    {                                                                                              \
        "context", "NAME", "of the cluster (default: the current one)", 0                          \
    }

static const struct command_option run_options[] = {
    SAMPLING_OPTIONS,
    {"raw", NULL, "complete the prompt as it stands, without the chat template", 0},
    {"stats", NULL, "print tokens and times when done", 0},
    {0},
};
static const struct command_option chat_options[] = {SAMPLING_OPTIONS, {0}};
const struct command chat_verbs[] = {
    {"run", "[NAME|FILE] PROMPT|-", 1, 2, "ask a deployment or a model file, and stream the answer",
     "NAME may be left out where there is one deployment. What has a slash or ends in .gguf is a "
     "FILE on this box (or a folder), and needs no\n"
     "cluster: one of its own begins and ends with this verb. - reads the prompt from standard "
     "input.",
     "  hpctl run ./model.gguf \"What is the capital of Cuba?\"\n  hpctl run \"What is the capital "
     "of Cuba?\" --temperature 0\n  hpctl run demo - --stats < "
     "question.txt\n  hpctl run demo \"Once upon\" --raw --max-tokens 40 -o json",
     run_options, run_run, false},
    {"chat", "[NAME|FILE]", 0, 1, "talk to a deployment or to a model file",
     "Lines of standard input are what you say; /reset forgets the conversation, /exit ends. With "
     "-o "
     "json every answer is an object. What has a slash or ends in .gguf is a file, which needs no "
     "cluster.",
     "  hpctl chat demo\n  hpctl chat ./model.gguf\n  hpctl chat --system \"Be brief.\" "
     "--temperature 0",
     chat_options, run_chat, false},
    {0},
};
