#include "hpctl/model_live.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>

#include "common/bytes.h"
#include "common/npy.h"
#include "hpctl/client.h"
#include "hpctl/waiting.h"

enum { LIVE_PATIENCE_MS = 600000 };

static json_t *ids_of(const char *text, struct err *e)
{
    json_t *list = json_array();
    for (const char *at = text;;) {
        char *end;
        errno = 0;
        unsigned long long id = *at >= '0' && *at <= '9' ? strtoull(at, &end, 10) : UINT64_MAX;
        if (id > UINT32_MAX || (*end != ',' && *end != '\0') || errno) {
            err_set(e, HP_EUSAGE, "--ids: \"%.20s\" is not a list of token ids such as 1,2,3", at);
            json_decref(list);
            return NULL;
        }
        json_array_append_new(list, json_integer((json_int_t)id));
        if (*end == '\0')
            return list;
        at = end + 1;
    }
}

static int ask_live(const struct invocation *in, const char *verb, json_t **result,
                    struct buffer *blob, struct err *e)
{
    const char *ids, *tokens = NULL;
    struct client *client;
    uint64_t slice, n = 0;
    int rc = invocation_required(in, "ids", &ids, e);
    if (rc < 0 || (rc = invocation_u64(in, "slice", 0, &slice, e)) < 0)
        return rc;
    if (!blob && ((rc = invocation_required(in, "tokens", &tokens, e)) < 0 ||
                  (rc = invocation_u64(in, "tokens", 0, &n, e)) < 0))
        return rc;
    json_t *list = ids_of(ids, e);
    if (!list)
        return HP_EUSAGE;
    json_t *arguments =
        json_pack("{s:s, s:o, s:I, s:I}", "deployment", invocation_option(in, "deployment"), "ids",
                  list, "slice", (json_int_t)slice, "tokens", (json_int_t)n);
    if ((rc = client_open(NULL, &client, e)) < 0) {
        json_decref(arguments);
        return rc;
    }
    struct client_ask ask = {.verb = verb, .arguments = arguments, .patience_ms = LIVE_PATIENCE_MS};
    struct waiting *w = waiting_begin("computing", 0, in->json);
    rc = client_ask(client, &ask, result, blob, e);
    waiting_end(&w);
    client_close(&client);
    return rc;
}

static json_t *rows_of(const float *values, uint64_t rows, uint64_t columns)
{
    json_t *list = json_array();
    for (uint64_t r = 0; r < rows; r++) {
        json_t *row = json_array();
        for (uint64_t i = 0; i < columns; i++)
            json_array_append_new(row, json_real((double)values[r * columns + i]));
        json_array_append_new(list, row);
    }
    return list;
}

int model_live_logits(const struct invocation *in, struct err *e)
{
    struct buffer blob = {0};
    struct npy_writer *w;
    json_t *result = NULL;
    if (!in->output && !in->json)
        return err_set(e, HP_EUSAGE, "hpctl model logits needs -o FILE.npy (or -o json)");
    int rc = ask_live(in, "logits", &result, &blob, e);
    uint64_t rows = (uint64_t)json_integer_value(json_object_get(result, "tokens"));
    uint64_t columns = (uint64_t)json_integer_value(json_object_get(result, "vocabulary"));
    const float *values = (const float *)(const void *)blob.data;
    if (rc == 0 && blob.size != rows * columns * sizeof *values)
        rc = err_set(e, HP_EPROTO, "%zu bytes of logits came, expected %llu x %llu numbers",
                     blob.size, (unsigned long long)rows, (unsigned long long)columns);
    if (rc == 0 && in->json)
        rc = invocation_print_json(in, json_pack("{s:o}", "logits", rows_of(values, rows, columns)),
                                   e);
    else if (rc == 0 && (rc = npy_writer_open(in->output, rows, columns, &w, e)) == 0) {
        rc = npy_writer_rows(w, values, rows, e);
        if (rc == 0)
            rc = npy_writer_close(&w, e);
        else
            npy_writer_abandon(&w);
    }
    json_decref(result);
    buffer_free(&blob);
    return rc;
}

int model_live_greedy(const struct invocation *in, struct err *e)
{
    json_t *result = NULL;
    int rc = ask_live(in, "greedy", &result, NULL, e);
    if (rc == 0 && (in->json || in->output))
        return invocation_print_json(in, result, e);
    if (rc == 0)
        printf("%s\n", json_is_string(json_object_get(result, "text"))
                           ? json_string_value(json_object_get(result, "text"))
                           : "");
    json_decref(result);
    return rc;
}
