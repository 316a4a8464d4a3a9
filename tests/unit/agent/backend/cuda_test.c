/* The cuda backend's plugin as the stand-in runs it (tests/cuda_on_cpu): what the stand-in finds,
 * and what happens when there is no driver, no memory or no GPU any more. */
#include <stdatomic.h>
#include <stdio.h>
#include <sys/wait.h>
#include <unistd.h>

#include "agent/engine/local.h"
#include "agent/engine/section_plan.h"
#include "agent/engine/stage.h"
#include "model/model.h"
#include "tests/unit/agent/backend/cuda_fixture.h"

/* ---- the stand-in itself ---- */

/* Runs `faults NAME`: its exit status, and what it says. */
static int fault_run(const char *name, char *said, size_t size)
{
    int ends[2], status;
    assert_int_equal(pipe(ends), 0);
    pid_t child = fork();
    if (child == 0) {
        dup2(ends[1], STDERR_FILENO);
        close(ends[0]);
        const char *path = standin_path("faults");
        execl(path, path, name, (char *)NULL);
        _exit(127);
    }
    close(ends[1]);
    size_t at = 0;
    for (ssize_t n; (n = read(ends[0], said + at, size - 1 - at)) > 0;)
        at += (size_t)n;
    said[at] = '\0';
    close(ends[0]);
    assert_int_equal(waitpid(child, &status, 0), child);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

TEST(the_stand_in_finds_each_kind_of_fault)
{
    static const struct {
        const char *name, *words, *where;
    } cases[] = {
        {"past_the_end", "bytes past the end of an allocation of 256 bytes",
         "kernel past_the_end, block (1,0,0), thread ("},
        {"before_it", "out of bounds: read", "thread (0,0,0), faults.cu:"},
        {"unwritten", "nobody has written", "faults.cu:"},
        {"freed", "out of bounds: read", "faults.cu:"},
        {"host_memory", "read of the host's memory", "faults.cu:"},
        {"no_barrier", "shared memory", "kernel no_barrier"},
        {"write_after_read", "without a barrier between", "faults.cu:"},
        {"shared_unwritten", "no thread of the block has written", "faults.cu:"},
        {"blocks_race", "race in device memory", "faults.cu:"},
        {"barrier_left_out", "never reaches", "faults.cu:"},
        {"lanes_left_out", "wait for others that never come", "faults.cu:"},
        {"host_touches", "the host touches device memory", ""},
        {"early_read", "read of what a kernel has written, which may not be over",
         "kernel early_read"},
        {"early_second", "which may not be over", "kernel early_read"},
        {"early_last", "which may not be over", "kernel early_read"},
        {"early_write", "write before those of earlier kernels are over", "faults.cu:"},
        {"early_end", "ends without a wait for others", "thread (63,0,0)"},
        {"copy_past_the_end", "a copy of 260 bytes: out of bounds", ""},
    };
    char said[2048];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        int status = fault_run(cases[i].name, said, sizeof said);
        if (status != 86 || !strstr(said, cases[i].words) || !strstr(said, cases[i].where))
            fail_msg("%s: status %d, \"%s\"", cases[i].name, status, said);
    }
}

TEST(the_stand_in_lets_what_is_right_be)
{
    char said[2048];
    static const char *const names[] = {"none",          "event",       "early",     "early_copy",
                                        "early_between", "early_graph", "early_seen"};
    for (size_t i = 0; i < sizeof names / sizeof *names; i++)
        if (fault_run(names[i], said, sizeof said) != 0)
            fail_msg("%s: %s", names[i], said);
}

TEST(a_missing_wait_for_another_stream_is_found_by_some_seed)
{
    static const char *const names[] = {"no_event", "early_other"};
    char said[2048], seed[32];
    for (size_t k = 0; k < sizeof names / sizeof *names; k++) {
        int found = 0;
        for (int i = 1; i <= 8; i++) {
            snprintf(seed, sizeof seed, "seed=%d", i);
            setenv("CUDA_ON_CPU", seed, 1);
            found += fault_run(names[k], said, sizeof said) == 86;
        }
        unsetenv("CUDA_ON_CPU");
        assert_true(found > 0);
    }
}

/* ---- older GPUs ---- */

/* Neither bf16 nor tensor cores: products of f16, attention without tiles. */
TEST(an_older_gpu_goes_another_way)
{
    static const struct device_config plain = {.backend = "plain"};
    void (*restart)(void) = NULL;
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    setenv("CUDA_ON_CPU", "capability=60", 1);
    restart();
    enum { TOKENS = 20, WIDTH = 64 };
    static const uint32_t pages[] = {0};
    const uint32_t *by_group[] = {pages};
    const struct attention_run run = {.n_tokens = TOKENS, .pages = by_group};
    const struct graph_op attention = {.kind = OP_ATTENTION,
                                       .n_inputs = 3,
                                       .u.attention = {.heads = 1, .kv_heads = 1, .head_dim = 64}};
    struct device *devices[2] = {cuda_open(0)};
    static float out[2][TOKENS * WIDTH];
    struct err e = {0};
    float *x = op_random(TOKENS * WIDTH, 3, 1), *values = op_random(WIDTH * WIDTH, 4, 1);
    uint8_t bytes[WIDTH * WIDTH * 2];
    struct weight w = weight_make(DTYPE_BF16, values, WIDTH, WIDTH, bytes);
    assert_int_equal(device_open(&plain, &devices[1], &e), 0);
    for (int k = 0; k < 2; k++) {
        struct kv_group g = {.layout = {.n_blocks = 1, .n_kv_heads = 1, .head_dim = 64}};
        const struct backend *b = devices[k]->backend;
        assert_int_equal(
            b->memory_alloc(devices[k], b->kv_page_bytes(devices[k], &g.layout), &g.pool, &e), 0);
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        struct op_rows rows = {x, TOKENS, WIDTH};
        op_run_once(devices[k], &attention, (struct op_rows[]){rows, rows, rows}, NULL, &batch,
                    out[k], TOKENS, WIDTH);
        b->memory_release(devices[k], &g.pool);
    }
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        assert_true(fabsf(out[0][i] - out[1][i]) <= 2e-5f);
    struct device_choice choices[4];
    assert_int_equal(devices[0]->backend->choices(devices[0], choices, 4), 4);
    assert_non_null(strstr(choices[2].why, "f16 with float32 sums"));
    /* weights of bf16 are turned */
    const struct weight *list[] = {&w, NULL};
    const struct graph_op product = {
        .kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = list};
    const struct backend *b = devices[0]->backend;
    struct op_request request = {.op = &product};
    struct device_weight *loaded;
    struct device_op *ready;
    struct stream *s;
    assert_int_equal(b->weight_load(devices[0], &w, WEIGHT_MATMUL, false, &loaded, &e), 0);
    request.weights[0] = loaded;
    assert_int_equal(b->op_prepare(devices[0], &request, &ready, &e), 0);
    assert_int_equal(b->stream_create(devices[0], &s, &e), 0);
    struct tensor in = op_tensor(devices[0], s, &(struct op_rows){x, TOKENS, WIDTH}),
                  to = op_tensor(devices[0], s, &(struct op_rows){NULL, TOKENS, WIDTH}),
                  host = tensor_on_host(out[0], DTYPE_F32, TOKENS, WIDTH);
    b->op_run(s, ready, &in, &to, NULL);
    b->copy(s, &host, &to);
    assert_int_equal(b->stream_wait(s, &e), 0);
    op_run_once(devices[1], &product, (struct op_rows[]){{x, TOKENS, WIDTH}},
                (struct op_weight[]){{&w, WEIGHT_MATMUL}, {NULL, WEIGHT_VECTOR}}, NULL, out[1],
                TOKENS, WIDTH);
    for (size_t i = 0; i < TOKENS * WIDTH; i++)
        assert_true(fabsf(out[0][i] - out[1][i]) <= 2e-2f);
    b->memory_release(devices[0], &in.memory), b->memory_release(devices[0], &to.memory);
    b->op_release(&ready), b->weight_free(devices[0], &loaded), b->stream_destroy(&s);
    free(x), free(values);
    device_close(&devices[0]), device_close(&devices[1]);
    unsetenv("CUDA_ON_CPU");
    restart();
}

/* ---- what goes wrong ---- */

TEST(a_gpu_without_enough_memory_says_how_many_bytes_are_missing)
{
    struct device *d = cuda_open(1024);
    struct memory m;
    struct err e = {0};
    assert_int_equal(d->backend->memory_alloc(d, 1500, &m, &e), HP_ENOMEM);
    assert_non_null(
        strstr(e.text, "and 1024 are left: 512 bytes are missing")); /* in whole steps */
    assert_int_equal(d->backend->memory_alloc(d, 1000, &m, &e), 0);
    assert_int_equal(d->backend->memory_free(d), 0);
    d->backend->memory_release(d, &m);
    assert_int_equal(d->backend->memory_free(d), 1024);
    device_close(&d);
}

TEST(a_device_has_its_memory_from_the_beginning)
{
    const struct device_config c = {
        .backend = "cuda", .of = plugin_open()->backend, .memory_bytes = (uint64_t)3 << 29};
    struct device *d = NULL, *all = cuda_open((uint64_t)1 << 30);
    struct err e = {0};
    assert_int_equal(device_open(&c, &d, &e), HP_ENOMEM);
    assert_null(d);
    assert_non_null(strstr(e.text, "device cuda:0: its memory needs 1610612736 bytes, and 0 are "
                                   "left: 1610612736 bytes are missing"));
    device_close(&all);
    assert_int_equal(device_open(&c, &d, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "1073741824 are left: 536870912 bytes are missing"));
}

/* What is given back is there again, gaps that touch are one, and a gap that is too small for what
 * is asked is told as such. */
TEST(memory_is_given_out_in_parts_that_have_nothing_in_common)
{
    enum { PARTS = 8, PART = 4096 };
    struct device *d = cuda_open(PARTS * PART);
    const struct backend *b = d->backend;
    struct memory m[PARTS], more;
    struct err e = {0};
    for (int i = 0; i < PARTS; i++)
        assert_int_equal(b->memory_alloc(d, PART, &m[i], &e), 0);
    assert_int_equal(b->memory_free(d), 0);
    for (int i = 0; i < PARTS; i += 2)
        b->memory_release(d, &m[i]);
    assert_int_equal(b->memory_free(d), PARTS / 2 * PART);
    assert_int_equal(b->memory_alloc(d, 3 * PART, &more, &e), HP_ENOMEM);
    if (!strstr(e.text, "a tensor needs 12288 bytes in one piece, and the largest that is left of "
                        "16384 has "))
        fail_msg("%s", e.text);
    b->memory_release(d, &m[1]);
    assert_int_equal(b->memory_alloc(d, 3 * PART, &more, &e), 0);
    for (int i = 3; i < PARTS; i += 2)
        assert_true((uint8_t *)m[i].data >= (uint8_t *)more.data + 3 * PART ||
                    (uint8_t *)m[i].data + PART <= (uint8_t *)more.data);
    b->memory_release(d, &more);
    for (int i = 3; i < PARTS; i += 2)
        b->memory_release(d, &m[i]);
    assert_int_equal(b->memory_alloc(d, PARTS * PART, &more, &e), 0);
    b->memory_release(d, &more);
    device_close(&d);
}

/* Whoever destroys a stream need not have waited for it. */
TEST(work_of_a_stream_is_done_before_its_memory_goes)
{
    const struct backend *b = plugin_open()->backend;
    static float x[64 * 64], out[64 * 64];
    struct device *d = cuda_open(1 << 20);
    for (int i = 0; i < 4; i++) {
        struct stream *s;
        struct memory m[2];
        struct err e = {0};
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        for (int k = 0; k < 2; k++)
            assert_int_equal(b->memory_alloc(d, sizeof x, &m[k], &e), 0);
        struct tensor in = tensor_rows(m[0], DTYPE_F32, 64, 64),
                      to = tensor_rows(m[1], DTYPE_F32, 64, 64),
                      from = tensor_on_host(x, DTYPE_F32, 64, 64);
        b->copy(s, &in, &from);
        b->copy(s, &to, &in);
        b->stream_destroy(&s);
        for (int k = 0; k < 2; k++)
            b->memory_release(d, &m[k]);
    }
    struct stream *s;
    struct memory m;
    struct err e = {0};
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->memory_alloc(d, sizeof x, &m, &e), 0);
    struct tensor in = tensor_rows(m, DTYPE_F32, 64, 64),
                  host = tensor_on_host(out, DTYPE_F32, 64, 64);
    b->copy(s, &host, &in);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->stream_destroy(&s);
    b->memory_release(d, &m);
    device_close(&d);
}

/* What a stage with that much of the host's memory for tables, and small weights, says of a prompt
 * and of a token after it, and needs of the GPU; `left`: of the GPU's memory, beside it. */
static uint64_t stage_says(struct model *m, uint64_t host_bytes, uint64_t small_bytes,
                           float *logits, uint64_t *left)
{
    static const uint32_t prompt[] = {1, 40, 52, 7};
    const struct device_config config = {.backend = "cuda",
                                         .of = plugin_open()->backend,
                                         .memory_bytes = 64 << 20,
                                         .host_bytes = host_bytes,
                                         .small_bytes = small_bytes};
    const struct batch_run next = {
        .sequence = 1, .first_position = 3, .n_tokens = 1, .n_logits = 1};
    const struct batch_run run = {.sequence = 1, .n_tokens = 3, .n_logits = 1};
    struct device *d;
    struct stage *s = NULL;
    struct err e = {0};
    if (device_open(&config, &d, &e) < 0)
        fail_msg("%s", e.text);
    const struct stage_config c = {.model = m,
                                   .end_layer = model_graph(m)->n_layers,
                                   .device = d,
                                   .kv_tokens = 64,
                                   .max_sequences = 1,
                                   .max_batch_tokens = 64};
    struct section_need need, again;
    assert_int_equal(stage_footprint(&c, &need, &e), 0);
    if (stage_load(&c, &s, &e) < 0 || stage_sequence_open(s, 1, 64, &e) < 0 ||
        stage_run(s, &run, 1, prompt, logits, &e) < 0 ||
        stage_run(s, &next, 1, prompt + 3, logits, &e) < 0)
        fail_msg("%s", e.text);
    *left = d->backend->memory_free(d);
    stage_unload(&s);
    assert_int_equal(stage_footprint(&c, &again, &e), 0); /* what was given back is there */
    assert_int_equal(again.weight_bytes, need.weight_bytes);
    device_close(&d);
    return need.weight_bytes;
}

TEST(tables_of_embeddings_are_read_where_the_host_has_them)
{
    struct model *m;
    struct err e = {0};
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    size_t width = graph_head_width(model_graph(m));
    const struct weight *table = NULL;
    const struct graph *g = model_graph(m);
    for (int i = 0; !table; i++)
        if (g->ops[i].kind == OP_EMBED)
            table = g->ops[i].weights[0];
    float *on_gpu = calloc(width, sizeof *on_gpu), *on_host = calloc(width, sizeof *on_host);
    uint64_t left, all = stage_says(m, 0, 0, on_gpu, &left),
                   bytes = (table->bytes + 255) / 256 * 256;
    assert_int_equal(stage_says(m, bytes, 0, on_host, &left), all - bytes);
    assert_memory_equal(on_gpu, on_host, width * sizeof *on_gpu);
    assert_int_equal(stage_says(m, table->bytes - 16, 0, on_host, &left), all); /* too large */
    assert_memory_equal(on_gpu, on_host, width * sizeof *on_gpu);
    free(on_gpu), free(on_host);
    model_close(&m);
}

/* Norms, and then products, too; where the room ends, the others are the GPU's. */
TEST(small_weights_are_read_where_the_host_has_them)
{
    struct model *m;
    struct err e = {0};
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    size_t width = graph_head_width(model_graph(m));
    float *on_gpu = calloc(width, sizeof *on_gpu), *on_host = calloc(width, sizeof *on_host);
    const uint64_t vector = 4096, any = UINT64_MAX, room = 32 << 20;
    uint64_t none, norms, most, some;
    stage_says(m, 0, 0, on_gpu, &none);
    stage_says(m, room, vector, on_host, &norms);
    assert_memory_equal(on_gpu, on_host, width * sizeof *on_gpu);
    stage_says(m, room, any, on_host, &most);
    assert_memory_equal(on_gpu, on_host, width * sizeof *on_gpu);
    stage_says(m, 200 << 10, any, on_host, &some);
    assert_memory_equal(on_gpu, on_host, width * sizeof *on_gpu);
    assert_true(none < norms && norms < most && none < some && some < most);
    free(on_gpu), free(on_host);
    model_close(&m);
}

/* A stage that fits to the byte loads and runs, and with one step less it is told what is missing
 * before anything is loaded. */
TEST(what_a_stage_needs_is_known_before_it_is_loaded)
{
    static const uint32_t prompt[] = {1, 40, 52};
    struct model *m;
    struct err e = {0};
    struct section_need need;
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    float *logits = calloc(graph_head_width(model_graph(m)), sizeof *logits);
    struct device *d = cuda_open(1 << 20);
    struct stage_config c = {.model = m,
                             .end_layer = model_graph(m)->n_layers,
                             .device = d,
                             .kv_tokens = 64,
                             .max_sequences = 1,
                             .max_batch_tokens = 64};
    assert_int_equal(stage_footprint(&c, &need, &e), 0);
    uint64_t bytes = need.weight_bytes + need.activation_bytes + need.state_bytes;
    assert_int_equal(bytes % 256, 0);
    device_close(&d);
    for (int less = 0; less < 2; less++) {
        struct stage *s = NULL;
        struct err short_of = {0};
        c.device = d = cuda_open(bytes - (less ? 256 : 0));
        int rc = stage_load(&c, &s, &short_of);
        assert_int_equal(rc, less ? HP_ENOMEM : 0);
        if (less)
            assert_non_null(strstr(short_of.text, ": 256 bytes are missing"));
        else {
            const struct batch_run run = {.sequence = 1, .n_tokens = 3, .n_logits = 1};
            assert_int_equal(stage_sequence_open(s, 1, 64, &e), 0);
            if (stage_run(s, &run, 1, prompt, logits, &e) < 0)
                fail_msg("%s", e.text);
            stage_unload(&s);
        }
        assert_int_equal(d->backend->memory_free(d), bytes - (less ? 256 : 0));
        device_close(&d);
    }
    free(logits);
    model_close(&m);
}

TEST(a_box_without_a_driver_or_such_a_gpu_is_told_so)
{
    static const struct device_part whole;
    const struct plugin *p = plugin_open();
    struct plugin_facts facts;
    struct err e = {0};
    void (*restart)(void) = NULL;
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    assert_int_equal(p->facts(1, &whole, &facts, &e), HP_EDEVICE);
    assert_non_null(strstr(e.text, "no device cuda:1: this box has 1 GPUs"));
    setenv("CUDA_ON_CPU", "driver=0", 1);
    restart();
    assert_int_equal(p->facts(0, &whole, &facts, &e), HP_EDEVICE);
    assert_non_null(strstr(e.text, "this box has no NVIDIA driver"));
    setenv("CUDA_ON_CPU", "driver=12040", 1);
    restart();
    assert_int_equal(p->facts(0, &whole, &facts, &e), HP_EDEVICE);
    assert_non_null(
        strstr(e.text, "driver knows CUDA 12.4, and libhp-cuda.so was built with 13.0"));
    struct device *d = NULL;
    const struct device_config c = {.backend = "cuda", .of = p->backend};
    assert_int_equal(device_open(&c, &d, &e), HP_EDEVICE);
    assert_null(d);
    setenv("CUDA_ON_CPU", "driver=13010", 1); /* newer is right */
    restart();
    assert_int_equal(p->facts(0, &whole, &facts, &e), 0);
    unsetenv("CUDA_ON_CPU");
    restart();
    assert_int_equal(p->facts(0, &whole, &facts, &e), 0);
}

/* From each call on in turn all calls fail, as when the GPU falls off the bus: an error, no crash.
 */
TEST(a_gpu_that_falls_off_the_bus_is_an_error_at_every_call)
{
    const struct backend *b = plugin_open()->backend;
    void (*restart)(void) = NULL;
    uint64_t (*calls)(void) = NULL;
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&calls = standin_symbol("cuda_on_cpu_calls");
    float x[64] = {1}, out[64];
    bool went_well = false;
    for (int fails = 1; !went_well; fails++) {
        char setting[64];
        struct device *d = NULL;
        struct stream *s = NULL;
        struct memory m = {0};
        struct err e = {0};
        assert_true(fails < 200);
        snprintf(setting, sizeof setting, "call_fails=%d", fails);
        setenv("CUDA_ON_CPU", setting, 1);
        restart();
        const struct device_config c = {.backend = "cuda", .of = b};
        int rc = device_open(&c, &d, &e);
        rc = rc < 0 ? rc : b->stream_create(d, &s, &e);
        rc = rc < 0 ? rc : b->memory_alloc(d, sizeof x, &m, &e);
        if (rc == 0) {
            struct tensor t = tensor_rows(m, DTYPE_F32, 1, 64),
                          from = tensor_on_host(x, DTYPE_F32, 1, 64),
                          to = tensor_on_host(out, DTYPE_F32, 1, 64);
            b->copy(s, &t, &from);
            b->copy(s, &to, &t);
            rc = b->stream_wait(s, &e);
        }
        went_well = rc == 0;
        assert_true(!went_well || calls() < (uint64_t)fails);
        if (rc < 0) {
            assert_int_equal(e.code, HP_EDEVICE);
            assert_non_null(strstr(e.text, "illegal memory access"));
        }
        unsetenv("CUDA_ON_CPU");
        if (m.data)
            b->memory_release(d, &m);
        if (s)
            b->stream_destroy(&s);
        if (d)
            device_close(&d);
    }
    restart();
}

/* Few rows by integers, many by cuBLASLt, then attention in tiles and in parts, then steps that are
 * kept: what went wrong first, or 0. All is given back, whatever happened. */
enum { SOME_ROWS = 20, SOME_WIDTH = 64 };
static int some_work(struct err *e)
{
    const struct backend *b = plugin_open()->backend;
    const struct device_config c = {.backend = "cuda", .of = b};
    struct device *d = NULL;
    struct stream *s = NULL;
    struct device_weight *loaded = NULL;
    struct device_op *ready[2] = {0};
    struct memory m[2] = {0};
    struct kv_group g = {.layout = {.n_blocks = 1, .n_kv_heads = 1, .head_dim = SOME_WIDTH}};
    static float values[SOME_WIDTH * SOME_WIDTH], x[SOME_ROWS * SOME_WIDTH];
    static uint8_t bytes[SOME_WIDTH * SOME_WIDTH * 2];
    static const uint32_t pages[] = {0};
    const uint32_t *by_group[] = {pages};
    struct weight w = weight_make(DTYPE_Q8_0, values, SOME_WIDTH, SOME_WIDTH, bytes);
    const struct weight *list[] = {&w, NULL};
    const struct graph_op ops[] = {
        {.kind = OP_MATMUL, .n_inputs = 1, .n_weights = 1, .weights = list},
        {.kind = OP_ATTENTION,
         .n_inputs = 3,
         .u.attention = {.heads = 1, .kv_heads = 1, .head_dim = SOME_WIDTH}}};
    int rc = device_open(&c, &d, e);
    rc = rc < 0 ? rc : b->stream_create(d, &s, e);
    for (int i = 0; i < 2; i++)
        rc = rc < 0 ? rc : b->memory_alloc(d, sizeof x, &m[i], e);
    rc = rc < 0 ? rc : b->memory_alloc(d, b->kv_page_bytes(d, &g.layout), &g.pool, e);
    rc = rc < 0 ? rc : b->weight_load(d, &w, WEIGHT_MATMUL, false, &loaded, e);
    for (int i = 0; i < 2; i++) {
        const struct op_request request = {.op = &ops[i], .weights = {i ? NULL : loaded}};
        rc = rc < 0 ? rc : b->op_prepare(d, &request, &ready[i], e);
    }
    for (int i = 0; rc == 0 && i < 3; i++) {
        uint32_t rows = i == 0 ? 1 : i == 1 ? SOME_ROWS : 9;
        struct tensor in[3], out = tensor_rows(m[1], DTYPE_F32, rows, SOME_WIDTH),
                             host = tensor_on_host(x, DTYPE_F32, rows, SOME_WIDTH);
        const struct attention_run run = {
            .n_tokens = rows, .first_position = rows - 1, .pages = by_group};
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        for (int k = 0; k < 3; k++)
            in[k] = tensor_rows(m[0], DTYPE_F32, rows, SOME_WIDTH);
        b->copy(s, &in[0], &host);
        b->op_run(s, ready[0], in, &out, NULL);
        b->op_run(s, ready[1], in, &out, &batch);
        rc = b->stream_wait(s, e);
    }
    for (uint32_t i = 0; rc == 0 && i < 4; i++) {
        struct tensor in[3], out = tensor_rows(m[1], DTYPE_F32, 1, SOME_WIDTH);
        const struct attention_run run = {.n_tokens = 1, .first_position = i, .pages = by_group};
        const struct op_batch batch = {.runs = &run, .n_runs = 1, .kv = &g};
        for (int k = 0; k < 3; k++)
            in[k] = tensor_rows(m[0], DTYPE_F32, 1, SOME_WIDTH);
        bool there = b->steps_begin(s, 1, &batch);
        for (int k = 0; k < 2 && !there; k++) {
            b->op_run(s, ready[0], in, &out, NULL);
            b->op_run(s, ready[1], in, &out, &batch);
            there = k == 0 && b->steps_end(s, &batch);
        }
        rc = b->stream_wait(s, e);
    }
    for (int i = 0; i < 2; i++)
        if (ready[i])
            b->op_release(&ready[i]);
    if (loaded)
        b->weight_free(d, &loaded);
    for (int i = 0; i < 2; i++)
        if (m[i].data)
            b->memory_release(d, &m[i]);
    if (g.pool.data)
        b->memory_release(d, &g.pool);
    if (s)
        b->stream_destroy(&s);
    if (d)
        device_close(&d);
    return rc;
}

TEST(each_call_of_products_and_attention_and_each_allocation_may_fail)
{
    static const struct {
        const char *what;
        int code;
    } cases[] = {{"call_fails", HP_EDEVICE}, {"malloc_fails", HP_ENOMEM}};
    void (*restart)(void) = NULL;
    uint64_t (*counts[2])(void) = {NULL};
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&counts[0] = standin_symbol("cuda_on_cpu_calls");
    *(void **)&counts[1] = standin_symbol("cuda_on_cpu_mallocs");
    for (int i = 0; i < 2; i++) {
        int fails = 1, refused = 0;
        for (bool all = false; !all; fails++) {
            char setting[64];
            struct err e = {0};
            assert_true(fails < 1000);
            snprintf(setting, sizeof setting, "%s=%d", cases[i].what, fails);
            setenv("CUDA_ON_CPU", setting, 1);
            restart();
            int rc = some_work(&e);
            if (rc < 0 && rc != cases[i].code)
                fail_msg("%s: %s", setting, e.text);
            all = counts[i]() < (uint64_t)fails; /* it was none of them */
            assert_true(rc == 0 || !all);
            refused += rc < 0;
        }
        assert_true(refused > 8);
    }
    unsetenv("CUDA_ON_CPU");
    restart();
}

/* Scratch that there is no room for ends what runs; the GPU is there all the same. */
TEST(want_of_memory_while_it_computes_is_no_lost_gpu)
{
    void (*restart)(void) = NULL;
    const struct backend *b = plugin_open()->backend;
    struct device *d;
    struct stream *s;
    struct memory m;
    struct err e = {0};
    float x[64] = {1, 2, 3};
    uint16_t out[64];
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    setenv("CUDA_ON_CPU", "malloc_fails=4",
           1); /* after the arena, the tensor, and what goes to it */
    restart();
    d = cuda_open(0);
    assert_int_equal(b->stream_create(d, &s, &e), 0);
    assert_int_equal(b->memory_alloc(d, sizeof x, &m, &e), 0);
    struct tensor t = tensor_rows(m, DTYPE_F32, 1, 64), from = tensor_on_host(x, DTYPE_F32, 1, 64),
                  to = tensor_on_host(out, DTYPE_F16, 1, 64);
    b->copy(s, &t, &from);
    b->copy(s, &to, &t);
    assert_int_equal(b->stream_wait(s, &e), HP_ENOMEM);
    assert_non_null(strstr(e.text, "memory"));
    b->copy(s, &to, &t);
    assert_int_equal(b->stream_wait(s, &e), 0);
    b->memory_release(d, &m);
    b->stream_destroy(&s);
    device_close(&d);
    unsetenv("CUDA_ON_CPU");
    restart();
}

/* A stage that serves: the GPU is lost in the midst of a step, sooner or later in it. The step
 * fails with CUDA's reason, so does what is asked of it after, and the process opens another. */
TEST(a_gpu_that_is_lost_while_it_serves_fails_its_stage_and_nothing_else)
{
    static const uint32_t prompt[] = {1, 40, 52}, next = 9;
    static const uint64_t later[] = {1, 2, 7, 23, 60};
    void (*restart)(void) = NULL;
    void (*lose)(uint64_t after) = NULL;
    struct model *m;
    struct err e = {0};
    plugin_open();
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&lose = standin_symbol("cuda_on_cpu_lose");
    if (model_open("examples/demo-model/demo-q8_0.gguf", &m, &e) < 0)
        fail_msg("%s", e.text);
    float *logits = calloc(graph_head_width(model_graph(m)), sizeof *logits);
    for (size_t i = 0; i <= sizeof later / sizeof *later; i++) {
        struct device *d = cuda_open(0);
        const struct local_config c = {
            .model = m, .device = d, .n_stages = 1, .compute = COMPUTE_F32, .max_tokens = 64};
        struct local_chain *chain;
        if (local_chain_open(&c, &chain, &e) < 0)
            fail_msg("%s", e.text);
        assert_int_equal(local_chain_run(chain, prompt, 3, 1, logits, &e), 0);
        if (i < sizeof later / sizeof *later) {
            lose(later[i]);
            for (int again = 0; again < 2; again++) {
                struct err lost = {0};
                assert_int_equal(local_chain_run(chain, &next, 1, 1, logits, &lost), HP_EDEVICE);
                assert_non_null(strstr(lost.text, "illegal memory access"));
            }
        } else {
            assert_int_equal(local_chain_run(chain, &next, 1, 1, logits, &e), 0);
        }
        local_chain_close(&chain);
        device_close(&d);
        restart();
    }
    free(logits);
    model_close(&m);
}

static void lost_told(void *ctx)
{
    atomic_store((atomic_bool *)ctx, true);
}

/* Before somebody asks whether a batch is over, and while its end is awaited. */
TEST(whoever_waits_for_a_batch_hears_that_the_gpu_was_lost)
{
    void (*restart)(void) = NULL;
    void (*lose)(uint64_t after) = NULL;
    const struct backend *b = plugin_open()->backend;
    float x[64] = {1}, out[64];
    *(void **)&restart = standin_symbol("cuda_on_cpu_restart");
    *(void **)&lose = standin_symbol("cuda_on_cpu_lose");
    for (uint64_t after = 1; after < 5; after++) {
        struct device *d = cuda_open(0);
        struct stream *s;
        struct event *v;
        struct memory m;
        struct err e = {0};
        atomic_bool told = false;
        assert_int_equal(b->stream_create(d, &s, &e), 0);
        assert_int_equal(b->event_create(d, &v, &e), 0);
        assert_int_equal(b->memory_alloc(d, sizeof x, &m, &e), 0);
        struct tensor t = tensor_rows(m, DTYPE_F32, 1, 64),
                      from = tensor_on_host(x, DTYPE_F32, 1, 64),
                      to = tensor_on_host(out, DTYPE_F32, 1, 64);
        b->copy(s, &t, &from);
        b->copy(s, &to, &t);
        b->event_record(v, s);
        lose(after);
        if (b->event_pending(v, lost_told, &told))
            while (!atomic_load(&told))
                usleep(100);
        int rc = b->event_wait(v, &e);
        assert_true(rc == HP_EDEVICE || (after > 2 && rc == 0));
        b->memory_release(d, &m);
        b->event_destroy(&v);
        b->stream_destroy(&s);
        device_close(&d);
        restart();
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_stand_in_finds_each_kind_of_fault),
        cmocka_unit_test(the_stand_in_lets_what_is_right_be),
        cmocka_unit_test(a_missing_wait_for_another_stream_is_found_by_some_seed),
        cmocka_unit_test(an_older_gpu_goes_another_way),
        cmocka_unit_test(a_gpu_without_enough_memory_says_how_many_bytes_are_missing),
        cmocka_unit_test(a_device_has_its_memory_from_the_beginning),
        cmocka_unit_test(memory_is_given_out_in_parts_that_have_nothing_in_common),
        cmocka_unit_test(work_of_a_stream_is_done_before_its_memory_goes),
        cmocka_unit_test(tables_of_embeddings_are_read_where_the_host_has_them),
        cmocka_unit_test(small_weights_are_read_where_the_host_has_them),
        cmocka_unit_test(what_a_stage_needs_is_known_before_it_is_loaded),
        cmocka_unit_test(a_box_without_a_driver_or_such_a_gpu_is_told_so),
        cmocka_unit_test(a_gpu_that_falls_off_the_bus_is_an_error_at_every_call),
        cmocka_unit_test(each_call_of_products_and_attention_and_each_allocation_may_fail),
        cmocka_unit_test(want_of_memory_while_it_computes_is_no_lost_gpu),
        cmocka_unit_test(a_gpu_that_is_lost_while_it_serves_fails_its_stage_and_nothing_else),
        cmocka_unit_test(whoever_waits_for_a_batch_hears_that_the_gpu_was_lost),
    };
    return cmocka_run_group_tests_name("cuda", tests, NULL, NULL);
}
