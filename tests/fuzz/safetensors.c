/* Safetensors files: any bytes, through the joining of weights with scales; every weight that is
 * accepted is touched at both ends, and every one with scales is read. */
#include "model/files/safetensors.h"

#include <stdlib.h>

#include "model/hub_scales.h"
#include "model/weight_table.h"

static volatile uint8_t touched;

static void scaled_read(const struct weight *w, struct err *e)
{
    enum { COLUMNS_MOST = 1 << 20 };
    uint64_t columns = weight_shape_columns(w);
    float *row =
        w->stored != WEIGHT_PLAIN && columns <= COLUMNS_MOST ? malloc(columns * sizeof *row) : NULL;
    if (!row)
        return;
    touched = weight_bad_block(w) < 0;
    if (weight_rows_f32(w, weight_shape_rows(w) - 1, 1, row, e) == 0)
        touched = row[columns - 1] > 0;
    free(row);
}

static void table_read(struct safetensors *s, struct arena *arena, struct err *e)
{
    static const char text[] = "{\"quantization_config\": {\"weight_block_size\": [2, 3]}}";
    struct weight_table table;
    json_t *root = NULL;
    struct json_at config;
    if (weight_table_make("f.safetensors", s->weights, s->n_weights, arena, &table, e) == 0 &&
        json_parse_at("config.json", text, sizeof text - 1, &root, &config, e) == 0 &&
        hub_scales_join(&config, &table, arena, e) == 0)
        for (size_t i = 0; i < s->n_weights; i++)
            scaled_read(&s->weights[i], e);
    json_decref(root);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct err e = {0};
    struct arena arena = {0};
    if (safetensors_parse("f.safetensors", 0, data, size, &arena, &s, &e) == 0) {
        for (size_t i = 0; i < s.n_weights; i++)
            touched = s.weights[i].data[0] ^ s.weights[i].data[s.weights[i].bytes - 1];
        table_read(&s, &arena, &e);
    }
    arena_free(&arena);
    return 0;
}
