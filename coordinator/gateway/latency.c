#include "coordinator/gateway/latency.h"

#include <inttypes.h>
#include <stdlib.h>

#include "coordinator/gateway/json_write.h"

/* Seconds; a last bucket has all. */
static const double bounds[] = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,
                                1,     2.5,    5,     10,   25,    50,   100, 250,  500};
enum { BOUNDS = sizeof bounds / sizeof *bounds, KINDS = 4 };

static const struct {
    const char *name, *help;
} kinds[KINDS] = {
    {"hp_answer_queue_seconds", "From a request to its turn"},
    {"hp_answer_first_token_seconds", "From a request to its answer's first token"},
    {"hp_answer_token_seconds", "From one token of an answer to the next, on average"},
    {"hp_answer_seconds", "From a request to its answer's last token"},
};

struct histogram {
    uint64_t counts[BOUNDS + 1]; /* each of its own range */
    double sum;
};

struct latency_row {
    struct latency_row *next;
    char *deployment;
    struct histogram of[KINDS];
};

static void histogram_add(struct histogram *h, double seconds)
{
    int i = 0;
    while (i < BOUNDS && seconds > bounds[i])
        i++;
    h->counts[i]++;
    h->sum += seconds;
}

static struct latency_row *latency_row_of(struct latency *l, const char *deployment)
{
    struct latency_row *row = l->rows;
    while (row && strcmp(row->deployment, deployment) != 0)
        row = row->next;
    if (row || l->n_rows == REQUEST_MAX_MODELS || !(row = calloc(1, sizeof *row)))
        return row;
    if (!(row->deployment = strdup(deployment))) {
        free(row);
        return NULL;
    }
    row->next = l->rows;
    l->rows = row;
    l->n_rows++;
    return row;
}

void latency_note(struct latency *l, const char *deployment, const struct request_usage *u)
{
    struct latency_row *row = latency_row_of(l, deployment);
    double first_s = u->waited_s + u->prefill_s;
    if (!row)
        return;
    histogram_add(&row->of[0], u->waited_s);
    histogram_add(&row->of[1], first_s);
    if (u->output_tokens > 1)
        histogram_add(&row->of[2], u->decode_s / (double)(u->output_tokens - 1));
    histogram_add(&row->of[3], first_s + u->decode_s);
}

static void histogram_write(struct buffer *out, const char *name, const char *deployment,
                            const struct histogram *h)
{
    uint64_t all = 0;
    for (int i = 0; i <= BOUNDS; i++) {
        all += h->counts[i];
        buffer_printf(out, "%s_bucket{deployment=", name);
        json_write_text(out, deployment);
        if (i < BOUNDS)
            buffer_printf(out, ",le=\"%g\"} %" PRIu64 "\n", bounds[i], all);
        else
            buffer_printf(out, ",le=\"+Inf\"} %" PRIu64 "\n", all);
    }
    buffer_printf(out, "%s_sum{deployment=", name);
    json_write_text(out, deployment);
    buffer_printf(out, "} %.9g\n%s_count{deployment=", h->sum, name);
    json_write_text(out, deployment);
    buffer_printf(out, "} %" PRIu64 "\n", all);
}

void latency_write(const struct latency *l, struct buffer *out)
{
    for (int k = 0; k < KINDS && l->rows; k++) {
        buffer_printf(out, "# HELP %s %s\n# TYPE %s histogram\n", kinds[k].name, kinds[k].help,
                      kinds[k].name);
        for (const struct latency_row *row = l->rows; row; row = row->next)
            histogram_write(out, kinds[k].name, row->deployment, &row->of[k]);
    }
}

void latency_free(struct latency *l)
{
    while (l->rows) {
        struct latency_row *row = l->rows;
        l->rows = row->next;
        free(row->deployment);
        free(row);
    }
    l->n_rows = 0;
}
