/* Parts of networks: what two of them give together, cut anywhere, is to the bit what the whole
 * gives, in every batch; and what is asked for wrongly is named. */
#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include "agent/engine/network/network_layers.h"
#include "agent/engine/network/network_part.h"
#include "tests/unit/agent/engine/small_network.h"

enum { ARRAYS = 64 };

/* A network, from a file or from bytes. */
struct source {
    const char *path;
    const struct buffer *file;
    const struct network_dim *dims;
    int n_dims;
};

static struct onnx_network *source_open(const struct source *s)
{
    struct onnx_network *n = NULL;
    struct err e = {0};
    if (s->file)
        return network_of(s->file, UINT32_MAX);
    if (network_open(s->path, UINT32_MAX, &n, &e) < 0)
        fail_msg("%s", e.text);
    return n;
}

static struct network_part *part_of(const struct source *s, int n_blocks, const uint32_t *bounds,
                                    int first, int end, int batch)
{
    const struct network_part_ask ask = {s->dims, s->n_dims, n_blocks, bounds, first, end,
                                         batch,   1,         NULL,     NULL,   NULL};
    struct onnx_network *n = source_open(s);
    struct network_part *p = NULL;
    struct err e = {0};
    if (network_part_open(&n, &ask, &p, &e) < 0)
        fail_msg("%s: %s", s->path ? s->path : "test", e.text);
    assert_null(n);
    return p;
}

static int layers_of(const struct source *s)
{
    struct onnx_network *n = source_open(s);
    struct network_part *p = NULL;
    struct err e = {0};
    const uint32_t bounds[] = {0, 1 << 30};
    const struct network_part_ask ask = {s->dims, s->n_dims, 1,    bounds, 0,   1,
                                         1,       1,         NULL, NULL,   NULL};
    int layers = 0;
    assert_int_equal(network_part_open(&n, &ask, &p, &e), HP_EINVAL);
    const char *said = strstr(e.text, "here the network has ");
    if (!said)
        fail_msg("%s: %s", s->path ? s->path : "test", e.text);
    layers = atoi(said + strlen("here the network has "));
    assert_true(layers > 0);
    return layers;
}

/* Inputs by chance, indices small. */
static void inputs_make(const struct network_part *p, int batch, struct ndarray in[ARRAYS], int *n)
{
    const struct ndarray *wanted = network_part_enters(p, batch, n);
    struct onnx_writer w = {.random = (uint32_t)batch};
    assert_true(*n < ARRAYS);
    for (int i = 0; i < *n; i++) {
        assert_int_equal(ndarray_make(&in[i], wanted[i].type, wanted[i].n_dims, wanted[i].dims,
                                      UINT64_MAX, NULL),
                         0);
        for (int64_t k = 0; k < in[i].count; k++)
            if (ndarray_type_is_float(in[i].type))
                ndarray_set_f64(&in[i], k, ow_random(&w));
            else
                ndarray_set_i64(&in[i], k, k % 2);
    }
}

static void arrays_keep(const struct network_part *p, int batch, struct ndarray out[ARRAYS], int *n)
{
    const struct ndarray *made = network_part_leaves(p, batch, n);
    assert_true(*n < ARRAYS);
    for (int i = 0; i < *n; i++) {
        assert_int_equal(
            ndarray_make(&out[i], made[i].type, made[i].n_dims, made[i].dims, UINT64_MAX, NULL), 0);
        memcpy(out[i].data, made[i].data, ndarray_bytes(&made[i]));
    }
}

static void arrays_free(struct ndarray *arrays, int n)
{
    for (int i = 0; i < n; i++)
        ndarray_free(&arrays[i]);
}

static void run_must(struct network_part *p, int batch, const struct ndarray *in, int n)
{
    struct err e = {0};
    if (network_part_run(p, batch, in, n, &e) < 0)
        fail_msg("%s", e.text);
}

/* The batch `batch` of the whole is `sized` of the parts (network_part_sized). */
static void cut_compare(struct network_part *whole, int batch, struct network_part *front,
                        struct network_part *back, int sized)
{
    struct ndarray in[ARRAYS] = {0}, crosses[ARRAYS] = {0}, wanted[ARRAYS] = {0};
    int n_in, n_crosses, n_wanted, n_got;
    inputs_make(whole, batch, in, &n_in);
    run_must(whole, batch, in, n_in);
    arrays_keep(whole, batch, wanted, &n_wanted);
    run_must(front, sized, in, n_in);
    arrays_keep(front, sized, crosses, &n_crosses);
    run_must(back, sized, crosses, n_crosses);
    const struct ndarray *got = network_part_leaves(back, sized, &n_got);
    assert_int_equal(n_got, n_wanted);
    for (int i = 0; i < n_got; i++) {
        assert_true(ndarray_same_shape(&got[i], &wanted[i]));
        assert_memory_equal(got[i].data, wanted[i].data, ndarray_bytes(&wanted[i]));
    }
    arrays_free(in, n_in);
    arrays_free(crosses, n_crosses);
    arrays_free(wanted, n_wanted);
}

/* Cuts at every `step`-th layer. */
static void cuts_compare(const struct source *s, int batch, int step)
{
    int layers = layers_of(s);
    struct network_part *whole = part_of(s, 1, NULL, 0, 1, batch);
    for (int at = 1; at < layers; at += step) {
        const uint32_t bounds[] = {0, (uint32_t)at, (uint32_t)layers};
        struct network_part *front = part_of(s, 2, bounds, 0, 1, batch);
        struct network_part *back = part_of(s, 2, bounds, 1, 2, batch);
        for (int b = network_part_next(whole, 0); b; b = network_part_next(whole, b))
            cut_compare(whole, b, front, back, b);
        network_part_close(&front);
        network_part_close(&back);
    }
    network_part_close(&whole);
}

static const struct network_dim side[] = {{"", 20}};

TEST(two_parts_give_what_the_whole_gives_wherever_it_is_cut)
{
    struct buffer file = small_network_file();
    cuts_compare(&(struct source){.file = &file, .dims = side, .n_dims = 1}, 3, 1);
    buffer_free(&file);
}

/* The golden models ($HP_GOLDEN_ONNX), where they are here. */
TEST(parts_of_whole_models_give_what_the_models_give)
{
    static const char *const models[] = {"mobilenet_v2-ts11", "shufflenet-ts11", "bert-dy20",
                                         "unet-ts11", "resnet50-dy20-external"};
    static const struct network_dim dims[] = {{"s", 12}, {"h", 64}, {"w", 48}};
    const char *folder = getenv("HP_GOLDEN_ONNX");
    char path[4096];
    struct stat st;
    for (size_t i = 0; i < sizeof models / sizeof *models; i++) {
        snprintf(path, sizeof path, "%s/models/%s/model.onnx",
                 folder ? folder : "../shared/golden-onnx", models[i]);
        if (stat(path, &st) != 0) {
            print_message("%s is not here\n", path);
            skip();
        }
        const struct source s = {
            .path = path, .dims = dims, .n_dims = (int)(sizeof dims / sizeof *dims)};
        cuts_compare(&s, 2, 1 + layers_of(&s) / 8);
    }
}

TEST(blocks_without_bounds_share_the_layers_evenly)
{
    struct buffer file = small_network_file();
    const struct source s = {.file = &file, .dims = side, .n_dims = 1};
    struct network_part *whole = part_of(&s, 3, NULL, 0, 3, 1), *parts[3];
    struct ndarray in[ARRAYS] = {0}, wanted[ARRAYS] = {0}, crosses[ARRAYS] = {0};
    int n, n_wanted, n_got;
    for (int i = 0; i < 3; i++)
        parts[i] = part_of(&s, 3, NULL, i, i + 1, 1);
    inputs_make(whole, 1, in, &n);
    run_must(whole, 1, in, n);
    arrays_keep(whole, 1, wanted, &n_wanted);
    for (int i = 0; i < 3; i++) {
        run_must(parts[i], 1, i ? crosses : in, n);
        if (i)
            arrays_free(crosses, n);
        arrays_keep(parts[i], 1, crosses, &n);
    }
    n_got = n;
    assert_int_equal(n_got, n_wanted);
    for (int i = 0; i < n_got; i++)
        assert_memory_equal(crosses[i].data, wanted[i].data, ndarray_bytes(&wanted[i]));
    assert_true(network_part_bytes(whole) > 0);
    for (int i = 0; i < 3; i++)
        network_part_close(&parts[i]);
    network_part_close(&whole);
    arrays_free(in, 1);
    arrays_free(crosses, n);
    arrays_free(wanted, n_wanted);
    buffer_free(&file);
}

/* Packed weights and the arena are there once, however many batches are ready. */
TEST(batches_share_weights_and_memory)
{
    struct buffer file = small_network_file();
    const struct source s = {.file = &file, .dims = side, .n_dims = 1};
    struct network_part *one = part_of(&s, 1, NULL, 0, 1, 8),
                        *many = part_of(&s, 1, NULL, 0, 1, 16);
    uint64_t arena = network_part_bytes(many) - network_part_bytes(one);
    assert_true(arena > 0);
    assert_true(network_part_bytes(many) < 3 * network_part_bytes(one));
    assert_true(network_part_bytes(many) < 4 * arena);
    network_part_close(&one);
    network_part_close(&many);
    buffer_free(&file);
}

TEST(parts_of_several_sizes_give_in_each_what_a_whole_of_that_size_gives)
{
    static const struct network_dim sizes[] = {{"", 24}, {"", 20}, {"", 9}};
    struct buffer file = small_network_file();
    const struct source s = {.file = &file, .dims = sizes, .n_dims = 1};
    struct network_part *parts[2];
    struct err e = {0};
    int ready = 0, none;
    for (int i = 0; i < 2; i++) {
        const struct network_part_ask ask = {sizes, 1, 2, NULL, i, i + 1, 2, 3, NULL, NULL, NULL};
        struct onnx_network *n = source_open(&s);
        if (network_part_open(&n, &ask, &parts[i], &e) < 0)
            fail_msg("%s", e.text);
    }
    for (int b = network_part_next(parts[0], 0); b; b = network_part_next(parts[0], b))
        ready++;
    assert_int_equal(ready, 6);
    for (int size = 0; size < 3; size++) {
        const struct source own = {.file = &file, .dims = &sizes[size], .n_dims = 1};
        struct network_part *whole = part_of(&own, 1, NULL, 0, 1, 2);
        for (int b = 1; b <= 2; b++)
            cut_compare(whole, b, parts[0], parts[1], network_part_sized(size, b));
        network_part_close(&whole);
    }
    assert_null(network_part_enters(parts[0], network_part_sized(3, 1), &none));
    assert_null(network_part_enters(parts[0], network_part_sized(0, 3), &none));
    assert_null(network_part_enters(parts[0], -1, &none));
    network_part_close(&parts[0]);
    network_part_close(&parts[1]);
    buffer_free(&file);
}

TEST(a_part_keeps_the_weights_of_its_own_blocks_alone)
{
    struct onnx_writer w = {.random = 3}; /* weights are all that there is */
    ow_end(&w, 11, "x", 2, (int64_t[]){-1, 256});
    ow_weight(&w, "w0", 0, 2, (int64_t[]){256, 256});
    ow_weight(&w, "w1", 0, 2, (int64_t[]){256, 256});
    ow_node(&w, "MatMul", "x w0", "a");
    ow_node(&w, "Tanh", "a", "b");
    ow_node(&w, "MatMul", "b w1", "y");
    ow_end(&w, 12, "y", 2, (int64_t[]){-1, 256});
    struct buffer file = ow_finish(&w, 17);
    const struct source s = {.file = &file};
    struct network_part *whole = part_of(&s, 2, NULL, 0, 2, 2),
                        *half = part_of(&s, 2, NULL, 1, 2, 2);
    assert_true(network_part_bytes(whole) > 2 * 256 * 256 * 4);
    assert_true(network_part_bytes(half) < 256 * 256 * 4 * 3 / 2);
    network_part_close(&whole);
    network_part_close(&half);
    cuts_compare(&s, 3, 1);
    buffer_free(&file);
}

static void open_fails(const struct buffer *file, const struct network_part_ask *ask, int code,
                       const char *said)
{
    struct onnx_network *n = network_of(file, UINT32_MAX);
    struct network_part *p = NULL;
    struct err e = {0};
    assert_int_equal(network_part_open(&n, ask, &p, &e), code);
    assert_null(n);
    assert_null(p);
    if (!strstr(e.text, said))
        fail_msg("\"%s\" does not say \"%s\"", e.text, said);
}

TEST(a_part_that_the_network_does_not_have_is_named)
{
    struct buffer file = small_network_file();
    const uint32_t few[] = {0, 3}, back[] = {0, 4, 2};
    const struct network_part_ask good = {side, 1, 4, NULL, 1, 2, 2, 1, NULL, NULL, NULL};
    struct network_part_ask a = good;
    a.first_block = 4;
    a.end_block = 5;
    open_fails(&file, &a, HP_EINVAL, "blocks 4 to 4 of a network with 4");
    a = good;
    a.n_blocks = 1;
    a.first_block = 0;
    a.end_block = 1;
    a.bounds = few;
    open_fails(&file, &a, HP_EINVAL, "the plan speaks of layers 0 to 3, and here the network has");
    a.n_blocks = 2;
    a.bounds = back;
    open_fails(&file, &a, HP_EINVAL, "block 1 begins at layer 4 and ends at layer 2");
    a = good;
    a.n_blocks = 1000;
    open_fails(&file, &a, HP_EINVAL, "blocks 1 to 1 hold no layer");
    a = good;
    a.batch = 0;
    open_fails(&file, &a, HP_EINVAL, "batches of up to 0");
    a = good;
    a.n_dims = 0;
    open_fails(&file, &a, HP_EINVAL, "input x: its dimension 2 (without a name) has no size");
    buffer_free(&file);
}

TEST(what_does_not_enter_there_is_refused_and_changes_nothing)
{
    struct buffer file = small_network_file();
    const struct source s = {.file = &file, .dims = side, .n_dims = 1};
    struct network_part *front = part_of(&s, 2, NULL, 0, 1, 2),
                        *back = part_of(&s, 2, NULL, 1, 2, 2);
    struct ndarray in[ARRAYS] = {0}, crosses[ARRAYS] = {0};
    struct err e = {0};
    int n, n_crosses;
    inputs_make(front, 2, in, &n);
    assert_int_equal(network_part_run(front, 3, in, n, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "a batch of 3"));
    assert_int_equal(network_part_run(front, 1, in, n, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "array 0 (x) is float32 2x3x20x20, and float32 1x3x20x20 is"));
    assert_int_equal(network_part_run(front, 2, in, 0, &e), HP_EINVAL);
    assert_non_null(strstr(e.text, "0 arrays came, and 1 are wanted"));
    run_must(front, 2, in, n);
    arrays_keep(front, 2, crosses, &n_crosses);
    ++*(uint64_t *)crosses[0].data; /* of another plan */
    assert_int_equal(network_part_run(back, 2, crosses, n_crosses, &e), HP_ESTALE);
    assert_non_null(strstr(e.text, "another plan of the network"));
    --*(uint64_t *)crosses[0].data;
    run_must(back, 2, crosses, n_crosses);
    arrays_free(in, n);
    arrays_free(crosses, n_crosses);
    network_part_close(&front);
    network_part_close(&back);
    buffer_free(&file);
}

TEST(a_network_of_one_batch_is_ready_for_that_alone)
{
    struct onnx_writer w = {.random = 3};
    ow_end(&w, 11, "x", 4, (int64_t[]){2, 3, 8, 8});
    ow_conv(&w, "x", "c0", 3, 8, 3, 2, 1);
    ow_node(&w, "Relu", "c0", "y");
    ow_end(&w, 12, "y", 4, (int64_t[]){2, 8, 4, 4});
    struct buffer file = ow_finish(&w, 17);
    const struct source s = {.file = &file};
    struct network_part *p = part_of(&s, 1, NULL, 0, 1, 4);
    struct err e = {0};
    assert_int_equal(network_part_next(p, 0), 2);
    assert_int_equal(network_part_next(p, 2), 0);
    assert_int_equal(network_part_warm(p, 2, &e), 0);
    network_part_close(&p);
    const struct network_part_ask ask = {.n_blocks = 1, .end_block = 1, .batch = 1};
    open_fails(&file, &ask, HP_EINVAL, "the network takes batches of 2 alone");
    buffer_free(&file);
}

/* Inputs that have something else than samples in front: a row of numbers, a size. */
TEST(what_stands_in_front_of_another_input_is_no_batch)
{
    static const struct {
        int64_t first;
        int least, next;
    } cases[] = {{-1, 1, 2}, {2, 2, 0}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct onnx_writer w = {.random = 3};
        ow_end(&w, 11, "x", 2, (int64_t[]){cases[i].first, 3});
        ow_end(&w, 11, "row", 1, (int64_t[]){3});
        ow_node(&w, "Relu", "x", "r");
        ow_node(&w, "Add", "r row", "y");
        ow_end(&w, 12, "y", 2, (int64_t[]){cases[i].first, 3});
        struct buffer file = ow_finish(&w, 17);
        const struct source s = {.file = &file};
        struct network_part *p = part_of(&s, 1, NULL, 0, 1, 4);
        struct err e = {0};
        assert_int_equal(network_part_next(p, 0), cases[i].least);
        assert_int_equal(network_part_next(p, cases[i].least), cases[i].next);
        assert_int_equal(network_part_warm(p, cases[i].least, &e), 0);
        network_part_close(&p);
        buffer_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(two_parts_give_what_the_whole_gives_wherever_it_is_cut),
        cmocka_unit_test(parts_of_whole_models_give_what_the_models_give),
        cmocka_unit_test(blocks_without_bounds_share_the_layers_evenly),
        cmocka_unit_test(batches_share_weights_and_memory),
        cmocka_unit_test(parts_of_several_sizes_give_in_each_what_a_whole_of_that_size_gives),
        cmocka_unit_test(a_part_keeps_the_weights_of_its_own_blocks_alone),
        cmocka_unit_test(a_part_that_the_network_does_not_have_is_named),
        cmocka_unit_test(what_does_not_enter_there_is_refused_and_changes_nothing),
        cmocka_unit_test(a_network_of_one_batch_is_ready_for_that_alone),
        cmocka_unit_test(what_stands_in_front_of_another_input_is_no_batch),
    };
    return cmocka_run_group_tests_name("network_part", tests, NULL, NULL);
}
