/* Which nodes become one step, which none, and how often a picture is laid out anew: each row of
 * the table is a graph, what it takes, and the same numbers as the reference's. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/agent/engine/small_network.h"

enum { CHANNELS = 16 };

static void norm(struct onnx_writer *w, const char *in, const char *out)
{
    static const int64_t channels[] = {CHANNELS};
    char names[4][32], inputs[200];
    for (int i = 0; i < 4; i++) {
        snprintf(names[i], sizeof names[i], "%s.%d", out, i);
        ow_weight(w, names[i], i == 0 || i == 3 ? 1 : 0, 1, channels);
    }
    snprintf(inputs, sizeof inputs, "%s %s %s %s %s", in, names[0], names[1], names[2], names[3]);
    ow_node(w, "BatchNormalization", inputs, out);
}

static void number(struct onnx_writer *w, const char *name, float v)
{
    ow_array(w, name, 1, 0, NULL, &v, sizeof v);
}

/* x and the first convolution, which all begin with: "c". */
static void begin(struct onnx_writer *w)
{
    ow_end(w, 11, "x", 4, (int64_t[]){-1, 3, -1, -1});
    ow_conv(w, "x", "c", 3, CHANNELS, 3, 1, 1);
}

static void conv_alone(struct onnx_writer *w)
{
    ow_conv(w, "c", "y", CHANNELS, CHANNELS, 3, 1, 1);
}

static void conv_norm_relu(struct onnx_writer *w)
{
    ow_conv(w, "c", "a", CHANNELS, CHANNELS, 3, 1, 1);
    norm(w, "a", "b");
    ow_node(w, "Relu", "b", "y");
}

static void conv_norm_add_relu(struct onnx_writer *w)
{
    ow_conv(w, "c", "a", CHANNELS, CHANNELS, 3, 1, 1);
    norm(w, "a", "b");
    ow_node(w, "Add", "b c", "d");
    ow_node(w, "Relu", "d", "y");
}

static void conv_silu(struct onnx_writer *w)
{
    ow_conv(w, "c", "a", CHANNELS, CHANNELS, 1, 1, 1);
    ow_node(w, "Sigmoid", "a", "s");
    ow_node(w, "Mul", "a s", "y");
}

static void conv_gelu_spelled_out(struct onnx_writer *w)
{
    number(w, "root", (float)M_SQRT2);
    number(w, "one", 1);
    number(w, "half", 0.5f);
    ow_conv(w, "c", "a", CHANNELS, CHANNELS, 1, 1, 1);
    ow_node(w, "Div", "a root", "d");
    ow_node(w, "Erf", "d", "f");
    ow_node(w, "Add", "f one", "g");
    ow_node(w, "Mul", "a g", "h");
    ow_node(w, "Mul", "h half", "y");
}

/* Depthwise and grouped ones among them; the picture lies as it lay from the first to the last. */
static void four_convs(struct onnx_writer *w)
{
    ow_conv(w, "c", "c1", CHANNELS, CHANNELS, 3, 1, CHANNELS);
    ow_node(w, "Relu", "c1", "r1");
    ow_conv(w, "r1", "c2", CHANNELS, CHANNELS, 1, 1, 1);
    ow_node(w, "Relu", "c2", "r2");
    ow_conv(w, "r2", "c3", CHANNELS, CHANNELS, 3, 1, 2);
    ow_node(w, "Relu", "c3", "r3");
    ow_begin(w, "MaxPool", "r3", "m");
    ow_ints(w, "kernel_shape", 2, (int64_t[]){3, 3});
    ow_ints(w, "pads", 4, (int64_t[]){1, 1, 1, 1});
    ow_done(w);
    ow_conv(w, "m", "y", CHANNELS, CHANNELS, 3, 1, 1);
}

/* Sizes that are worked out from sizes, as exporters write a shuffle: nothing of it is a step. */
static void sizes_of_sizes(struct onnx_writer *w)
{
    ow_node(w, "Shape", "c", "s");
    ow_integers(w, "zero", 1, (int64_t[]){0});
    ow_integers(w, "rest", 3, (int64_t[]){CHANNELS, -1, 1});
    ow_node(w, "Gather", "s zero", "n");
    ow_begin(w, "Concat", "n rest", "to");
    ow_int(w, "axis", 0);
    ow_done(w);
    ow_node(w, "Reshape", "c to", "flat");
    ow_node(w, "Reshape", "flat s", "back");
    ow_conv(w, "back", "y", CHANNELS, CHANNELS, 1, 1, 1);
}

/* In and out are laid out anew once each, and the first convolution is a step. */
enum { BESIDE = 3 };

static const struct {
    const char *name;
    void (*write)(struct onnx_writer *w);
    int steps; /* of what follows the first convolution */
} graphs[] = {
    {"a convolution", conv_alone, 1},
    {"with its norm and function", conv_norm_relu, 1},
    {"with what it is added to", conv_norm_add_relu, 1},
    {"with a gate of itself", conv_silu, 1},
    {"with a function in five nodes", conv_gelu_spelled_out, 1},
    {"four and a pooling", four_convs, 5},
    {"sizes of sizes", sizes_of_sizes, 1},
};

static void close_to(const struct ndarray *got, const struct ndarray *wanted, const char *name)
{
    double most = 0, off = 0;
    assert_true(ndarray_same_shape(got, wanted));
    for (int64_t i = 0; i < wanted->count; i++) {
        most = fmax(most, fabs(ndarray_f64(wanted, i)));
        off = fmax(off, fabs(ndarray_f64(wanted, i) - ndarray_f64(got, i)));
    }
    if (!(off <= 2e-5 * most))
        fail_msg("%s: %g of the largest value %g", name, off / most, most);
}

TEST(norms_functions_sums_and_gates_are_no_steps_of_their_own_and_pictures_keep_their_layout)
{
    for (size_t i = 0; i < sizeof graphs / sizeof *graphs; i++) {
        struct onnx_writer w = {.random = (uint32_t)i + 1};
        begin(&w);
        graphs[i].write(&w);
        ow_end(&w, 12, "y", 4, (int64_t[]){-1, -1, -1, -1});
        struct buffer file = ow_finish(&w, 17);
        struct onnx_network *n = network_of(&file, UINT32_MAX),
                            *reference = network_of(&file, UINT32_MAX);
        struct network_engine *g = NULL;
        struct ndarray x = random_picture(2, 12, 10), got = {0}, wanted = {0};
        const struct ndarray *in[] = {&x};
        struct err e = {0};
        if (network_engine_open(&n, NULL, NULL, &g, &e) < 0 ||
            network_engine_run(g, 1, in, &got, &e) < 0 ||
            network_run(reference, 1, in, &wanted, &e) < 0)
            fail_msg("%s: %s", graphs[i].name, e.text);
        struct network_plan_facts f = network_engine_describe(g);
        if (f.steps != BESIDE + graphs[i].steps || f.reference_steps != 0)
            fail_msg("%s: %d steps, %d by the reference", graphs[i].name, f.steps,
                     f.reference_steps);
        close_to(&got, &wanted, graphs[i].name);
        ndarray_free(&x);
        ndarray_free(&got);
        ndarray_free(&wanted);
        network_close(&reference);
        network_engine_close(&g);
        buffer_free(&file);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(
            norms_functions_sums_and_gates_are_no_steps_of_their_own_and_pictures_keep_their_layout),
    };
    return cmocka_run_group_tests_name("network_fusion", tests, NULL, NULL);
}
