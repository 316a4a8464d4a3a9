/* Safetensors files: any bytes; every weight that is accepted is touched at both ends. */
#include "model/files/safetensors.h"

#include "model/weight_table.h"

static volatile uint8_t touched;

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct safetensors s;
    struct weight_table table;
    struct err e = {0};
    struct arena arena = {0};
    if (safetensors_parse("f.safetensors", 0, data, size, &arena, &s, &e) == 0) {
        for (size_t i = 0; i < s.n_weights; i++)
            touched = s.weights[i].data[0] ^ s.weights[i].data[s.weights[i].bytes - 1];
        (void)weight_table_make("f.safetensors", s.weights, s.n_weights, &arena, &table, &e);
    }
    arena_free(&arena);
    return 0;
}
