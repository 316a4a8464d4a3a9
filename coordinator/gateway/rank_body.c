#include "coordinator/gateway/rank_body.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "coordinator/gateway/body_fields.h"
#include "coordinator/gateway/json_write.h"

/* ---- the texts ---- */

/* A text, or Jina's {"text": ..}. */
static json_t *text_of(json_t *v)
{
    json_t *text = json_is_object(v) ? json_object_get(v, "text") : v;
    return json_is_string(text) ? text : NULL;
}

/* Appends one text, or a list of them, to `all`; how many, or an error. */
static int texts_add(struct embedding_body *b, const char *name, json_t *all)
{
    json_t *v = json_object_get(b->root, name);
    size_t n = json_is_array(v) ? json_array_size(v) : 1;
    if (!v || json_is_null(v))
        return body_field_refuse(&b->param, name, &b->failure, "is missing");
    if (n == 0 || n >= EMBEDDING_MAX_TEXTS)
        return body_field_refuse(&b->param, name, &b->failure, "must hold 1 to 2047 texts");
    for (size_t i = 0; i < n; i++) {
        json_t *text = text_of(json_is_array(v) ? json_array_get(v, i) : v);
        if (!text)
            return body_field_refuse(&b->param, name, &b->failure,
                                     "must be a text or a list of texts");
        if (json_array_append(all, text) < 0)
            return err_no_memory(&b->failure, "the texts");
    }
    return (int)n;
}

static int options_read(struct embedding_body *b)
{
    static const char *const cuts[] = {"truncate_prompt_tokens", "max_tokens_per_doc",
                                       "max_chunks_per_doc", "rank_fields"};
    for (size_t i = 0; i < sizeof cuts / sizeof *cuts; i++) {
        const json_t *cut = json_object_get(b->root, cuts[i]);
        if (cut && !json_is_null(cut))
            return body_field_refuse(&b->param, cuts[i], &b->failure,
                                     "texts are compared whole; leave it out");
    }
    const json_t *keeps = json_object_get(b->root, "return_documents");
    int64_t most;
    int rc =
        body_field_whole(b->root, "top_n", 1, INT32_MAX, INT32_MAX, &most, &b->param, &b->failure);
    bool returns;
    rc = rc < 0 ? rc
                : body_field_flag(b->root, "return_documents", &returns, &b->param, &b->failure);
    b->best = rc < 0 ? 0 : (size_t)most;
    b->returns_texts = rc == 0 && (returns || !keeps || json_is_null(keeps));
    return rc;
}

int rank_body_read(struct embedding_body *b)
{
    bool ranks = b->form == EMBEDDING_RERANK;
    const char *first = ranks ? "query" : "text_1", *second = ranks ? "documents" : "text_2";
    json_t *all = json_array();
    int queries = all ? texts_add(b, first, all) : err_no_memory(&b->failure, "the texts");
    int others = queries < 0 ? queries : texts_add(b, second, all);
    int rc = others < 0 ? others : options_read(b);
    if (rc == 0 && queries > 1 && (ranks || queries != others))
        rc = body_field_refuse(&b->param, first, &b->failure,
                               ranks ? "is one text" : "is one text, or as many as text_2 has");
    if (rc == 0 && json_object_set(b->root, "input", all) < 0)
        rc = err_no_memory(&b->failure, "the texts");
    if (rc == 0) {
        b->n_queries = (size_t)queries;
        b->compared = json_incref(all);
    }
    json_decref(all);
    return rc;
}

/* ---- the answer ---- */

struct ranked_text {
    size_t index;
    double score;
};

static double rows_cosine(const float *a, const float *b, size_t n)
{
    double both = 0, one = 0, other = 0;
    for (size_t i = 0; i < n; i++) {
        both += (double)a[i] * (double)b[i];
        one += (double)a[i] * (double)a[i];
        other += (double)b[i] * (double)b[i];
    }
    double lengths = sqrt(one) * sqrt(other);
    return lengths > 0 ? both / lengths : 0;
}

static int ranked_compare(const void *a, const void *b)
{
    const struct ranked_text *x = a, *y = b;
    return x->score > y->score   ? -1
           : x->score < y->score ? 1
                                 : (x->index > y->index) - (x->index < y->index);
}

static void scores_write(const struct ranked_text *list, size_t n, struct buffer *out)
{
    for (size_t i = 0; i < n; i++)
        buffer_printf(out, "%s{\"index\":%zu,\"object\":\"score\",\"score\":%.9g}", i ? "," : "",
                      list[i].index, list[i].score);
}

static void ranks_write(const struct embedding_body *b, struct ranked_text *list, size_t n,
                        struct buffer *out)
{
    qsort(list, n, sizeof *list, ranked_compare);
    for (size_t i = 0; i < n && i < b->best; i++) {
        buffer_printf(out, "%s{\"index\":%zu,\"relevance_score\":%.9g", i ? "," : "", list[i].index,
                      list[i].score);
        if (b->returns_texts) {
            buffer_printf(out, ",\"document\":{\"text\":");
            json_write_text(
                out, json_string_value(json_array_get(b->compared, list[i].index + b->n_queries)));
            buffer_printf(out, "}");
        }
        buffer_printf(out, "}");
    }
}

/* Of each text beside its query, by as many numbers of the rows as are asked for. */
static struct ranked_text *texts_compare(const struct embedding_body *b, size_t n)
{
    struct ranked_text *list = calloc(n + 1, sizeof *list);
    for (size_t i = 0; list && i < n; i++) {
        const float *query = b->texts[b->n_queries > 1 ? i : 0].row;
        list[i].index = i;
        list[i].score = rows_cosine(query, b->texts[b->n_queries + i].row, b->dimensions);
    }
    return list;
}

void rank_body_write(const struct embedding_body *b, struct buffer *out)
{
    bool ranks = b->form == EMBEDDING_RERANK;
    size_t n = b->n_texts - b->n_queries;
    struct ranked_text *list = texts_compare(b, n);
    if (!list) {
        out->failed = true;
        return;
    }
    buffer_printf(out, "{\"object\":\"list\",\"model\":");
    json_write_text(out, b->name);
    buffer_printf(out, ",\"%s\":[", ranks ? "results" : "data");
    if (ranks)
        ranks_write(b, list, n, out);
    else
        scores_write(list, n, out);
    buffer_printf(out, "],\"usage\":{\"prompt_tokens\":%llu,\"total_tokens\":%llu}}",
                  (unsigned long long)b->prompt_tokens, (unsigned long long)b->prompt_tokens);
    free(list);
}
