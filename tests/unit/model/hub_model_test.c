/* Models in folders: configs of several styles, shards with and without an index. */
#include <math.h>
#include <sys/stat.h>
#include <unistd.h>

#include "model/model.h"
#include "tests/test.h"
#include "tests/unit/model/model_fixture.h"
#include "tests/unit/model/tiny_gguf.h"

static const char config[] = "{\"model_type\": \"%s\", \"hidden_size\": 32, \"intermediate_size\": "
                             "64, \"num_hidden_layers\": 1,"
                             " \"num_attention_heads\": 4, \"num_key_value_heads\": 2, "
                             "\"max_position_embeddings\": 128, \"vocab_size\": 8,"
                             " \"tie_word_embeddings\": true%s}";

static void write_config(const char *type, const char *more)
{
    char text[1024];
    snprintf(text, sizeof text, config, type, more);
    write_text("config.json", text);
}

/* One shard of tensors named in `shapes` ("name rows columns", rows 0 for a vector), all zero. */
static void write_shard(const char *name, const char *const *shapes)
{
    struct buffer header = {0}, file = {0};
    uint64_t at = 0;
    buffer_printf(&header, "{");
    for (int i = 0; shapes[i]; i++) {
        char tensor[96];
        unsigned rows, columns;
        assert_int_equal(sscanf(shapes[i], "%95s %u %u", tensor, &rows, &columns), 3);
        uint64_t bytes = 4ull * columns * (rows ? rows : 1);
        buffer_printf(&header, "%s\"%s\": {\"dtype\": \"F32\", \"shape\": [", i ? ", " : "",
                      tensor);
        if (rows)
            buffer_printf(&header, "%u, ", rows);
        buffer_printf(&header, "%u]", columns);
        buffer_printf(&header, ", \"data_offsets\": [%llu, %llu]}", (unsigned long long)at,
                      (unsigned long long)(at + bytes));
        at += bytes;
    }
    buffer_printf(&header, "}");
    put_u64(&file, header.size);
    buffer_append(&file, header.data, header.size);
    memset(buffer_extend(&file, at), 0, at);
    write_bytes(name, file.data, file.size);
    buffer_free(&header);
    buffer_free(&file);
}

static const char *const outer[] = {"model.embed_tokens.weight 8 32", "model.norm.weight 0 32",
                                    NULL};

static const char *const block[] = {
    "model.layers.0.input_layernorm.weight 0 32",
    "model.layers.0.self_attn.q_proj.weight 32 32",
    "model.layers.0.self_attn.k_proj.weight 16 32",
    "model.layers.0.self_attn.v_proj.weight 16 32",
    "model.layers.0.self_attn.o_proj.weight 32 32",
    "model.layers.0.self_attn.rotary_emb.inv_freq 0 4",
    "model.layers.0.post_attention_layernorm.weight 0 32",
    "model.layers.0.mlp.gate_proj.weight 64 32",
    "model.layers.0.mlp.up_proj.weight 64 32",
    "model.layers.0.mlp.down_proj.weight 32 64",
    NULL,
};

static void remove_file(const char *name)
{
    char path[128];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    unlink(path);
}

static void write_folder(void)
{
    remove_file("model.safetensors.index.json");
    write_config("llama", "");
    write_shard("model-00001-of-00002.safetensors", outer);
    write_shard("model-00002-of-00002.safetensors", block);
}

TEST(folder_opens_with_and_without_an_index)
{
    write_folder();
    for (int with = 0; with < 2; with++) {
        if (with)
            write_text(
                "model.safetensors.index.json",
                "{\"weight_map\": {\"model.embed_tokens.weight\": "
                "\"model-00001-of-00002.safetensors\","
                " \"model.layers.0.mlp.up_proj.weight\": \"model-00002-of-00002.safetensors\"}}");
        struct model *m = open_or_fail(folder);
        int files, heads;
        assert_string_equal(model_files(m, &files)[files - 1].name,
                            "model-00002-of-00002.safetensors");
        assert_int_equal(files, with ? 4 : 3);
        model_heads(m, &heads);
        assert_int_equal(heads, files);
        assert_int_equal(model_config(m)->rope.style, ROPE_HALVES);
        assert_int_equal(weights_of(m, 0, 4), 11);
        model_close(&m);
    }
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.layers.0.mlp.up_proj.weight\": "
               "\"model-00002-of-00002.safetensors\"}}");
    refuses(folder, HP_EPARSE, "tensor model.embed_tokens.weight is missing");
    write_text(
        "model.safetensors.index.json",
        "{\"weight_map\": {\"model.embed_tokens.weight\": \"model-00001-of-00002.safetensors\","
        " \"x\": \"model-00002-of-00002.safetensors\"}}");
    refuses(folder, HP_EPARSE,
            "$.weight_map.x: tensor x is not in model-00002-of-00002.safetensors");
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"x\": \"../../etc/passwd.safetensors\"}}");
    refuses(folder, HP_EPARSE, "is not the name of a safetensors file in this folder");
    remove_file("model.safetensors.index.json");
    write_shard("model-00003-of-00002.safetensors", outer);
    refuses(folder, HP_EPARSE, "tensor model.embed_tokens.weight is there twice");
    remove_file("model-00003-of-00002.safetensors");
}

TEST(configs_of_both_styles_are_read)
{
    static const struct {
        const char *type, *more;
        double base, scale, last_factor;
    } cases[] = {
        {"llama", "", 10000, 1, 0},
        {"llama", ", \"rope_theta\": 5e5, \"rope_scaling\": null", 5e5, 1, 0},
        {"llama", ", \"rope_theta\": 5e5, \"rope_scaling\": {\"type\": \"linear\", \"factor\": 4}",
         5e5, 4, 0},
        {"mistral",
         ", \"sliding_window\": null, \"rope_parameters\": {\"rope_type\": \"default\", "
         "\"rope_theta\": 1e6}",
         1e6, 1, 0},
        {"mistral", ", \"sliding_window\": 4096", 10000, 1, 0},
        {"llama",
         ", \"rope_theta\": 5e5, \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8, "
         "\"low_freq_factor\": 1,"
         " \"high_freq_factor\": 4, \"original_max_position_embeddings\": 64}",
         5e5, 1, 8},
        {"llama", ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4}", 10000, 1, 4},
        {"llama", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}", 10000, 1, 1},
    };
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i].type, cases[i].more);
        struct model *m = open_or_fail(folder);
        const struct rope_config *r = &model_config(m)->rope;
        assert_true(r->base == cases[i].base && r->scale == cases[i].scale);
        assert_true(cases[i].last_factor == 0
                        ? !r->factors
                        : r->factors && r->factors[0] == 1 &&
                              (double)r->factors[r->dims / 2 - 1] == cases[i].last_factor);
        model_close(&m);
    }
}

/* Four times 128 tokens by a base that is (4 * 4 - 3)^(8 / 6) times as large. */
TEST(dynamic_scaling_stretches_the_context_for_sequences_that_need_it)
{
    write_folder();
    write_config("llama", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4}");
    struct model *m = open_or_fail(folder);
    const struct rope_config *r = &model_config(m)->rope;
    assert_int_equal(model_config(m)->context, 512);
    assert_int_equal(r->long_from, 128);
    for (int i = 0; i < 4; i++)
        assert_true(fabs((double)r->long_factors[i] - pow(pow(13, 8.0 / 6), i / 4.0)) < 1e-4);
    model_close(&m);
    write_config("llama", ", \"rope_scaling\": {\"type\": \"dynamic\", \"factor\": 4, "
                          "\"original_max_position_embeddings\": 32}");
    m = open_or_fail(folder);
    assert_int_equal(model_config(m)->context, 128);
    assert_int_equal(model_config(m)->rope.long_from, 32);
    model_close(&m);
}

/* A window that is not shorter than the context is none. */
TEST(windows_are_read)
{
    static const struct {
        const char *type, *more;
        uint32_t window;
    } cases[] = {
        {"mistral", ", \"sliding_window\": 24", 24},
        {"mistral", ", \"sliding_window\": 24, \"layer_types\": [\"sliding_attention\"]", 24},
        {"mistral", ", \"sliding_window\": null", 0},
        {"mistral", ", \"sliding_window\": 4096", 0},
        {"mistral", "", 0},
        {"llama", ", \"sliding_window\": 24", 0},
    };
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i].type, cases[i].more);
        struct model *m = open_or_fail(folder);
        const struct graph *g = model_graph(m);
        for (int k = 0; k < g->n_ops; k++)
            if (g->ops[k].kind == OP_ATTENTION)
                assert_int_equal(g->ops[k].u.attention.window, cases[i].window);
        model_close(&m);
    }
}

TEST(a_folder_that_is_no_model_or_not_a_whole_one_says_what_to_do)
{
    struct model *m;
    struct err e = {0};
    char path[140];
    write_folder();
    write_text("model.safetensors.index.json",
               "{\"weight_map\": {\"model.embed_tokens.weight\": "
               "\"model-00001-of-00002.safetensors\","
               " \"model.layers.0.mlp.up_proj.weight\": \"model-00002-of-00002.safetensors\"}}");
    remove_file("model-00002-of-00002.safetensors");
    snprintf(path, sizeof path, "%s//", folder); /* as a shell completes it, and more */
    assert_int_equal(model_open(path, &m, &e), HP_ENOENT);
    assert_null(strstr(e.text, "//"));
    assert_non_null(strstr(e.text, "model-00002-of-00002.safetensors"));
    assert_non_null(strstr(e.hint, "fetch what is missing"));
    remove_file("config.json");
    assert_int_equal(model_open(folder, &m, &e), HP_ENOENT);
    assert_non_null(strstr(e.hint, "a model is a GGUF file, or a Hugging Face folder"));
    write_folder();
}

TEST(configs_that_mean_something_else_are_refused)
{
    static const struct {
        const char *type, *more;
        int code;
        const char *says;
    } cases[] = {
        {"gpt5", "", HP_EUNSUPPORTED,
         "config.json: architecture \"gpt5\" is not one that is known: llama, mistral"},
        {"mistral", ", \"sliding_window\": 24, \"layer_types\": [\"full_attention\"]",
         HP_EUNSUPPORTED, "$.layer_types[0]"},
        {"mistral", ", \"sliding_window\": 0", HP_EPARSE,
         "$.sliding_window: a window of no tokens"},
        {"llama", ", \"rope_scaling\": {\"rope_type\": \"ntk\", \"factor\": 4}", HP_EUNSUPPORTED,
         "$.rope_scaling: rope scaling \"ntk\""},
        {"llama",
         ", \"rope_scaling\": {\"rope_type\": \"yarn\", \"factor\": 4, \"beta_fast\": 0.5}",
         HP_EPARSE, "YaRN's factor 4, beta 1 to 0.5"},
        {"llama", ", \"rope_parameters\": {\"rope_type\": \"dynamic\"}", HP_EPARSE,
         "$.rope_parameters: has no \"factor\""},
        {"llama",
         ", \"rope_scaling\": {\"type\": \"longrope\", \"short_factor\": [1], \"long_factor\": "
         "[1]}",
         HP_EPARSE, "$.rope_scaling.short_factor: 1 factors; 8 rotated dimensions have 4"},
        {"llama", ", \"rope_scaling\": {\"rope_type\": \"llama3\", \"factor\": 8}", HP_EPARSE,
         "$.rope_scaling: has no \"low_freq_factor\""},
        {"llama", ", \"hidden_act\": \"gelu\"", HP_EUNSUPPORTED, "$.hidden_act"},
        {"llama", ", \"quantization_config\": {}", HP_EUNSUPPORTED, "$.quantization_config"},
        {"llama", ", \"layer_types\": [\"sliding_attention\"]", HP_EUNSUPPORTED,
         "$.layer_types[0]"},
        {"llama", ", \"head_dim\": -4", HP_EPARSE, "$.head_dim: -4 is negative"},
        {"llama", ", \"head_dim\": 0", HP_EPARSE, "head size of 0"},
        {"llama", ", \"head_dim\": 16", HP_EPARSE,
         "tensor model.layers.0.self_attn.q_proj.weight has shape [32, 32], expected [64, 32]"},
        {"llama", ", \"attention_bias\": true", HP_EPARSE,
         "tensor model.layers.0.self_attn.q_proj.bias is missing"},
        {"llama", ", \"rope_theta\": \"big\"", HP_EPARSE,
         "$.rope_theta: is a string, not a number"},
        {"llama", ", \"rms_norm_eps\": 7", HP_EPARSE, "norm epsilon of 7"},
    };
    write_folder();
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        write_config(cases[i].type, cases[i].more);
        refuses(folder, cases[i].code, cases[i].says);
    }
    write_text("config.json", "{\"model_type\": \"llama\", \"hidden_size\": 32");
    refuses(folder, HP_EPARSE, "not valid JSON");
    write_text("config.json", "{\"model_type\": \"llama\", \"vocab_size\": 8}");
    refuses(folder, HP_EPARSE, "$: has no \"hidden_size\"");
}

/* transformers writes 10^30 where a tokenizer has no limit, in very many folders. */
TEST(whole_numbers_beyond_64_bits_are_read_in_a_folder)
{
    static const char limit[] = "1000000000000000019884624838656";
    char text[512];
    write_folder();
    snprintf(text, sizeof text, ", \"eos_token_id\": 2, \"rope_theta\": 500000, \"no_limit\": %s",
             limit);
    write_config("llama", text);
    snprintf(text, sizeof text,
             "{\"model_max_length\": %s, \"chat_template\": \"{{ 1 }}\", \"eos_token\": \"a\"}",
             limit);
    write_text("tokenizer_config.json", text);
    write_text("generation_config.json", "{\"eos_token_id\": [1, 2.0, -1, 1e30]}");
    write_text("tokenizer.json",
               "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1, \"c\": 2}, \"merges\": []}}");
    struct model *m = open_or_fail(folder);
    const struct tokenizer *t;
    struct err e = {0};
    assert_int_equal(model_config(m)->width, 32);
    assert_true(model_config(m)->rope.base == 500000);
    assert_string_equal(model_chat_template(m), "{{ 1 }}");
    if (model_tokenizer(m, &t, &e) < 0)
        fail_msg("%s", e.text);
    int n_ends;
    const uint32_t *ends = tokenizer_end_ids(t, &n_ends);
    assert_int_equal(n_ends, 3);
    assert_true(ends[0] == 0 && ends[1] == 2 && ends[2] == 1);
    model_close(&m);
    write_text("tokenizer_config.json", "{\"model_max_length\": 1e999}");
    refuses(folder, HP_EPARSE, "tokenizer_config.json:1:26: not valid JSON: real number overflow");
    remove_file("tokenizer_config.json");
    remove_file("generation_config.json");
    remove_file("tokenizer.json");
}

static void renders(struct model *m, const char *extra, const char *expected)
{
    struct buffer out = {0};
    struct err e = {0};
    json_t *messages = json_array(), *more = extra ? json_loads(extra, 0, NULL) : NULL;
    if (model_chat_render(m, messages, true, more, &out, &e) < 0)
        fail_msg("%s", e.text);
    assert_string_equal(buffer_cstr(&out), expected);
    json_decref(messages);
    json_decref(more);
    buffer_free(&out);
}

/* Named templates, and special tokens that only special_tokens_map.json names. */
TEST(templates_for_tools_and_tokens_of_the_map_are_used)
{
    static const char tokens[] = "{{ bos_token }}{{ eos_token }}{{ pad_token }}{{ unk_token }}",
                      tools[] = "{\"tools\": [1]}";
    char text[512], path[128];
    write_folder();
    write_text("tokenizer.json", "{\"model\": {\"vocab\": {\"a\": 0, \"b\": 1}, \"merges\": []}}");
    write_text(
        "special_tokens_map.json",
        "{\"bos_token\": {\"content\": \"<b>\"}, \"eos_token\": \"b\", \"pad_token\": \"<p>\", "
        "\"unk_token\": \"<u>\"}");
    snprintf(text, sizeof text,
             "{\"eos_token\": \"a\", \"pad_token\": null, \"chat_template\": [{\"name\": "
             "\"tool_use\", \"template\": \"T%s\"}, "
             "{\"name\": \"rag\", \"template\": \"R\"}, {\"name\": \"default\", \"template\": "
             "\"D%s\"}]}",
             tokens, tokens);
    write_text("tokenizer_config.json", text);
    struct model *m = open_or_fail(folder);
    renders(m, NULL, "D<b>a<p><u>");
    renders(m, "{\"tools\": null}", "D<b>a<p><u>");
    renders(m, tools, "T<b>a<p><u>");
    model_close(&m);
    remove_file("tokenizer_config.json");
    write_text("chat_template.jinja", "file");
    snprintf(path, sizeof path, "%s/additional_chat_templates", folder);
    mkdir(path, 0700);
    write_text("additional_chat_templates/tool_use.jinja", tokens);
    m = open_or_fail(folder);
    renders(m, NULL, "file");
    renders(m, tools, "<b>b<p><u>");
    model_close(&m);
    remove_file("additional_chat_templates/tool_use.jinja");
    remove_file("chat_template.jinja");
    remove_file("special_tokens_map.json");
    remove_file("tokenizer.json");
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(folder_opens_with_and_without_an_index),
        cmocka_unit_test(dynamic_scaling_stretches_the_context_for_sequences_that_need_it),
        cmocka_unit_test(configs_of_both_styles_are_read),
        cmocka_unit_test(windows_are_read),
        cmocka_unit_test(a_folder_that_is_no_model_or_not_a_whole_one_says_what_to_do),
        cmocka_unit_test(configs_that_mean_something_else_are_refused),
        cmocka_unit_test(whole_numbers_beyond_64_bits_are_read_in_a_folder),
        cmocka_unit_test(templates_for_tools_and_tokens_of_the_map_are_used),
    };
    return cmocka_run_group_tests_name("hub model", tests, make_folder, remove_folder);
}
