#include <fcntl.h>
#include <unistd.h>

#include "model/model.h"
#include "tests/test.h"
#include "tests/unit/model/model_fixture.h"
#include "tests/unit/model/tiny_gguf.h"

static const char *write_tiny(const struct tiny_llama *t)
{
    struct buffer file = {0};
    tiny_llama_make(t, &file);
    const char *path = write_bytes("tiny.gguf", file.data, file.size);
    buffer_free(&file);
    return path;
}

TEST(gguf_becomes_layers_finer_than_a_block)
{
    struct model *m = open_or_fail(write_tiny(&(struct tiny_llama){.dtype = DTYPE_Q8_0}));
    const struct model_config *c = model_config(m);
    const struct graph *g = model_graph(m);
    assert_string_equal(c->architecture, "llama");
    assert_int_equal(c->head_dim, TINY_HEAD_DIM);
    assert_int_equal(c->rope.style, ROPE_PAIRS);
    assert_true(c->rope.base == 10000 && c->rope.scale == 1 && !c->rope.factors &&
                !c->tied_embeddings);
    static const char *const names[] = {"embed",      "blk.0.attn", "blk.0.mlp",
                                        "blk.1.attn", "blk.1.mlp",  "head"};
    assert_int_equal(g->n_layers, 6);
    for (int i = 0; i < 6; i++)
        assert_string_equal(g->layers[i].name, names[i]);
    const struct graph_layer *attention = &g->layers[1], *mlp = &g->layers[2];
    assert_int_equal(mlp->param_bytes, TINY_WIDTH * 4 + 3 * TINY_WIDTH * TINY_MLP / 32 * 34);
    assert_int_equal(attention->state_bytes_per_token, 2 * 2 * TINY_KV_HEADS * TINY_HEAD_DIM);
    assert_int_equal(attention->output_bytes_per_token, 4 * TINY_WIDTH);
    assert_true(mlp->flops_per_token == 2.0 * 3 * TINY_WIDTH * TINY_MLP);
    assert_int_equal(weights_of(m, 0, g->n_layers), 21);
    assert_int_equal(weights_of(m, 1, 2), 5);
    assert_int_equal(weights_of(m, 2, 2), 0);
    model_close(&m);
    assert_null(m);
}

TEST(tied_embedding_counts_once_in_a_stage_that_holds_both_ends)
{
    struct model *m = open_or_fail(write_tiny(&(struct tiny_llama){.without = "output.weight"}));
    const struct graph *g = model_graph(m);
    assert_true(model_config(m)->tied_embeddings);
    assert_int_equal(weights_of(m, 0, 6), 20);
    assert_int_equal(weights_of(m, 0, 1), 1);
    assert_int_equal(weights_of(m, 5, 6), 2);
    assert_ptr_equal(g->ops[g->n_ops - 1].weights[0], g->ops[g->layers[0].first_op].weights[0]);
    model_close(&m);
}

TEST(bias_is_used_where_the_file_has_it)
{
    struct buffer file = {0};
    struct tiny_llama t = {.extra_tensor = "blk.1.attn_k.bias"};
    tiny_llama_make(&t, &file); /* half a head long: refused by its shape, so it was looked at */
    refuses(write_bytes("tiny.gguf", file.data, file.size), HP_EPARSE,
            "tensor blk.1.attn_k.bias has shape [4], expected [16]");
    buffer_free(&file);
}

TEST(spoiled_models_are_refused_with_file_tensor_and_problem)
{
    static const struct {
        struct tiny_llama model;
        int code;
        const char *says;
    } cases[] = {
        {{.without = "blk.1.attn_k.weight"}, HP_EPARSE, "tensor blk.1.attn_k.weight is missing"},
        {{.without = "token_embd.weight"}, HP_EPARSE, "tensor token_embd.weight is missing"},
        {{.without = "output_norm.weight"}, HP_EPARSE, "tensor output_norm.weight is missing"},
        {{.wrong_shape = "blk.0.ffn_down.weight"},
         HP_EPARSE,
         "tensor blk.0.ffn_down.weight has shape [32, 96], expected [32, 64]"},
        {{.wrong_shape = "blk.0.attn_norm.weight"},
         HP_EPARSE,
         "tensor blk.0.attn_norm.weight has shape [64], expected [32]"},
        {{.repeated = "blk.1.ffn_up.weight"},
         HP_EPARSE,
         "tensor blk.1.ffn_up.weight is there twice"},
        {{.extra_tensor = "blk.0.attn_q_norm.weight"},
         HP_EUNSUPPORTED,
         "tensor blk.0.attn_q_norm.weight is not one"},
        {{.extra_tensor = "blk.2.attn_norm.weight"},
         HP_EUNSUPPORTED,
         "tensor blk.2.attn_norm.weight is not one"},
        {{.extra_tensor = "rope_freqs.weight"},
         HP_EPARSE,
         "tensor rope_freqs.weight: factor 0 is 0"},
        {{.architecture = "gpt5"},
         HP_EUNSUPPORTED,
         "architecture \"gpt5\" is not one that is known: llama"},
        {{.architecture = "\x1b[2J"}, HP_EUNSUPPORTED, "architecture \"?[2J\""},
        {{.without = "general.architecture"}, HP_EPARSE, "key general.architecture is missing"},
        {{.without = "llama.block_count"}, HP_EPARSE, "key llama.block_count is missing"},
        {{.key = "llama.block_count", .value = 60000},
         HP_EPARSE,
         "60000 blocks, but only 21 tensors"},
        {{.key = "llama.block_count", .value = 3},
         HP_EPARSE,
         "tensor blk.2.attn_norm.weight is missing"},
        {{.key = "llama.block_count", .value = 0}, HP_EPARSE, "number of blocks of 0"},
        {{.key = "llama.embedding_length", .value = 0}, HP_EPARSE, "width of 0"},
        {{.key = "llama.embedding_length", .value = 1 << 25}, HP_EPARSE, "width of 33554432"},
        {{.key = "llama.embedding_length", .value = 0xffffffff},
         HP_EPARSE,
         "key llama.embedding_length is 4294967295"},
        {{.key = "llama.attention.head_count", .value = 0}, HP_EPARSE, "number of heads of 0"},
        {{.key = "llama.attention.head_count_kv", .value = 3},
         HP_EPARSE,
         "4 heads do not share 3 KV heads"},
        {{.key = "llama.attention.head_count_kv", .value = 8},
         HP_EPARSE,
         "number of KV heads of 8"},
        {{.key = "llama.rope.dimension_count", .value = 9}, HP_EPARSE, "rotated dimensions of 9"},
        {{.key = "llama.rope.dimension_count", .value = 7},
         HP_EPARSE,
         "7 rotated dimensions do not make pairs"},
        {{.key = "llama.vocab_size", .value = 9},
         HP_EPARSE,
         "tensor token_embd.weight has 8 rows; key llama.vocab_size says 9"},
        {{.extra_key = "llama.rope.scaling.type", .extra_text = "ntk"},
         HP_EUNSUPPORTED,
         "rope scaling \"ntk\""},
        {{.extra_key = "llama.expert_count", .value = 8},
         HP_EPARSE,
         "key llama.expert_used_count is missing"},
        {{.extra_key = "llama.logit_scale", .value = 8},
         HP_EUNSUPPORTED,
         "key llama.logit_scale is 8, and a model of family llama computes with 1 there"},
        {{.extra_key = "llama.attn_logit_softcapping", .value = 50},
         HP_EUNSUPPORTED,
         "key llama.attn_logit_softcapping is 50"},
        {{.extra_key = "llama.expert_gating_func", .value = 2},
         HP_EUNSUPPORTED,
         "key llama.expert_gating_func is 2"},
        {{.extra_key = "llama.rope.scaling.type", .extra_text = "longrope"},
         HP_EPARSE,
         "tensor rope_factors_long.weight is missing"},
        {{.extra_key = "split.count", .value = 3}, HP_EUNSUPPORTED, "one of 3 parts"},
        {{.extra_key = "llama.attention.value_length", .value = 16},
         HP_EUNSUPPORTED,
         "keys of size 8 with values of size 16"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++)
        refuses(write_tiny(&cases[i].model), cases[i].code, cases[i].says);
}

TEST(settings_that_change_nothing_are_no_reason_to_refuse)
{
    static const char *const neutral[] = {"llama.embedding_scale", "llama.logit_scale",
                                          "llama.expert_gating_func"};
    for (size_t i = 0; i < sizeof neutral / sizeof *neutral; i++) {
        struct tiny_llama t = {.extra_key = neutral[i], .value = 1};
        struct model *m = open_or_fail(write_tiny(&t));
        model_close(&m);
    }
}

TEST(attention_has_the_window_of_the_file)
{
    struct tiny_llama t = {.extra_key = "llama.attention.sliding_window", .value = 24};
    struct model *m = open_or_fail(write_tiny(&t));
    int seen = 0;
    for (int i = 0; i < model_graph(m)->n_ops; i++)
        if (model_graph(m)->ops[i].kind == OP_ATTENTION) {
            assert_int_equal(model_graph(m)->ops[i].u.attention.window, 24);
            seen++;
        }
    assert_true(seen > 0);
    model_close(&m);
}

TEST(text_of_an_unknown_family_is_still_read)
{
    struct tiny_llama t = {.architecture = "gpt5",
                           .extra_key = "tokenizer.chat_template",
                           .extra_text = "{{ messages }}"};
    struct model *m;
    struct err e = {0};
    if (model_open_text(write_tiny(&t), &m, &e) < 0)
        fail_msg("%s", e.text);
    int n;
    assert_string_equal(model_chat_template(m), "{{ messages }}");
    model_weights(m, &n);
    assert_int_equal(n, 0);
    assert_int_equal(model_graph(m)->n_layers, 0);
    model_close(&m);
}

TEST(what_is_no_model_is_refused)
{
    char missing[128];
    snprintf(missing, sizeof missing, "%s/nothing", folder);
    refuses(missing, HP_ENOENT, "No such file");
    refuses(folder, HP_ENOENT, "config.json");
    refuses(write_text("empty.gguf", ""), HP_EPARSE, "empty");
    refuses(write_text("text.gguf", "hello, world"), HP_EPARSE, "not a GGUF file");
    struct model *m;
    struct err e = {0};
    assert_int_equal(model_open(write_text("net.onnx", "hello, world"), &m, &e), HP_EPARSE);
    assert_non_null(strstr(e.hint, "`hpctl apply` serves ONNX models over a cluster"));
}

/* Copies of the ranges of model_heads alone, over a hole. */
TEST(sparse_copy_of_its_heads_opens_like_the_model)
{
    struct buffer file = {0};
    tiny_llama_make(&(struct tiny_llama){.dtype = DTYPE_F16, .rope_factors = 1}, &file);
    struct model *whole = open_or_fail(write_bytes("whole.gguf", file.data, file.size));
    char path[128];
    snprintf(path, sizeof path, "%s/sparse.gguf", folder);
    int fd = open(path, O_CREAT | O_RDWR, 0600), n, n_sparse;
    assert_true(fd >= 0);
    assert_int_equal(ftruncate(fd, (off_t)file.size), 0);
    const struct model_range *heads = model_heads(whole, &n);
    assert_int_equal(n, 2);
    for (int i = 0; i < n; i++)
        assert_int_equal(
            pwrite(fd, file.data + heads[i].offset, heads[i].bytes, (off_t)heads[i].offset),
            heads[i].bytes);
    close(fd);
    struct model *sparse = open_or_fail(path);
    assert_int_equal(model_graph(sparse)->n_ops, model_graph(whole)->n_ops);
    assert_int_equal(model_config(sparse)->vocabulary, TINY_VOCABULARY);
    assert_true(model_config(sparse)->rope.factors[TINY_HEAD_DIM / 2 - 1] == 2);
    const struct weight *a = model_weights(whole, &n), *b = model_weights(sparse, &n_sparse);
    assert_int_equal(n, n_sparse);
    for (int i = 0; i < n; i++)
        assert_true(a[i].offset == b[i].offset && a[i].bytes == b[i].bytes);
    model_close(&sparse);
    model_close(&whole);
    buffer_free(&file);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(gguf_becomes_layers_finer_than_a_block),
        cmocka_unit_test(tied_embedding_counts_once_in_a_stage_that_holds_both_ends),
        cmocka_unit_test(bias_is_used_where_the_file_has_it),
        cmocka_unit_test(spoiled_models_are_refused_with_file_tensor_and_problem),
        cmocka_unit_test(settings_that_change_nothing_are_no_reason_to_refuse),
        cmocka_unit_test(attention_has_the_window_of_the_file),
        cmocka_unit_test(text_of_an_unknown_family_is_still_read),
        cmocka_unit_test(what_is_no_model_is_refused),
        cmocka_unit_test(sparse_copy_of_its_heads_opens_like_the_model),
    };
    return cmocka_run_group_tests_name("model", tests, make_folder, remove_folder);
}
