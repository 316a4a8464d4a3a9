#include "coordinator/gateway/answer_scores.h"

#include <math.h>
#include <stdio.h>
#include <string.h>

#include "common/utf8.h"
#include "coordinator/gateway/json_write.h"

static const double LEAST = -9999; /* as OpenAI writes what is next to impossible */

void answer_scores_fini(struct answer_scores *s)
{
    struct buffer *all[] = {&s->waiting, &s->tokens, &s->values, &s->tops,
                            &s->offsets, &s->prompt, &s->ids};
    for (size_t i = 0; i < sizeof all / sizeof *all; i++)
        buffer_free(all[i]);
}

/* ---- one token ---- */

static void number_write(struct buffer *out, float logprob)
{
    buffer_printf(out, "%.9g",
                  isfinite(logprob) && (double)logprob > LEAST ? (double)logprob : LEAST);
}

/* A token's text; of completions, where it is part of a character, OpenAI's spelling of its bytes:
 * keys of an object are to differ. */
static void token_write(struct buffer *out, const struct answer_scores *s, uint32_t id)
{
    size_t n;
    const char *text = tokenizer_token_bytes(s->tokenizer, id, &n);
    char spelt[8 + 4 * 32];
    if (s->shape != SCORES_OF_COMPLETION || utf8_valid_prefix(text, n) == n || n > 32) {
        json_write_string(out, text, n);
        return;
    }
    size_t used = (size_t)snprintf(spelt, sizeof spelt, "bytes:");
    for (size_t i = 0; i < n; i++)
        used += (size_t)snprintf(spelt + used, sizeof spelt - used, "\\x%02x", (uint8_t)text[i]);
    json_write_string(out, spelt, used);
}

/* An object that stays open. */
static void token_object_write(struct buffer *out, const struct answer_scores *s, uint32_t id,
                               float logprob)
{
    size_t n;
    const char *text = tokenizer_token_bytes(s->tokenizer, id, &n);
    buffer_printf(out, "{");
    if (s->shape == SCORES_OF_LLAMA)
        buffer_printf(out, "\"id\":%u,", id);
    buffer_printf(out, "\"token\":");
    token_write(out, s, id);
    if (s->probabilities) {
        buffer_printf(out, ",\"prob\":%.9g", isnan(logprob) ? 0 : exp((double)logprob));
    } else {
        buffer_printf(out, ",\"logprob\":");
        number_write(out, logprob);
    }
    buffer_printf(out, ",\"bytes\":[");
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s%u", i ? "," : "", (uint8_t)text[i]);
    buffer_printf(out, "]");
}

static bool texts_alike(const struct answer_scores *s, uint32_t a, uint32_t b)
{
    size_t n, m;
    const char *x = tokenizer_token_bytes(s->tokenizer, a, &n),
               *y = tokenizer_token_bytes(s->tokenizer, b, &m);
    return n == m && memcmp(x, y, n) == 0;
}

/* A key that is there already is a likelier token's. */
static bool top_repeats(const struct answer_scores *s, const struct score *top, uint32_t i)
{
    for (uint32_t k = 0; k < i; k++)
        if (texts_alike(s, top[k].id, top[i].id))
            return true;
    return false;
}

/* {text: logarithm}: the likeliest, and the token itself where it is none of these. */
static void tops_write(struct buffer *out, const struct answer_scores *s, uint32_t id,
                       const struct score *row, uint32_t n)
{
    bool there = false, some = false;
    buffer_printf(out, "{");
    for (uint32_t i = 0; i < n && row[1 + i].id != SCORE_NONE; i++) {
        if (top_repeats(s, row + 1, i))
            continue;
        there = there || texts_alike(s, row[1 + i].id, id);
        buffer_printf(out, "%s", some ? "," : "");
        token_write(out, s, row[1 + i].id);
        buffer_printf(out, ":");
        number_write(out, row[1 + i].logprob);
        some = true;
    }
    if (!there) {
        buffer_printf(out, "%s", some ? "," : "");
        token_write(out, s, id);
        buffer_printf(out, ":");
        number_write(out, row[0].logprob);
    }
    buffer_printf(out, "}");
}

static const char *list_comma(const struct buffer *out)
{
    return out->size ? "," : "";
}

static void object_row(struct answer_scores *s, uint32_t id, const struct score *row)
{
    struct buffer *out = &s->tokens;
    buffer_printf(out, "%s", list_comma(out));
    token_object_write(out, s, id, row[0].logprob);
    buffer_printf(out, ",\"%s\":[", s->probabilities ? "top_probs" : "top_logprobs");
    for (uint32_t i = 0; i < s->top && row[1 + i].id != SCORE_NONE; i++) {
        buffer_printf(out, "%s", i ? "," : "");
        token_object_write(out, s, row[1 + i].id, row[1 + i].logprob);
        buffer_printf(out, "}");
    }
    buffer_printf(out, "]}");
}

static size_t text_characters(const char *text, size_t n)
{
    size_t count = 0;
    for (size_t i = 0; i < n; i++)
        count += ((uint8_t)text[i] & 0xC0) != 0x80;
    return count;
}

/* row NULL: the first token of a prompt. */
static void completion_row(struct answer_scores *s, uint32_t id, const struct score *row)
{
    size_t n;
    const char *text = tokenizer_token_bytes(s->tokenizer, id, &n);
    buffer_printf(&s->offsets, "%s%llu", list_comma(&s->offsets), (unsigned long long)s->offset);
    s->offset += text_characters(text, n);
    buffer_printf(&s->tokens, "%s", list_comma(&s->tokens));
    token_write(&s->tokens, s, id);
    buffer_printf(&s->values, "%s", list_comma(&s->values));
    buffer_printf(&s->tops, "%s", list_comma(&s->tops));
    if (row) {
        number_write(&s->values, row[0].logprob);
        tops_write(&s->tops, s, id, row, s->top);
    } else {
        buffer_printf(&s->values, "null");
        buffer_printf(&s->tops, "null");
    }
}

/* ---- the prompt ---- */

static void prompt_token_write(struct answer_scores *s, uint32_t id, float logprob, uint32_t rank)
{
    size_t n;
    const char *text = tokenizer_token_bytes(s->tokenizer, id, &n);
    buffer_printf(&s->prompt, "\"%u\":{\"logprob\":", id);
    number_write(&s->prompt, logprob);
    buffer_printf(&s->prompt, ",\"rank\":%u,\"decoded_token\":", rank);
    json_write_string(&s->prompt, text, n);
    buffer_printf(&s->prompt, "}");
}

static void prompt_row(struct answer_scores *s, uint32_t id, const struct score *row)
{
    bool there = false;
    buffer_printf(&s->prompt, "%s", list_comma(&s->prompt));
    if (!row) {
        buffer_printf(&s->prompt, "null");
        return;
    }
    buffer_printf(&s->prompt, "{");
    for (uint32_t i = 0; i < s->prompt_top && row[1 + i].id != SCORE_NONE; i++) {
        there = there || row[1 + i].id == id;
        buffer_printf(&s->prompt, "%s", i ? "," : "");
        prompt_token_write(s, row[1 + i].id, row[1 + i].logprob, i + 1);
    }
    if (!there) {
        buffer_printf(&s->prompt, "%s", s->prompt_top && row[1].id != SCORE_NONE ? "," : "");
        prompt_token_write(s, id, row[0].logprob, row[0].id);
    }
    buffer_printf(&s->prompt, "}");
}

void answer_scores_prompt(struct answer_scores *s, uint32_t id, const struct score *row,
                          bool echoed)
{
    s->n_prompt++;
    if (s->all)
        prompt_row(s, id, row);
    if (echoed && s->tells)
        completion_row(s, id, row);
}

/* ---- the answer ---- */

void answer_scores_come(struct answer_scores *s, const struct score *scores, size_t n)
{
    buffer_append(&s->waiting, scores, n * sizeof *scores);
}

void answer_scores_token(struct answer_scores *s, uint32_t id)
{
    size_t bytes = s->said_width * sizeof(struct score);
    if (s->lists_ids)
        buffer_printf(&s->ids, "%s%u", list_comma(&s->ids), id);
    if (!bytes || s->waiting.size < bytes)
        return;
    const struct score *row = (const struct score *)(const void *)s->waiting.data;
    s->sum += isfinite(row->logprob) && (double)row->logprob > LEAST ? (double)row->logprob : LEAST;
    s->n_summed++;
    if (s->tells && s->shape == SCORES_OF_COMPLETION)
        completion_row(s, id, row);
    else if (s->tells)
        object_row(s, id, row);
    s->waiting.size -= bytes;
    memmove(s->waiting.data, s->waiting.data + bytes, s->waiting.size);
}

void answer_scores_end(struct answer_scores *s, uint32_t id)
{
    if (s->shape != SCORES_OF_CHAT)
        answer_scores_token(s, id);
}

double answer_scores_mean(const struct answer_scores *s)
{
    return s->n_summed ? s->sum / (double)s->n_summed : 0;
}

bool answer_scores_failed(const struct answer_scores *s)
{
    return s->waiting.failed || s->tokens.failed || s->values.failed || s->tops.failed ||
           s->offsets.failed || s->prompt.failed || s->ids.failed;
}

size_t answer_scores_bytes(const struct answer_scores *s)
{
    return s->waiting.size + s->tokens.size + s->values.size + s->tops.size + s->offsets.size +
           s->prompt.size + s->ids.size;
}

/* ---- what goes out ---- */

bool answer_scores_wait(const struct answer_scores *s)
{
    return (s->tells && s->tokens.size > 0) || s->ids.size > 0;
}

static void list_write(struct buffer *out, const char *name, struct buffer *rows)
{
    buffer_printf(out, "%s[", name);
    if (rows->size)
        buffer_append(out, rows->data, rows->size);
    buffer_printf(out, "]");
    rows->size = 0;
}

void answer_scores_write_list(struct answer_scores *s, struct buffer *out)
{
    list_write(out, "", &s->tokens);
}

void answer_scores_write_ids(struct answer_scores *s, struct buffer *out)
{
    list_write(out, "", &s->ids);
}

void answer_scores_write(struct answer_scores *s, struct buffer *out)
{
    if (!s || !s->tells) {
        buffer_printf(out, ",\"logprobs\":null");
        return;
    }
    if (s->shape == SCORES_OF_CHAT) {
        list_write(out, ",\"logprobs\":{\"content\":", &s->tokens);
        buffer_printf(out, ",\"refusal\":null}");
        return;
    }
    list_write(out, ",\"logprobs\":{\"tokens\":", &s->tokens);
    list_write(out, ",\"token_logprobs\":", &s->values);
    list_write(out, ",\"top_logprobs\":", &s->tops);
    list_write(out, ",\"text_offset\":", &s->offsets);
    buffer_printf(out, "}");
}

void answer_scores_write_prompt(struct answer_scores *s, struct buffer *out)
{
    if (s->all)
        list_write(out, ",\"prompt_logprobs\":", &s->prompt);
}
