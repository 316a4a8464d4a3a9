/* Networks on the cuda backend, as the stand-in runs it: what the CPU computes, to the last bits of
 * sums; parts on both sides of a cut; and memory and parts that there are not. */
#include "agent/engine/network/network_device.h"
#include "agent/engine/network/network_part.h"
#include "model/text_network.h"
#include "tests/unit/agent/backend/cuda_fixture.h"
#include "tests/unit/agent/engine/small_network.h"
#include "tests/unit/model/tiny_gguf.h"

enum { TOKENS = 5, WIDTH = 24, HEADS = 3, ARRAYS = 64, BLOCKS = 4, BATCH = 3 };

static void matmul(struct onnx_writer *w, const char *in, const char *out, int64_t from, int64_t to)
{
    char weights[64], bias[64], product[64], inputs[256];
    snprintf(weights, sizeof weights, "%s.w", out);
    snprintf(bias, sizeof bias, "%s.b", out);
    snprintf(product, sizeof product, "%s.p", out);
    ow_weight(w, weights, 0, 2, (int64_t[]){from, to});
    ow_weight(w, bias, 0, 1, &to);
    snprintf(inputs, sizeof inputs, "%s %s", in, weights);
    ow_node(w, "MatMul", inputs, product);
    snprintf(inputs, sizeof inputs, "%s %s", product, bias);
    ow_node(w, "Add", inputs, out);
}

static void heads(struct onnx_writer *w, const char *in, const char *out, const int64_t *order)
{
    char inputs[256], apart[64];
    snprintf(inputs, sizeof inputs, "%s heads", in);
    snprintf(apart, sizeof apart, "%s.h", out);
    ow_node(w, "Reshape", inputs, apart);
    ow_begin(w, "Transpose", apart, out);
    ow_ints(w, "perm", 4, order);
    ow_done(w);
}

/* A block of a transformer: norms, attention of heads, a gate, a residual. x [batch, tokens,
 * width]. */
static struct buffer attention_file(void)
{
    struct onnx_writer w = {.random = 11};
    static const int64_t sizes[] = {-1, TOKENS, WIDTH}, apart[] = {0, 0, HEADS, WIDTH / HEADS},
                         rows[] = {0, 2, 1, 3}, columns[] = {0, 2, 3, 1}, joined[] = {0, 0, WIDTH},
                         width[] = {WIDTH};
    const float scale = 0.35f, two = 2;
    ow_end(&w, 11, "x", 3, sizes);
    ow_integers(&w, "heads", 4, apart);
    ow_integers(&w, "joined", 3, joined);
    ow_array(&w, "scale", 1, 0, NULL, &scale, sizeof scale);
    ow_array(&w, "two", 1, 0, NULL, &two, sizeof two);
    ow_weight(&w, "n.s", 1, 1, width);
    ow_weight(&w, "n.b", 0, 1, width);
    ow_node(&w, "LayerNormalization", "x n.s n.b", "n");
    matmul(&w, "n", "q", WIDTH, WIDTH);
    matmul(&w, "n", "k", WIDTH, WIDTH);
    matmul(&w, "n", "v", WIDTH, WIDTH);
    heads(&w, "q", "qh", rows);
    heads(&w, "k", "kh", columns);
    heads(&w, "v", "vh", rows);
    ow_node(&w, "MatMul", "qh kh", "scores");
    ow_node(&w, "Mul", "scores scale", "scaled");
    ow_begin(&w, "Softmax", "scaled", "shares");
    ow_int(&w, "axis", -1);
    ow_done(&w);
    ow_node(&w, "MatMul", "shares vh", "seen");
    ow_begin(&w, "Transpose", "seen", "back");
    ow_ints(&w, "perm", 4, rows);
    ow_done(&w);
    ow_node(&w, "Reshape", "back joined", "all");
    matmul(&w, "all", "o", WIDTH, WIDTH);
    ow_node(&w, "Add", "o x", "r");
    ow_node(&w, "Sigmoid", "r", "g");
    ow_node(&w, "Mul", "r g", "gated");
    ow_node(&w, "Pow", "gated two", "square"); /* a norm in parts */
    ow_begin(&w, "ReduceMean", "square", "mean");
    ow_ints(&w, "axes", 1, (int64_t[]){-1});
    ow_done(&w);
    ow_node(&w, "Sqrt", "mean", "root");
    ow_node(&w, "Div", "gated root", "y");
    ow_node(&w, "Erf", "y", "z"); /* that the reference has alone */
    ow_end(&w, 12, "z", 3, sizes);
    return ow_finish(&w, 17);
}

static void pool(struct onnx_writer *w, const char *op, const char *in, const char *out)
{
    ow_begin(w, op, in, out);
    ow_ints(w, "kernel_shape", 2, (int64_t[]){3, 3});
    ow_ints(w, "strides", 2, (int64_t[]){2, 2});
    ow_ints(w, "pads", 4, (int64_t[]){1, 1, 1, 1});
    ow_done(w);
}

static void turned(struct onnx_writer *w, const char *in, const char *out, int64_t kernel,
                   int64_t stride)
{
    char weights[64], inputs[128];
    snprintf(weights, sizeof weights, "%s.w", out);
    snprintf(inputs, sizeof inputs, "%s %s", in, weights);
    ow_weight(w, weights, 0, 4, (int64_t[]){48, 48, kernel, kernel});
    ow_begin(w, "ConvTranspose", inputs, out);
    ow_ints(w, "strides", 2, (int64_t[]){stride, stride});
    ow_done(w);
}

static struct buffer pictures_file(void)
{
    struct onnx_writer w = {.random = 5};
    static const int64_t channels[] = {24}, sizes[] = {-1, 48, -1, -1};
    static const float scales[] = {1, 1, 2, 1.5f};
    ow_end(&w, 11, "x", 4, (int64_t[]){-1, 3, 11, 11});
    ow_conv(&w, "x", "c0", 3, 24, 3, 2, 1);
    for (int i = 0; i < 4; i++)
        ow_weight(&w, (const char *const[]){"n.s", "n.b", "n.m", "n.v"}[i], i % 3 ? 0 : 1, 1,
                  channels);
    ow_node(&w, "BatchNormalization", "c0 n.s n.b n.m n.v", "n0");
    ow_node(&w, "Relu", "n0", "r0");
    ow_conv(&w, "r0", "d1", 24, 24, 3, 1, 24); /* each channel by itself, and a gate */
    ow_node(&w, "Sigmoid", "d1", "s1");
    ow_node(&w, "Mul", "d1 s1", "g1");
    ow_conv(&w, "g1", "c2", 24, 24, 1, 1, 1);
    ow_node(&w, "Add", "r0 c2", "a2"); /* a residual, and a norm by itself */
    ow_node(&w, "BatchNormalization", "a2 n.s n.b n.m n.v", "n2");
    ow_node(&w, "Relu", "n2", "r2");
    ow_conv(&w, "r2", "c3", 24, 24, 3, 1, 2); /* in groups */
    pool(&w, "MaxPool", "c3", "m1");
    pool(&w, "AveragePool", "c3", "m2");
    ow_conv(&w, "m1", "m3", 24, 24, 7, 1, 24); /* a window larger than the picture */
    ow_begin(&w, "Concat", "m3 m2", "j");
    ow_int(&w, "axis", 1);
    ow_done(&w);
    ow_node(&w, "GlobalAveragePool", "j", "p");
    ow_node(&w, "Mul", "j p", "g");
    turned(&w, "g", "t1", 2, 2); /* windows side by side, and others */
    turned(&w, "t1", "t2", 3, 2);
    ow_array(&w, "scales", 1, 1, (int64_t[]){4}, scales, sizeof scales);
    ow_begin(&w, "Resize", "t2 - scales", "u");
    ow_string(&w, "mode", "linear");
    ow_done(&w);
    ow_begin(&w, "Resize", "u - scales", "y");
    ow_done(&w);
    ow_end(&w, 12, "y", 4, sizes);
    return ow_finish(&w, 17);
}

static struct network_part *part_of(const struct buffer *file, struct network_device *device,
                                    int first, int end)
{
    const struct network_part_ask ask = {.n_blocks = BLOCKS,
                                         .first_block = first,
                                         .end_block = end,
                                         .batch = BATCH,
                                         .device = device,
                                         .account = device ? &device->account : NULL};
    struct onnx_network *n = network_of(file, UINT32_MAX);
    struct network_part *p = NULL;
    struct err e = {0};
    if (network_part_open(&n, &ask, &p, &e) < 0)
        fail_msg("%s", e.text);
    return p;
}

static void part_run(struct network_part *p, int batch, const struct ndarray *in, int n)
{
    struct err e = {0};
    if (network_part_run(p, batch, in, n, &e) < 0)
        fail_msg("%s", e.text);
}

static void input_make(const struct network_part *p, int batch, struct ndarray *out)
{
    int n;
    const struct ndarray *wanted = network_part_enters(p, batch, &n);
    struct onnx_writer w = {.random = (uint32_t)batch};
    assert_int_equal(n, 1);
    assert_int_equal(ndarray_make(out, ND_F32, wanted->n_dims, wanted->dims, UINT64_MAX, NULL), 0);
    for (int64_t i = 0; i < out->count; i++)
        ((float *)out->data)[i] = ow_random(&w);
}

static void outputs_close(const struct network_part *made, const struct network_part *wanted,
                          int batch)
{
    int n, m;
    const struct ndarray *a = network_part_leaves(made, batch, &n),
                         *b = network_part_leaves(wanted, batch, &m);
    assert_int_equal(n, m);
    for (int i = 0; i < n; i++) {
        const float *x = a[i].data, *y = b[i].data;
        float most = 0;
        assert_true(ndarray_same_shape(&a[i], &b[i]));
        for (int64_t k = 0; k < b[i].count; k++)
            most = fmaxf(most, fabsf(y[k]));
        for (int64_t k = 0; k < b[i].count; k++)
            assert_true(fabsf(x[k] - y[k]) <= 1e-5f * most);
    }
}

static struct network_device *on_gpu(struct device *gpu, int part, int parts)
{
    struct network_device *d = NULL;
    struct err e = {0};
    if (network_device_open(gpu, part, parts, NULL, &d, &e) < 0)
        fail_msg("%s", e.text);
    return d;
}

TEST(a_network_on_a_gpu_gives_what_the_cpu_gives_in_every_batch)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = attention_file();
    uint64_t before = gpu->backend->memory_free(gpu);
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct network_part *there = part_of(&file, d, 0, BLOCKS),
                        *here = part_of(&file, NULL, 0, BLOCKS);
    for (int round = 0; round < 2; round++)
        for (int batch = 1; batch <= BATCH; batch++) {
            struct ndarray x;
            input_make(here, batch, &x);
            part_run(there, batch, &x, 1);
            part_run(here, batch, &x, 1);
            outputs_close(there, here, batch);
            ndarray_free(&x);
        }
    assert_true(network_part_bytes(there) > 0 && gpu->backend->memory_free(gpu) < before);
    network_part_close(&there);
    network_part_close(&here);
    network_device_close(&d);
    assert_true(gpu->backend->memory_free(gpu) == before);
    buffer_free(&file);
    device_close(&gpu);
}

/* One plan takes over from another: what both have is there once, and stays with the later one. */
TEST(networks_of_one_file_have_their_weights_on_a_gpu_once)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = attention_file();
    struct network_memory *memory = NULL;
    struct network_device *d[3];
    struct network_part *parts[3], *here = part_of(&file, NULL, 0, BLOCKS);
    struct ndarray x;
    struct err e = {0};
    uint64_t before = gpu->backend->memory_free(gpu), left[4] = {before};
    assert_int_equal(network_memory_create(gpu, &memory, &e), 0);
    for (int i = 0; i < 3; i++) {
        const struct network_account a = {memory, i < 2 ? 1 : 2};
        assert_int_equal(network_device_open(gpu, 0, 1, &a, &d[i], &e), 0);
        parts[i] = part_of(&file, d[i], 0, BLOCKS);
        left[i + 1] = gpu->backend->memory_free(gpu);
    }
    uint64_t whole = left[0] - left[1], second = left[1] - left[2];
    assert_true(second < whole && whole - second >= d[0]->kept_bytes);
    assert_int_equal(left[2] - left[3], whole); /* of another file */
    network_part_close(&parts[0]);
    network_device_close(&d[0]);
    input_make(here, 2, &x);
    part_run(here, 2, &x, 1);
    part_run(parts[1], 2, &x, 1);
    outputs_close(parts[1], here, 2);
    for (int i = 1; i < 3; i++) {
        network_part_close(&parts[i]);
        network_device_close(&d[i]);
    }
    assert_true(gpu->backend->memory_free(gpu) == before);
    network_memory_destroy(&memory);
    network_part_close(&here);
    ndarray_free(&x);
    buffer_free(&file);
    device_close(&gpu);
}

static struct network_part *text_part_of(const char *path, struct network_device *device)
{
    static const struct network_dim tokens[] = {{"tokens", TOKENS}};
    const struct network_part_ask ask = {.dims = tokens,
                                         .n_dims = 1,
                                         .n_blocks = 1,
                                         .end_block = 1,
                                         .batch = 1,
                                         .device = device,
                                         .account = device ? &device->account : NULL};
    struct onnx_network *n = NULL;
    struct network_part *p = NULL;
    struct err e = {0};
    if (text_network_open(path, UINT32_MAX, &n, &e) < 0 || network_part_open(&n, &ask, &p, &e) < 0)
        fail_msg("%s", e.text);
    return p;
}

/* The model that the weights came from is closed before those who still hold them. */
TEST(language_models_have_their_weights_on_a_gpu_once)
{
    const char *path = tiny_llama_write(DTYPE_F16);
    struct device *gpu = cuda_open(64 << 20);
    struct network_memory *memory = NULL;
    struct network_device *d[2];
    struct network_part *parts[2], *here = text_part_of(path, NULL);
    struct ndarray x[2];
    struct err e = {0};
    uint64_t before = gpu->backend->memory_free(gpu), left[3] = {before};
    assert_int_equal(network_memory_create(gpu, &memory, &e), 0);
    const struct network_account a = {memory, 1};
    for (int i = 0; i < 2; i++) {
        assert_int_equal(network_device_open(gpu, 0, 1, &a, &d[i], &e), 0);
        parts[i] = text_part_of(path, d[i]);
        left[i + 1] = gpu->backend->memory_free(gpu);
    }
    assert_true(left[1] - left[2] < (left[0] - left[1]) / 2);
    network_part_close(&parts[0]);
    network_device_close(&d[0]);
    for (int i = 0; i < 2; i++) {
        static const int64_t sizes[] = {1, TOKENS};
        assert_int_equal(ndarray_make(&x[i], ND_I64, 2, sizes, UINT64_MAX, &e), 0);
        for (int64_t k = 0; k < TOKENS; k++)
            ndarray_set_i64(&x[i], k, i ? 1 : k + 1);
    }
    part_run(here, 1, x, 2);
    part_run(parts[1], 1, x, 2);
    outputs_close(parts[1], here, 1);
    network_part_close(&parts[1]);
    network_device_close(&d[1]);
    assert_true(gpu->backend->memory_free(gpu) == before);
    network_memory_destroy(&memory);
    network_part_close(&here);
    for (int i = 0; i < 2; i++)
        ndarray_free(&x[i]);
    unlink(path);
    device_close(&gpu);
}

/* Block by block, by turns on the GPU and on the CPU: what crosses is the same kind of bytes. */
TEST(parts_on_a_gpu_and_on_cpus_hand_on_to_each_other)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = attention_file();
    struct network_device *devices[BLOCKS] = {NULL};
    struct network_part *parts[BLOCKS], *whole = part_of(&file, NULL, 0, BLOCKS);
    struct ndarray x;
    int n = 1;
    for (int i = 0; i < BLOCKS; i++) {
        devices[i] = i % 2 ? on_gpu(gpu, 0, 1) : NULL;
        parts[i] = part_of(&file, devices[i], i, i + 1);
    }
    input_make(whole, 2, &x);
    part_run(whole, 2, &x, 1);
    const struct ndarray *in = &x;
    for (int i = 0; i < BLOCKS; i++) {
        part_run(parts[i], 2, in, n);
        in = network_part_leaves(parts[i], 2, &n);
    }
    outputs_close(parts[BLOCKS - 1], whole, 2);
    for (int i = 0; i < BLOCKS; i++) {
        network_part_close(&parts[i]);
        network_device_close(&devices[i]);
    }
    network_part_close(&whole);
    ndarray_free(&x);
    buffer_free(&file);
    device_close(&gpu);
}

static void part_refused(const struct buffer *file, struct network_device *d, int code,
                         const char *words)
{
    const struct network_part_ask ask = {.n_blocks = 1, .end_block = 1, .batch = 1, .device = d};
    struct onnx_network *n = network_of(file, UINT32_MAX);
    struct network_part *p = NULL;
    struct err e = {0};
    assert_int_equal(network_part_open(&n, &ask, &p, &e), code);
    if (!strstr(e.text, words))
        fail_msg("%s", e.text);
}

TEST(memory_that_a_gpu_lacks_for_a_network_is_said)
{
    struct device *gpu = cuda_open(8 << 10);
    struct buffer file = attention_file();
    struct network_device *d = on_gpu(gpu, 0, 1);
    uint64_t before = gpu->backend->memory_free(gpu);
    part_refused(&file, d, HP_ENOMEM, "bytes are missing");
    network_device_close(&d);
    assert_true(gpu->backend->memory_free(gpu) == before);
    buffer_free(&file);
    device_close(&gpu);
}

/* How much work of streams on these multiprocessors was done; a GPU does not say so. */
static uint64_t work_of(uint64_t members)
{
    uint64_t (*work)(uint64_t members) = NULL;
    *(void **)&work = plugin_symbol("cuda_on_cpu_work");
    return work ? work(members) : 0;
}

/* Two parts of a GPU side by side, and one that there is not. */
TEST(a_network_runs_on_a_part_of_a_gpu)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = attention_file();
    struct network_device *halves[2] = {on_gpu(gpu, 0, 2), on_gpu(gpu, 1, 2)}, *none = NULL;
    struct network_part *parts[2], *whole = part_of(&file, NULL, 0, BLOCKS);
    struct ndarray x;
    struct err e = {0};
    input_make(whole, 1, &x);
    part_run(whole, 1, &x, 1);
    for (int i = 0; i < 2; i++) {
        uint64_t own = work_of(i ? 0xff00 : 0x00ff), other = work_of(i ? 0x00ff : 0xff00);
        parts[i] = part_of(&file, halves[i], 0, BLOCKS);
        part_run(parts[i], 1, &x, 1);
        assert_true(work_of(i ? 0x00ff : 0xff00) == other);
        assert_true(!plugin_symbol("cuda_on_cpu_work") || work_of(i ? 0xff00 : 0x00ff) > own);
        outputs_close(parts[i], whole, 1);
    }
    assert_int_equal(network_device_open(gpu, 0, 64, NULL, &none, &e), HP_EUNSUPPORTED);
    assert_non_null(strstr(e.text, "1/64 of its multiprocessors"));
    for (int i = 0; i < 2; i++) {
        network_part_close(&parts[i]);
        network_device_close(&halves[i]);
    }
    network_part_close(&whole);
    ndarray_free(&x);
    buffer_free(&file);
    device_close(&gpu);
}

/* Convolutions of every kind, poolings, norms, joined channels, other sizes. */
TEST(pictures_on_a_gpu_give_what_the_cpu_gives)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = pictures_file();
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct network_part *there = part_of(&file, d, 0, BLOCKS),
                        *here = part_of(&file, NULL, 0, BLOCKS);
    struct ndarray x;
    input_make(here, 2, &x);
    part_run(there, 2, &x, 1);
    part_run(here, 2, &x, 1);
    outputs_close(there, here, 2);
    network_part_close(&there);
    network_part_close(&here);
    network_device_close(&d);
    ndarray_free(&x);
    buffer_free(&file);
    device_close(&gpu);
}

/* Sizes for which there is no room take nothing from those for which there is. */
TEST(an_engine_runs_on_after_sizes_that_a_gpu_has_no_memory_for)
{
    struct device *gpu = cuda_open(8 << 20);
    struct buffer file = attention_file();
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct onnx_network *n = network_of(&file, UINT32_MAX);
    struct network_engine *g = NULL;
    struct err e = {0};
    float first[TOKENS * WIDTH] = {0};
    assert_int_equal(network_engine_open(&n, NULL, d, &g, &e), 0);
    for (int i = 0; i < 3; i++) {
        const int64_t sizes[] = {i == 1 ? 20000 : 1, TOKENS, WIDTH};
        struct ndarray x = {0}, y[2] = {{0}};
        const struct ndarray *in[] = {&x};
        assert_int_equal(ndarray_make(&x, ND_F32, 3, sizes, UINT64_MAX, &e), 0);
        for (int64_t k = 0; k < x.count; k++)
            ndarray_set_f64(&x, k, (double)(k % 7) - 3);
        assert_int_equal(network_engine_run(g, 1, in, y, &e), i == 1 ? HP_ENOMEM : 0);
        size_t bytes = i == 1 ? 0 : ndarray_bytes(&y[0]);
        assert_true(bytes <= sizeof first);
        if (i == 0)
            memcpy(first, y[0].data, bytes);
        else if (bytes)
            assert_memory_equal(first, y[0].data, bytes);
        for (int k = 0; k < 2; k++)
            ndarray_free(&y[k]);
        ndarray_free(&x);
    }
    network_engine_close(&g);
    network_device_close(&d);
    buffer_free(&file);
    device_close(&gpu);
}

/* More tiles than a grid has along its sides (GRID_MOST of cuda.cuh), of rows or of columns. */
TEST(products_and_convolutions_may_be_as_tall_and_as_wide_as_memory_goes)
{
    enum { MANY = 5 * 64 + 1 };
    struct device *gpu = cuda_open(8 << 20);
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct memory there = {0};
    struct err e = {0};
    float *x = malloc((MANY + 1) * sizeof *x);
    assert_int_equal(gpu->backend->memory_alloc(gpu, 1 << 20, &there, &e), 0);
    float *at = there.data, *y = at + MANY + 1;
    x[MANY] = 2;
    for (int i = 0; i < MANY; i++)
        x[i] = (float)(i % 1000);
    network_device_send(d, at, x, (MANY + 1) * sizeof *x);
    for (int wide = 0; wide < 3; wide++) {
        const float *many = at, *one = at + MANY;
        const struct array_product p = {.rows = wide ? 1 : MANY,
                                        .columns = wide ? MANY : 1,
                                        .inner = 1,
                                        .x_row = 1,
                                        .x_inner = 1,
                                        .w_inner = MANY,
                                        .w_column = 1,
                                        .y_row = wide ? MANY : 1,
                                        .x = wide ? one : many,
                                        .w = wide ? many : one,
                                        .y = y};
        const struct array_conv c = {.batch = 1,
                                     .groups = 1,
                                     .in_channels = 1,
                                     .out_channels = MANY,
                                     .in = {1, 1, 1},
                                     .out = {1, 1, 1},
                                     .kernel = {1, 1, 1},
                                     .stride = {1, 1, 1},
                                     .dilation = {1, 1, 1},
                                     .x = one,
                                     .w = many,
                                     .y = y};
        if (wide == 2)
            d->arrays->conv(d->stream, &c);
        else
            d->arrays->product(d->stream, &p);
        network_device_fetch(d, x, y, MANY * sizeof *x);
        assert_int_equal(network_device_wait(d, &e), 0);
        for (int i = 0; i < MANY; i++)
            assert_true(x[i] == 2 * (float)(i % 1000));
    }
    gpu->backend->memory_release(gpu, &there);
    network_device_close(&d);
    free(x);
    device_close(&gpu);
}

/* A token keeps what itself and those before it have, of a window where there is one; a head's sink
 * is its row's last column. */
TEST(scores_of_decoders_are_hidden_as_the_reference_has_it)
{
    enum { ROWS = 12, SEEN = 6, WINDOW = 3 };
    struct device *gpu = cuda_open(1 << 20);
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct memory there = {0};
    float x[ROWS * SEEN], sinks[2] = {7, 8}, made[ROWS * (SEEN + 1)];
    struct err e = {0};
    for (int i = 0; i < ROWS * SEEN; i++)
        x[i] = (float)i;
    assert_int_equal(gpu->backend->memory_alloc(gpu, 4096, &there, &e), 0);
    float *at = there.data, *out = at + 512;
    network_device_send(d, at, x, sizeof x);
    network_device_send(d, at + ROWS * SEEN, sinks, sizeof sinks);
    const struct array_causal c = {.x = at,
                                   .sinks = at + ROWS * SEEN,
                                   .out = out,
                                   .rows = ROWS,
                                   .tokens = SEEN,
                                   .heads = 2,
                                   .window = WINDOW,
                                   .hidden = -1};
    d->arrays->causal(d->stream, &c);
    network_device_fetch(d, made, out, sizeof made);
    assert_int_equal(network_device_wait(d, &e), 0);
    for (int r = 0; r < ROWS; r++)
        for (int k = 0; k <= SEEN; k++) {
            int own = r % SEEN, first = own >= WINDOW ? own - WINDOW + 1 : 0;
            float wanted = k == SEEN              ? sinks[r / SEEN % 2]
                           : k < first || k > own ? -1
                                                  : x[r * SEEN + k];
            assert_true(made[r * (SEEN + 1) + k] == wanted);
        }
    gpu->backend->memory_release(gpu, &there);
    network_device_close(&d);
    device_close(&gpu);
}

/* Rows that several warps share out. */
TEST(long_rows_have_the_softmax_and_the_norm_of_all_their_elements)
{
    enum { ROWS = 2, LONG = 1500 };
    static float x[ROWS * LONG], made[2][ROWS * LONG];
    struct device *gpu = cuda_open(1 << 20);
    struct network_device *d = on_gpu(gpu, 0, 1);
    struct onnx_writer w = {.random = 9};
    struct memory there = {0};
    struct err e = {0};
    for (int i = 0; i < ROWS * LONG; i++)
        x[i] = 4 * ow_random(&w);
    assert_int_equal(gpu->backend->memory_alloc(gpu, 3 * sizeof x / 256 * 256 + 256, &there, &e),
                     0);
    float *in = there.data, *out[2] = {in + ROWS * LONG, in + 2 * ROWS * LONG};
    network_device_send(d, in, x, sizeof x);
    const struct array_softmax softmax = {in, out[0], ROWS, LONG, false};
    const struct array_norm norm = {.x = in, .out = out[1], .rows = ROWS, .n = LONG};
    d->arrays->softmax(d->stream, &softmax);
    d->arrays->norm(d->stream, &norm);
    for (int i = 0; i < 2; i++)
        network_device_fetch(d, made[i], out[i], sizeof x);
    assert_int_equal(network_device_wait(d, &e), 0);
    for (int r = 0; r < ROWS; r++) {
        double exponents = 0, sum = 0, squares = 0;
        for (int i = r * LONG; i < (r + 1) * LONG; i++) {
            exponents += exp((double)x[i]);
            sum += (double)x[i];
        }
        for (int i = r * LONG; i < (r + 1) * LONG; i++)
            squares += pow((double)x[i] - sum / LONG, 2);
        for (int i = r * LONG; i < (r + 1) * LONG; i++) {
            double by = sqrt(squares / LONG), centred = (double)x[i] - sum / LONG;
            assert_true(fabs((double)made[0][i] - exp((double)x[i]) / exponents) < 1e-7);
            assert_true(fabs((double)made[1][i] - centred / by) < 1e-5);
        }
    }
    gpu->backend->memory_release(gpu, &there);
    network_device_close(&d);
    device_close(&gpu);
}

TEST(a_backend_without_such_operators_runs_no_network)
{
    const struct device_config c = {.backend = "plain"};
    struct device *plain = NULL;
    struct network_device *d = NULL;
    struct err e = {0};
    assert_int_equal(device_open(&c, &plain, &e), 0);
    assert_int_equal(network_device_open(plain, 0, 1, NULL, &d, &e), HP_EUNSUPPORTED);
    assert_string_equal(e.text, "the plain backend runs no networks");
    device_close(&plain);
}

int main(void)
{
    setenv("CUDA_ON_CPU", "sms=16", 1);
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(a_network_on_a_gpu_gives_what_the_cpu_gives_in_every_batch),
        cmocka_unit_test(networks_of_one_file_have_their_weights_on_a_gpu_once),
        cmocka_unit_test(language_models_have_their_weights_on_a_gpu_once),
        cmocka_unit_test(parts_on_a_gpu_and_on_cpus_hand_on_to_each_other),
        cmocka_unit_test(memory_that_a_gpu_lacks_for_a_network_is_said),
        cmocka_unit_test(a_network_runs_on_a_part_of_a_gpu),
        cmocka_unit_test(pictures_on_a_gpu_give_what_the_cpu_gives),
        cmocka_unit_test(an_engine_runs_on_after_sizes_that_a_gpu_has_no_memory_for),
        cmocka_unit_test(products_and_convolutions_may_be_as_tall_and_as_wide_as_memory_goes),
        cmocka_unit_test(scores_of_decoders_are_hidden_as_the_reference_has_it),
        cmocka_unit_test(long_rows_have_the_softmax_and_the_norm_of_all_their_elements),
        cmocka_unit_test(a_backend_without_such_operators_runs_no_network),
    };
    return cmocka_run_group_tests_name("cuda networks", tests, NULL, NULL);
}
