/* Graphs: the rows of a sequence model, what its kinds of operators say of themselves, which values
 * cross borders, and what a section of layers needs. */
#include <string.h>

#include "model/graph/builder_int.h"
#include "model/graph/section.h"
#include "tests/test.h"
#include "tests/unit/agent/engine/tiny_model.h"

static const uint64_t sizes[GRAPH_SEQUENCE_SYMBOLS] = {[GRAPH_TOKENS] = 10, [GRAPH_WANTED] = 2};

static const struct graph_op *op_of(const struct graph *g, enum op_kind kind)
{
    for (int i = 0; i < g->n_ops; i++)
        if (g->ops[i].kind == kind)
            return &g->ops[i];
    fail_msg("no operator of kind %s", op_kind_info(kind)->name);
    return NULL;
}

TEST(every_value_is_written_once_and_before_it_is_read)
{
    struct tiny_model *m = tiny_model_make(1);
    const struct graph *g = &m->graph;
    int written[256] = {0};
    assert_true(g->n_values <= 256);
    for (int v = 0; v < g->n_values; v++)
        written[v] = g->values[v].origin != VALUE_MADE;
    for (int i = 0; i < g->n_ops; i++) {
        for (int k = 0; k < g->ops[i].n_inputs; k++)
            assert_int_equal(written[g->ops[i].inputs[k]], 1);
        written[g->ops[i].outputs[0]]++;
    }
    for (int v = 0; v < g->n_values; v++)
        assert_int_equal(written[v], 1);
    tiny_model_free(&m);
}

TEST(shapes_bytes_and_flops_are_those_of_the_kind)
{
    struct tiny_model *m = tiny_model_make(1);
    const struct graph *g = &m->graph;
    static const struct {
        enum op_kind kind;
        uint64_t width, rows, weight_bytes;
        double flops;
    } cases[] = {
        {OP_EMBED, TINY_WIDTH, 10, 10 * TINY_WIDTH * 4, 0},
        {OP_RMS_NORM, TINY_WIDTH, 10, TINY_WIDTH * 4, 0},
        {OP_MATMUL, TINY_HEADS * TINY_HEAD_DIM, 10, TINY_HEADS * TINY_HEAD_DIM * TINY_WIDTH * 4,
         2.0 * 10 * TINY_WIDTH * TINY_HEADS * TINY_HEAD_DIM},
        {OP_ROPE_ANGLES, TINY_HEAD_DIM, 10, 0, 0},
        {OP_ROPE, TINY_HEADS * TINY_HEAD_DIM, 10, 0, 0},
        {OP_ATTENTION, TINY_HEADS * TINY_HEAD_DIM, 10, 0, 0},
        {OP_SILU_MUL, TINY_MLP, 10, 0, 0},
        {OP_ROWS, TINY_WIDTH, 2, 0, 0},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        const struct graph_op *op = op_of(g, cases[i].kind);
        const struct graph_value *v = &g->values[op->outputs[0]];
        assert_int_equal(graph_value_width(v), cases[i].width);
        assert_int_equal(graph_value_bytes(v, sizes), cases[i].rows * cases[i].width * 4);
        assert_int_equal(graph_op_weight_bytes(g, op, sizes), cases[i].weight_bytes);
        assert_true(graph_op_flops(g, op, sizes) == cases[i].flops);
    }
    tiny_model_free(&m);
}

TEST(the_residual_stream_alone_crosses_the_borders_of_a_llama)
{
    struct tiny_model *m = tiny_model_make(1);
    const struct graph *g = &m->graph;
    for (int l = 0; l < g->n_layers; l++) {
        const struct graph_layer *layer = &g->layers[l];
        assert_int_equal(layer->n_outputs, 1);
        const struct graph_op *last = &g->ops[layer->first_op + layer->n_ops - 1];
        assert_int_equal(layer->outputs[0], last->outputs[0]);
    }
    assert_string_equal(g->values[g->layers[3].outputs[0]].name, "blk.1.attn.attn_output");
    assert_int_equal(g->layers[3].output_bytes_per_token, 4 * TINY_WIDTH);
    assert_int_equal(g->layers[TINY_LAYERS - 1].output_bytes_per_token, 4);
    tiny_model_free(&m);
}

/* A value that a later layer reads as well: x goes around layer 1. */
TEST(a_border_is_crossed_by_every_value_that_is_read_later)
{
    struct tiny_model *m = tiny_model_make(1);
    struct arena arena = {0};
    const struct graph *g = &m->graph;
    struct graph_op *ops = arena_memdup(&arena, g->ops, (size_t)g->n_ops * sizeof *ops);
    struct graph_layer *layers = arena_memdup(&arena, g->layers, TINY_LAYERS * sizeof *layers);
    int embedded = g->layers[0].outputs[0], *inputs = arena_alloc(&arena, 2, sizeof *inputs);
    struct graph_op *down = &ops[layers[2].first_op + layers[2].n_ops - 1];
    inputs[0] = down->inputs[0];
    inputs[1] = embedded;
    down->inputs = inputs;
    for (int l = 0; l < TINY_LAYERS - 1; l++)
        layers[l].n_outputs = 0, layers[l].output_bytes_per_token = 0;
    struct graph other = *g;
    other.ops = ops;
    other.layers = layers;
    assert_int_equal(graph_borders_find(&other, layers, &arena), 0);
    assert_int_equal(layers[0].n_outputs, 1);
    assert_int_equal(layers[1].n_outputs, 2);
    assert_int_equal(layers[1].outputs[0], embedded);
    assert_int_equal(layers[1].output_bytes_per_token, 2 * 4 * TINY_WIDTH);
    assert_int_equal(layers[2].n_outputs, 1);

    /* The first layer's stage keeps it apart from what is computed in place. */
    struct graph_section s;
    struct err e = {0};
    assert_int_equal(graph_section_make(&other, 1, 2, sizes, &s, &e), 0);
    assert_int_equal(s.n_inputs, 1);
    assert_int_equal(s.n_outputs, 2);
    assert_int_not_equal(s.buffer_of[s.outputs[0]], s.buffer_of[s.outputs[1]]);
    graph_section_free(&s);
    arena_free(&arena);
    tiny_model_free(&m);
}

/* Runs the section's operators in thought: whoever reads a value must find it in its buffer. */
static void check_lives(const struct graph *g, int first, int end)
{
    struct graph_section s;
    struct err e = {0};
    int holds[64], again = 0;
    assert_int_equal(graph_section_make(g, first, end, sizes, &s, &e), 0);
    assert_true(s.n_buffers <= 64);
    for (int i = 0; i < 64; i++)
        holds[i] = -1;
    for (int v = 0; v < g->n_values; v++)
        if (g->values[v].origin == VALUE_BATCH && s.buffer_of[v] >= 0)
            holds[s.buffer_of[v]] = v;
    for (int i = 0; i < s.n_inputs; i++)
        holds[s.buffer_of[s.inputs[i]]] = s.inputs[i];
    for (int i = 0; i < s.n_ops; i++) {
        for (int k = 0; k < s.ops[i]->n_inputs; k++)
            assert_int_equal(holds[s.buffer_of[s.ops[i]->inputs[k]]], s.ops[i]->inputs[k]);
        int out = s.ops[i]->outputs[0], b = s.buffer_of[out];
        assert_true(graph_value_bytes(&g->values[out], sizes) <= s.buffer_bytes[b]);
        holds[b] = out;
        if (i == s.n_ops - 1 && s.first_wanted_op < s.n_ops && again++ == 0)
            i = s.first_wanted_op - 1; /* the next rows that are wanted */
    }
    for (int i = 0; i < s.n_outputs; i++)
        assert_int_equal(holds[s.buffer_of[s.outputs[i]]], s.outputs[i]);
    graph_section_free(&s);
}

TEST(no_buffer_is_taken_from_a_value_that_is_read_later)
{
    struct tiny_model *m = tiny_model_make(1);
    for (int first = 0; first < TINY_LAYERS; first++)
        for (int end = first + 1; end <= TINY_LAYERS; end++)
            check_lives(&m->graph, first, end);
    tiny_model_free(&m);
}

/* Parts of one value: they lie in its buffer, which nobody takes while one of them is read. */
TEST(a_view_keeps_the_value_that_it_is_a_part_of)
{
    static const struct graph_dim wide[] = {{.symbol = GRAPH_TOKENS}, {.size = 24}},
                                  narrow[] = {{.symbol = GRAPH_TOKENS}, {.size = 8}};
    struct graph_value values[6];
    for (int v = 0; v < 6; v++)
        values[v] = (struct graph_value){
            "v",  DTYPE_F32, v ? VALUE_MADE : VALUE_INPUT, 2, v == 1 || v == 4 ? wide : narrow,
            false};
    static const int numbers[] = {0, 1, 2, 3, 4, 5};
    const struct graph_op ops[] = {
        {.kind = OP_GELU,
         .n_inputs = 1,
         .n_outputs = 1,
         .inputs = &numbers[0],
         .outputs = &numbers[1]},
        {.kind = OP_SLICE,
         .n_inputs = 1,
         .n_outputs = 1,
         .inputs = &numbers[1],
         .outputs = &numbers[2],
         .u.slice = {8, 8}},
        {.kind = OP_SLICE,
         .n_inputs = 1,
         .n_outputs = 1,
         .inputs = &numbers[2],
         .outputs = &numbers[3],
         .u.slice = {4, 4}},
        {.kind = OP_GELU,
         .n_inputs = 1,
         .n_outputs = 1,
         .inputs = &numbers[0],
         .outputs = &numbers[4]},
        {.kind = OP_GELU,
         .n_inputs = 1,
         .n_outputs = 1,
         .inputs = &numbers[3],
         .outputs = &numbers[5]},
    };
    struct graph_layer layer = {.name = "l", .n_ops = 5, .n_outputs = 1, .outputs = &numbers[5]};
    struct graph g = {
        .values = values, .n_values = 6, .ops = ops, .n_ops = 5, .layers = &layer, .n_layers = 1};
    struct graph_section s;
    struct err e = {0};
    assert_int_equal(graph_section_make(&g, 0, 1, sizes, &s, &e), 0);
    assert_int_equal(s.views[3].of, 1);
    assert_int_equal(s.views[3].first, 12);
    assert_int_equal(s.buffer_of[3], s.buffer_of[1]);
    assert_int_equal(s.last_read[1], s.last_read[3]); /* by who reads a part of it */
    assert_int_not_equal(s.buffer_of[4], s.buffer_of[1]);
    assert_int_not_equal(s.buffer_of[5], s.buffer_of[1]);
    graph_section_free(&s);
}

TEST(a_section_runs_the_prelude_it_reads_and_no_more)
{
    struct tiny_model *m = tiny_model_make(1);
    static const struct {
        int first, end, n_ops;
        bool angles;
    } cases[] = {{0, 1, 1, false},
                 {1, 2, 9, true},
                 {2, 3, 5, false},
                 {TINY_LAYERS - 1, TINY_LAYERS, 3, false}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct graph_section s;
        struct err e = {0};
        assert_int_equal(graph_section_make(&m->graph, cases[i].first, cases[i].end, sizes, &s, &e),
                         0);
        assert_int_equal(s.n_ops, cases[i].n_ops);
        assert_int_equal(s.ops[0]->kind == OP_ROPE_ANGLES, cases[i].angles);
        graph_section_free(&s);
    }
    tiny_model_free(&m);
}

static bool is_output(const struct graph_section *s, int value)
{
    for (int i = 0; i < s->n_outputs; i++)
        if (s->outputs[i] == value)
            return true;
    return false;
}

/* Rows that leave, or of which rows are wanted again and again, stay. */
TEST(a_section_knows_who_reads_a_value_last)
{
    struct tiny_model *m = tiny_model_make(1);
    struct graph_section s;
    struct err e = {0};
    int stay = 0;
    assert_int_equal(graph_section_make(&m->graph, 0, TINY_LAYERS, sizes, &s, &e), 0);
    for (int i = 0; i < s.n_ops; i++) {
        int out = s.ops[i]->outputs[0], last = SECTION_NEVER;
        for (int j = i + 1; j < s.n_ops; j++)
            for (int k = 0; k < s.ops[j]->n_inputs; k++)
                last = s.ops[j]->inputs[k] == out ? j : last;
        bool stays = is_output(&s, out) || (i < s.first_wanted_op && last >= s.first_wanted_op);
        assert_int_equal(s.last_read[out], stays ? s.n_ops : last);
        stay += stays;
    }
    assert_int_equal(stay, 2);
    graph_section_free(&s);
    tiny_model_free(&m);
}

TEST(a_section_of_many_blocks_needs_no_more_memory_than_one)
{
    struct tiny_model *m = tiny_model_make(1);
    struct graph_section one, all;
    struct err e = {0};
    assert_int_equal(graph_section_make(&m->graph, 1, 3, sizes, &one, &e), 0);
    assert_int_equal(graph_section_make(&m->graph, 1, 1 + 2 * TINY_BLOCKS, sizes, &all, &e), 0);
    assert_int_equal(graph_section_bytes(&all), graph_section_bytes(&one));
    graph_section_free(&one);
    graph_section_free(&all);
    tiny_model_free(&m);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(every_value_is_written_once_and_before_it_is_read),
        cmocka_unit_test(shapes_bytes_and_flops_are_those_of_the_kind),
        cmocka_unit_test(the_residual_stream_alone_crosses_the_borders_of_a_llama),
        cmocka_unit_test(a_border_is_crossed_by_every_value_that_is_read_later),
        cmocka_unit_test(no_buffer_is_taken_from_a_value_that_is_read_later),
        cmocka_unit_test(a_view_keeps_the_value_that_it_is_a_part_of),
        cmocka_unit_test(a_section_runs_the_prelude_it_reads_and_no_more),
        cmocka_unit_test(a_section_knows_who_reads_a_value_last),
        cmocka_unit_test(a_section_of_many_blocks_needs_no_more_memory_than_one),
    };
    return cmocka_run_group_tests_name("graph", tests, NULL, NULL);
}
