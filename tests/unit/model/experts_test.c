/* Mixtures of experts whose tensors and settings do not agree: each is refused with file, tensor
 * and reason. */
#include "model/graph/family.h"
#include "tests/unit/model/model_fixture.h"
#include "tests/unit/model/tiny_gguf.h"

/* What a file says, and what it has. */
struct tiny_mixture {
    uint32_t experts, used;        /* keys; 0: none */
    uint64_t stacked, router_rows; /* of tensors */
    const char *without, *flat,
        *extra;     /* a tensor that is missing, has two dimensions, is surplus */
    uint64_t width; /* of an expert, as its tensors have it */
    enum dtype dtype;
};

enum { EXPERTS = 4, EXPERT_WIDTH = TINY_MLP };

static void stack_put(struct gguf_file *f, const struct tiny_mixture *m, const char *name,
                      uint64_t rows, uint64_t columns)
{
    const struct dtype_info *info = dtype_info(m->dtype);
    bool flat = tiny_is(m->flat, name);
    if (tiny_is(m->without, name))
        return;
    pad(&f->data, 32);
    put_tensor_entry(f, name, flat ? 2 : 3, (const uint64_t[]){columns, rows, m->stacked},
                     info->gguf_type, f->data.size);
    size_t bytes = (size_t)(columns * rows * (flat ? 1 : m->stacked)) / info->block_elements *
                   info->block_bytes;
    memset(buffer_extend(&f->data, bytes), 0, bytes);
}

static void mixture_block_put(struct gguf_file *f, const struct tiny_mixture *m, int block)
{
    static const struct {
        const char *name;
        uint64_t rows, columns;
    } tensors[] = {
        {"attn_norm", 0, TINY_WIDTH},
        {"attn_q", TINY_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
        {"attn_k", TINY_KV_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
        {"attn_v", TINY_KV_HEADS * TINY_HEAD_DIM, TINY_WIDTH},
        {"attn_output", TINY_WIDTH, TINY_HEADS * TINY_HEAD_DIM},
        {"ffn_norm", 0, TINY_WIDTH},
    };
    char name[64];
    for (size_t i = 0; i < sizeof tensors / sizeof *tensors; i++) {
        snprintf(name, sizeof name, "blk.%d.%s.weight", block, tensors[i].name);
        put_tensor(f, name, tensors[i].rows, tensors[i].columns, DTYPE_F32);
    }
    snprintf(name, sizeof name, "blk.%d.ffn_gate_inp.weight", block);
    if (!tiny_is(m->without, name))
        put_tensor(f, name, m->router_rows, TINY_WIDTH, DTYPE_F32);
    snprintf(name, sizeof name, "blk.%d.ffn_gate_exps.weight", block);
    stack_put(f, m, name, m->width, TINY_WIDTH);
    snprintf(name, sizeof name, "blk.%d.ffn_up_exps.weight", block);
    stack_put(f, m, name, m->width, TINY_WIDTH);
    snprintf(name, sizeof name, "blk.%d.ffn_down_exps.weight", block);
    stack_put(f, m, name, TINY_WIDTH, m->width);
}

static const char *mixture_write(const struct tiny_mixture *m)
{
    struct gguf_file f = {0};
    struct buffer b = {0};
    tiny_keys(&f, &(struct tiny_llama){0});
    if (m->experts)
        put_key_u32(&f, "llama.expert_count", m->experts);
    if (m->used)
        put_key_u32(&f, "llama.expert_used_count", m->used);
    put_tensor(&f, "token_embd.weight", TINY_VOCABULARY, TINY_WIDTH, DTYPE_F32);
    for (int block = 0; block < TINY_BLOCKS; block++)
        mixture_block_put(&f, m, block);
    put_tensor(&f, "output_norm.weight", 0, TINY_WIDTH, DTYPE_F32);
    put_tensor(&f, "output.weight", TINY_VOCABULARY, TINY_WIDTH, DTYPE_F32);
    if (m->extra)
        put_tensor(&f, m->extra, 0, TINY_WIDTH, DTYPE_F32);
    gguf_file_finish(&f, &b);
    const char *path = write_bytes("mixture.gguf", b.data, b.size);
    buffer_free(&b);
    return path;
}

/* A true one, but for what a case changes. */
#define MIXTURE                                                                                    \
    .experts = EXPERTS, .used = 2, .stacked = EXPERTS, .router_rows = EXPERTS, .width = EXPERT_WIDTH

TEST(a_true_mixture_opens)
{
    for (int t = 0; t < 2; t++) {
        struct tiny_mixture whole = {MIXTURE, .dtype = t ? DTYPE_Q8_0 : DTYPE_F32};
        struct model *m = open_or_fail(mixture_write(&whole));
        assert_int_equal(model_config(m)->experts.n, EXPERTS);
        assert_int_equal(model_config(m)->experts.used, 2);
        model_close(&m);
    }
}

TEST(counts_of_experts_that_lie_are_refused)
{
    static const struct {
        uint32_t experts, used;
        const char *says;
    } cases[] = {
        {8, 2, "tensor blk.0.ffn_gate_inp.weight has shape [4, 32], expected [8, 32]"},
        {2, 2, "tensor blk.0.ffn_gate_inp.weight has shape [4, 32], expected [2, 32]"},
        {EXPERTS, 5, "5 of 4 experts for each token"},
        {EXPERTS, MODEL_EXPERTS_USED_MAX + 1, "65 of 4 experts for each token"},
        {MODEL_EXPERTS_MAX + 1, 2, "2 of 4097 experts for each token"},
        {UINT32_MAX, 2, "llama.expert_count"},
        {0, 0, "tensor blk.0.ffn_gate.weight is missing"},
        {EXPERTS, 0, "llama.expert_used_count"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tiny_mixture m = {MIXTURE};
        m.experts = cases[i].experts;
        m.used = cases[i].used;
        refuses(mixture_write(&m), HP_EPARSE, cases[i].says);
    }
}

TEST(tensors_of_experts_that_lie_are_refused)
{
    static const struct {
        struct tiny_mixture m;
        int code;
        const char *says;
    } cases[] = {
        {{.stacked = 3, .router_rows = EXPERTS, .width = EXPERT_WIDTH},
         HP_EPARSE,
         "tensor blk.0.ffn_gate_exps.weight has shape [3, 64, 32], expected [4, 64, 32]"},
        {{.stacked = 5, .router_rows = EXPERTS, .width = EXPERT_WIDTH},
         HP_EPARSE,
         "tensor blk.0.ffn_gate_exps.weight has shape [5, 64, 32], expected [4, 64, 32]"},
        {{.stacked = EXPERTS, .router_rows = EXPERTS, .width = 32},
         HP_EPARSE,
         "tensor blk.0.ffn_gate_exps.weight has shape [4, 32, 32], expected [4, 64, 32]"},
        {{.stacked = EXPERTS, .router_rows = 1, .width = EXPERT_WIDTH},
         HP_EPARSE,
         "tensor blk.0.ffn_gate_inp.weight has shape [1, 32], expected [4, 32]"},
        {{.stacked = EXPERTS,
          .router_rows = EXPERTS,
          .width = EXPERT_WIDTH,
          .flat = "blk.1.ffn_down_exps.weight"},
         HP_EPARSE,
         "tensor blk.1.ffn_down_exps.weight has shape [32, 64], expected [4, 32, 64]"},
        {{.stacked = EXPERTS,
          .router_rows = EXPERTS,
          .width = EXPERT_WIDTH,
          .without = "blk.1.ffn_up_exps.weight"},
         HP_EPARSE,
         "tensor blk.1.ffn_up_exps.weight is missing"},
        {{.stacked = EXPERTS,
          .router_rows = EXPERTS,
          .width = EXPERT_WIDTH,
          .without = "blk.1.ffn_gate_inp.weight"},
         HP_EPARSE,
         "tensor blk.1.ffn_gate_inp.weight is missing"},
        {{.stacked = EXPERTS,
          .router_rows = EXPERTS,
          .width = EXPERT_WIDTH,
          .extra = "blk.1.ffn_exp_probs_b.bias"},
         HP_EUNSUPPORTED,
         "tensor blk.1.ffn_exp_probs_b.bias is not one that a model of family llama has"},
    };
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        struct tiny_mixture m = cases[i].m;
        m.experts = EXPERTS;
        m.used = 2;
        refuses(mixture_write(&m), cases[i].code, cases[i].says);
    }
}

/* What to do is said beside what is wrong. */
TEST(what_is_refused_comes_with_what_to_do)
{
    static const struct tiny_mixture lies[] = {
        {.experts = 8, .used = 2, .stacked = 4, .router_rows = 4, .width = EXPERT_WIDTH},
        {.stacked = 4, .router_rows = 4, .width = EXPERT_WIDTH},
        {MIXTURE, .extra = "blk.0.ffn_extra.weight"}};
    for (size_t i = 0; i < sizeof lies / sizeof *lies; i++) {
        struct model *m;
        struct err e = {0};
        assert_true(model_open(mixture_write(&lies[i]), &m, &e) < 0);
        assert_true(*e.hint != '\0');
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(a_true_mixture_opens, make_folder, remove_folder),
        cmocka_unit_test_setup_teardown(counts_of_experts_that_lie_are_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(tensors_of_experts_that_lie_are_refused, make_folder,
                                        remove_folder),
        cmocka_unit_test_setup_teardown(what_is_refused_comes_with_what_to_do, make_folder,
                                        remove_folder),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
