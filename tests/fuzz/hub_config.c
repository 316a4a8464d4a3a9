/* config.json of a Hugging Face folder: any bytes, up to a graph whose tensors are all missing. */
#include "model/graph/builder.h"
#include "model/graph/facts.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct err e = {0};
    struct arena arena = {0};
    struct json_at at;
    json_t *root;
    if (json_parse_at("config.json", data, size, &root, &at, &e) < 0)
        return 0;
    struct family_facts facts;
    struct weight_table table;
    struct graph graph;
    if (facts_from_hub(&at, &arena, &facts, &e) == 0 &&
        weight_table_make("folder", NULL, 0, &arena, &table, &e) == 0)
        (void)graph_build(&facts, &table, 1, &arena, &graph, &e);
    json_decref(root);
    arena_free(&arena);
    return 0;
}
