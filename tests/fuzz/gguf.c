/* GGUF files: any bytes, through header, family, graph and tokenizer; every weight that is accepted
 * is touched at both ends. */
#include "model/graph/builder.h"
#include "model/graph/facts.h"
#include "model/tokenizer/tokenizer.h"

static volatile uint8_t touched;

/* The last block of a weight becomes float32, and all are looked over. */
static void blocks_read(const struct weight *w)
{
    if (w->dtype >= DTYPE_WEIGHT_COUNT)
        return;
    const struct dtype_info *info = dtype_info(w->dtype);
    uint64_t blocks = w->bytes / info->block_bytes;
    float values[SUPERBLOCK_ELEMENTS];
    info->to_f32(w->data + (blocks - 1) * info->block_bytes, info->block_elements, values);
    touched = values[0] > 0;
    touched = dtype_bad_block(w->dtype, w->data, blocks * info->block_elements) < 0;
}

static void read_model(struct gguf *g, struct arena *arena, struct err *e)
{
    struct weight_table table;
    struct family_facts facts;
    struct graph graph;
    if (weight_table_make("f.gguf", g->weights, g->n_weights, arena, &table, e) < 0)
        return;
    for (size_t i = 0; i < g->n_weights; i++) {
        if (g->weights[i].bytes > 0)
            touched = g->weights[i].data[0] ^ g->weights[i].data[g->weights[i].bytes - 1];
        blocks_read(&g->weights[i]);
    }
    if (facts_from_gguf(g, "f.gguf", &table, arena, &facts, e) == 0)
        (void)graph_build(&facts, &table, 1, arena, &graph, e);
}

static void read_tokenizer(const struct gguf *g, struct err *e)
{
    struct tokenizer *t;
    if (tokenizer_from_gguf(g, "f.gguf", NULL, &t, e) < 0)
        return;
    struct buffer ids = {0}, text = {0};
    if (tokenizer_encode(t, "ab <s>a\xff", 8, true, &ids, e) == 0 && ids.data)
        (void)tokenizer_decode(t, (const uint32_t *)(const void *)ids.data,
                               ids.size / sizeof(uint32_t), &text, e);
    buffer_free(&ids);
    buffer_free(&text);
    tokenizer_destroy(&t);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct gguf g;
    struct err e = {0};
    struct arena arena = {0};
    for (int need = GGUF_KEYS; need <= GGUF_WEIGHTS; need++) {
        if (gguf_parse("f.gguf", data, size, (enum gguf_need)need, &g, &e) < 0)
            continue;
        if (need != GGUF_KEYS)
            read_model(&g, &arena, &e);
        if (need == GGUF_KEYS)
            read_tokenizer(&g, &e);
        arena_free(&arena);
        gguf_free(&g);
    }
    return 0;
}
