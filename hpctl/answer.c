#include "hpctl/answer.h"

#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "hpctl/http_client.h"
#include "hpctl/shown.h"
#include "hpctl/waiting.h"

/* What a piece looks like, line by line: code that stands in a block keeps its lines. */
static void lines_dress(struct answer *a, const char *text, size_t n, struct buffer *out)
{
    size_t columns = a->wraps ? shown_columns(STDOUT_FILENO, 0) : 0, bytes;
    for (size_t at = 0; at < n; at += bytes) {
        const char *end = memchr(text + at, '\n', n - at);
        struct buffer styled = {0};
        bool keeps = a->markdown.fenced;
        bytes = end ? (size_t)(end + 1 - (text + at)) : n - at;
        if (a->styled)
            markdown_take(&a->markdown, text + at, bytes, &styled);
        else
            buffer_append(&styled, text + at, bytes);
        word_wrap_take(&a->wrap, buffer_cstr(&styled), styled.size, columns, keeps, out);
        buffer_free(&styled);
    }
}

static void piece_show(struct answer *a, const char *text, size_t n)
{
    struct buffer harmless = {0}, shown = {0};
    if (isatty(STDOUT_FILENO)) {
        shown_harmless(text, n, &harmless);
        lines_dress(a, buffer_cstr(&harmless), harmless.size, &shown);
        text = buffer_cstr(&shown);
        n = shown.size;
    }
    fwrite(text, 1, n, stdout);
    fflush(stdout);
    buffer_free(&harmless);
    buffer_free(&shown);
}

void answer_show_end(struct answer *a)
{
    struct buffer shown = {0};
    if (a->quiet)
        return;
    if (a->styled)
        markdown_end(&a->markdown, &shown);
    printf("%s%s", shown.size ? buffer_cstr(&shown) : "", a->text.size ? "\n" : "");
    fflush(stdout);
    buffer_free(&shown);
}

static int on_event(void *ctx, const json_t *event, struct err *e)
{
    struct answer *a = ctx;
    (void)e;
    const json_t *choice = json_array_get(json_object_get(event, "choices"), 0);
    const json_t *piece = json_object_get(json_object_get(choice, "delta"), "content");
    if (!piece)
        piece = json_object_get(choice, "text");
    if (json_is_string(piece)) {
        waiting_end(&a->waiting);
        buffer_append(&a->text, json_string_value(piece), json_string_length(piece));
        if (!a->quiet)
            piece_show(a, json_string_value(piece), json_string_length(piece));
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

void answer_free(struct answer *a)
{
    buffer_free(&a->text);
    word_wrap_free(&a->wrap);
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

int answer_ask(const struct invocation *in, struct context *where, const char *model,
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
    bool watched = !a->quiet && isatty(STDOUT_FILENO) && isatty(STDERR_FILENO);
    a->waiting = waiting_begin("waiting for the answer", 0, !watched);
    rc = http_post(where, raw ? "/v1/completions" : "/v1/chat/completions", body, on_event, a, NULL,
                   e);
    waiting_end(&a->waiting);
    return rc;
}

json_t *answer_json(struct answer *a, const char *model)
{
    return json_pack("{s:s, s:s%, s:s, s:O?, s:O?}", "model", model, "text", buffer_cstr(&a->text),
                     a->text.size, "finish_reason", a->finish, "usage", a->usage, "timings",
                     a->timings);
}

void answer_print_timings(const struct answer *a)
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
