/* The HTTP gateway over a core that only says tokens: what streams, events and connections cost the
 * one thread that it runs on. bench/gateway.py starts it, is its clients and prints what came out.
 *
 *     build/bench/gateway MODEL
 *
 * Prints the port; then obeys lines of standard input and answers each with one line:
 *     stat        open requests, connections, resident bytes, nanoseconds of processor time so far
 *     push N      N tokens to every open request, one event each; as `stat` when all are written
 *     finish      ends every open request; as `stat`
 *     answer N    from now on a request gets N tokens and its end at once; 0: none, it stays open
 */
#include "coordinator/gateway/gateway.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <time.h>
#include <unistd.h>

#include "common/log.h"
#include "common/vector.h"
#include "coordinator/work.h"
#include "model/model.h"

struct bench_request {
    uint64_t id;
    struct request_callbacks callbacks;
};

static struct bench_core {
    struct model *model;
    struct bench_request *open, *fresh; /* fresh: get their answer in this turn of the loop */
    size_t n_open, room_open, n_fresh, room_fresh;
    struct coord_work **works;
    size_t n_works, room_works;
    uint64_t next_id;
    unsigned answer;
    uv_loop_t loop;
    uv_idle_t idle;
    uv_poll_t orders;
    struct gateway *gateway;
} bench;

/* ---- the core's face ---- */

static void model_row(struct request_model *out)
{
    *out = (struct request_model){.name = "m",
                                  .state = "serving",
                                  .state_text = "",
                                  .serving = true,
                                  .context = 1 << 20,
                                  .vocabulary = 256,
                                  .retry_after_s = 1,
                                  .model = bench.model};
}

static int bench_models(void *ctx, const char *client, struct request_model *out, int max)
{
    (void)ctx, (void)client;
    if (max > 0)
        model_row(out);
    return 1;
}

static int bench_find(void *ctx, const char *client, const char *name, struct request_model *out,
                      struct err *e)
{
    (void)ctx, (void)client, (void)name, (void)e;
    model_row(out);
    return 0;
}

static int bench_begin(void *ctx, const char *client, uint32_t *retry_after_s, struct err *e)
{
    (void)ctx, (void)client, (void)retry_after_s, (void)e;
    return 0;
}

static int bench_open(void *ctx, const struct request_spec *r, uint64_t *id, struct err *e)
{
    (void)ctx;
    struct bench_request *row = bench.answer
                                    ? vector_add(bench.fresh, bench.n_fresh, bench.room_fresh)
                                    : vector_add(bench.open, bench.n_open, bench.room_open);
    if (!row)
        return err_no_memory(e, "a request");
    *row = (struct bench_request){*id = ++bench.next_id, r->callbacks};
    return 0;
}

static void bench_cancel(void *ctx, uint64_t id, bool satisfied, struct request_usage *usage)
{
    (void)ctx, (void)satisfied;
    if (usage)
        *usage = (struct request_usage){0};
    for (size_t i = bench.n_open; i-- > 0;)
        if (bench.open[i].id == id) {
            vector_remove(bench.open, bench.n_open, i);
            return;
        }
}

static int bench_keys(void *ctx)
{
    (void)ctx;
    return 0;
}

static int bench_work(void *ctx, const struct model *model, struct coord_work *w, struct err *e)
{
    (void)ctx, (void)model;
    struct coord_work **row = vector_add(bench.works, bench.n_works, bench.room_works);
    if (!row)
        return err_no_memory(e, "work");
    *row = w;
    return 0;
}

/* ---- what happens on the loop ---- */

static void token_say(const struct bench_request *r, unsigned i)
{
    const uint32_t id = 'a' + i % 26;
    r->callbacks.tokens(r->callbacks.ctx, r->id, &id, 1);
}

static void request_finish(const struct bench_request *r)
{
    const struct request_usage usage = {.prompt_tokens = 1, .output_tokens = 1};
    r->callbacks.finished(r->callbacks.ctx, r->id, REQUEST_LENGTH, &usage);
}

static void on_idle(uv_idle_t *idle)
{
    (void)idle;
    while (bench.n_works > 0) {
        struct coord_work *w = bench.works[--bench.n_works];
        w->run(w);
        w->done(w, false);
    }
    while (bench.n_fresh > 0) {
        struct bench_request r = bench.fresh[--bench.n_fresh];
        for (unsigned i = 0; i < bench.answer; i++)
            token_say(&r, i);
        request_finish(&r);
    }
}

/* The idle handle keeps the loop from sleeping only while there is something to do. */
static void on_prepare(uv_prepare_t *prepare)
{
    (void)prepare;
    if (bench.n_works + bench.n_fresh > 0)
        uv_idle_start(&bench.idle, on_idle);
    else
        uv_idle_stop(&bench.idle);
}

static uint64_t resident_bytes(void)
{
    unsigned long long total = 0, resident = 0;
    FILE *f = fopen("/proc/self/statm", "r");
    if (!f || fscanf(f, "%llu %llu", &total, &resident) != 2)
        resident = 0;
    if (f)
        fclose(f);
    return resident * (uint64_t)sysconf(_SC_PAGESIZE);
}

static void stat_print(void)
{
    struct timespec t;
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    printf("%zu %llu %lld\n", bench.n_open, (unsigned long long)resident_bytes(),
           (long long)t.tv_sec * 1000000000 + t.tv_nsec);
    fflush(stdout);
}

static void order_obey(const char *line)
{
    unsigned n = 0;
    if (sscanf(line, "push %u", &n) == 1) {
        for (unsigned k = 0; k < n; k++)
            for (size_t i = bench.n_open; i-- > 0;)
                token_say(&bench.open[i], k);
    } else if (strncmp(line, "finish", 6) == 0) {
        while (bench.n_open > 0) {
            struct bench_request r = bench.open[--bench.n_open];
            request_finish(&r);
        }
    } else if (sscanf(line, "answer %u", &n) == 1) {
        bench.answer = n;
    }
    stat_print();
}

static void on_order(uv_poll_t *poll, int status, int events)
{
    char line[100];
    (void)poll, (void)status, (void)events;
    ssize_t n = read(STDIN_FILENO, line, sizeof line - 1);
    if (n <= 0)
        exit(0);
    line[n] = '\0';
    order_obey(line);
}

int main(int argc, char **argv)
{
    struct err e = {0};
    struct rlimit files;
    uv_prepare_t prepare;
    struct requests table = {.models = bench_models,
                             .find = bench_find,
                             .begin = bench_begin,
                             .open = bench_open,
                             .cancel = bench_cancel,
                             .api_keys = bench_keys,
                             .work = bench_work};
    struct gateway_config config = {.listen = "127.0.0.1:0"};
    log_set_level(LOG_ERROR);
    if (getrlimit(RLIMIT_NOFILE, &files) == 0) {
        files.rlim_cur = files.rlim_max;
        setrlimit(RLIMIT_NOFILE, &files);
    }
    if (argc != 2 || model_open(argv[1], &bench.model, &e) < 0) {
        fprintf(stderr, "usage: gateway MODEL: %s\n", e.text);
        return 1;
    }
    uv_loop_init(&bench.loop);
    uv_idle_init(&bench.loop, &bench.idle);
    uv_prepare_init(&bench.loop, &prepare);
    uv_prepare_start(&prepare, on_prepare);
    uv_poll_init(&bench.loop, &bench.orders, STDIN_FILENO);
    uv_poll_start(&bench.orders, UV_READABLE, on_order);
    if (gateway_start(&bench.loop, &config, &table, &bench.gateway, &e) < 0) {
        fprintf(stderr, "%s\n", e.text);
        return 1;
    }
    printf("%d\n", gateway_port(bench.gateway));
    fflush(stdout);
    return uv_run(&bench.loop, UV_RUN_DEFAULT);
}
