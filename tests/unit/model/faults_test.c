/* What model/ makes, with every allocation failing once. */
#include <stdio.h>

#include "model/convert/convert.h"
#include "model/files/npz.h"
#include "model/manifest_build.h"
#include "model/model.h"
#include "model/onnx/network.h"
#include "model/template/template.h"
#include "model/text_network.h"
#include "tests/unit/faults.h"
#include "tests/unit/model/tiny_gguf.h"

static const char demo_model[] = "examples/demo-model/demo-q8_0.gguf";

static int model_opened(void *ctx)
{
    struct model *m = NULL;
    struct err e = {0};
    int rc = model_open(ctx, &m, &e);
    if (rc == 0)
        model_close(&m);
    return rc;
}

/* Tokenizes, renders a conversation, and names the chunks of a model: all that is made of it later.
 */
static int model_used(void *ctx)
{
    struct model *m = NULL;
    const struct tokenizer *t;
    struct err e = {0};
    struct buffer text = {0}, manifest = {0};
    json_t *messages =
        json_pack("[{s:s, s:s}]", "role", "user", "content", "Hello, world! 1234 \xc3\xa9");
    int rc = messages ? model_open(ctx, &m, &e) : HP_ENOMEM;
    rc = rc < 0 ? rc : model_tokenizer(m, &t, &e);
    rc = rc < 0 ? rc : model_chat_render(m, messages, true, NULL, &text, &e);
    rc = rc < 0 ? rc : manifest_build(m, NULL, NULL, NULL, &manifest, &e);
    if (m)
        model_close(&m);
    json_decref(messages);
    buffer_free(&text);
    buffer_free(&manifest);
    return rc;
}

/* Writes a model anew; what threads of its own allocate is not counted. */
static int model_converted(void *ctx)
{
    struct model *m = NULL;
    struct convert_result result;
    struct err e = {0};
    char out[64];
    snprintf(out, sizeof out, "/tmp/hp-faults-%ld.gguf", (long)getpid());
    int rc = model_open(ctx, &m, &e);
    rc = rc < 0 ? rc
                : model_convert(m, out, &(struct convert_options){.type = "q8_0", .threads = 1},
                                &result, &e);
    if (m)
        model_close(&m);
    if (rc == 0)
        convert_result_free(&result);
    unlink(out);
    return rc;
}

static int template_used(void *ctx)
{
    static const char source[] =
        "{% for m in messages %}{% if m.role == 'user' %}[{{ m['content'] | trim | upper }}]{% "
        "elif loop.first %}{{ raise_exception('no') }}{% endif %}"
        "{% set x = namespace(n=0) %}{% set x.n = x.n + loop.index %}{{ x.n ~ '-' ~ (messages | "
        "length) }}{% endfor %}{{ ['a', 'b'] | join(', ') }}"
        "{% macro f(a, b='c') %}{{ a ~ b }}{% endmacro %}{{ f('z') }}{{ {'k': [1, 2.5, none, "
        "true]} | tojson }}{{ 'a b c'.split(' ')[1:] }}";
    struct chat_template *t = NULL;
    struct buffer out = {0};
    struct err e = {0};
    (void)ctx;
    json_t *variables =
        json_pack("{s:[{s:s, s:s}]}", "messages", "role", "user", "content", " hi ");
    int rc = variables ? template_compile(source, sizeof source - 1, &t, &e) : HP_ENOMEM;
    rc = rc < 0 ? rc : template_render(t, variables, NULL, &out, &e);
    template_destroy(&t);
    json_decref(variables);
    buffer_free(&out);
    return rc;
}

/* An ONNX model, opened, run in two stages, and its outputs written to a file and read again. */
static int network_used(void *ctx)
{
    static const int64_t dims[] = {2, 4, 8};
    struct onnx_network *n = NULL;
    struct ndarray x = {0}, outputs[2] = {{0}};
    const struct ndarray *inputs[] = {&x};
    struct npz made = {0}, read = {0};
    struct err e = {0};
    char path[64];
    snprintf(path, sizeof path, "/tmp/hp-faults-%ld.npz", (long)getpid());
    int rc = network_open(ctx, UINT32_MAX, &n, &e);
    rc = rc < 0 ? rc : ndarray_make(&x, ND_F32, 3, dims, UINT32_MAX, &e);
    rc = rc < 0 ? rc : network_run(n, 2, inputs, outputs, &e);
    for (int i = 0; i < 2; i++) {
        rc = rc < 0 ? rc : npz_add(&made, i ? "e" : "t", &outputs[i], &e);
        ndarray_free(&outputs[i]);
    }
    rc = rc < 0 ? rc : npz_write(path, &made, &e);
    rc = rc < 0 ? rc : npz_read(path, &read, &e);
    npz_free(&made);
    npz_free(&read);
    ndarray_free(&x);
    network_close(&n);
    unlink(path);
    return rc;
}

static int text_network_opened(void *ctx)
{
    struct onnx_network *n = NULL;
    struct err e = {0};
    int rc = text_network_open(ctx, UINT32_MAX, &n, &e);
    if (rc == 0)
        network_close(&n);
    return rc;
}

TEST(models_bear_failing_allocations)
{
    /* A small one: each of its allocations opens it once more. */
    const char *tiny = tiny_llama_write(DTYPE_Q8_0);
    faults_each("template", template_used, NULL);
    faults_each("model", model_opened, (void *)(uintptr_t)demo_model);
    faults_each("model with tokenizer, template and manifest", model_used,
                (void *)(uintptr_t)demo_model);
    faults_each("network", network_used, (void *)(uintptr_t) "tests/fuzz/corpus/onnx/attention");
    faults_each("language model as a network", text_network_opened, (void *)(uintptr_t)tiny);
    unlink(tiny);
    faults_each("model converted", model_converted, (void *)(uintptr_t)demo_model);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(models_bear_failing_allocations)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
