/* The first byte says as what the rest is read: GBNF, a regular expression, a JSON schema, or a
 * grammar's bytes from a peer. What becomes a grammar goes over the wire, and its automaton is led
 * through a few tokens. */
#include <stdlib.h>
#include <string.h>

#include "model/grammar/automaton.h"
#include "model/grammar/grammar_source.h"

static const struct token_tree *tree_make(void)
{
    static char bytes[256];
    static struct token_tree *tree;
    struct token_text texts[257] = {{0}};
    for (int i = 0; i < 256; i++) {
        bytes[i] = (char)i;
        texts[i] = (struct token_text){&bytes[i], 1};
    }
    if (!tree && token_tree_make(texts, 257, &tree, NULL) < 0)
        abort();
    return tree;
}

static int source_read(const uint8_t *data, size_t size, struct buffer *wire, struct err *e)
{
    const char *text = (const char *)data + 1;
    if (data[0] % 4 == 0)
        return grammar_source_gbnf(text, size - 1, "grammar", wire, e);
    if (data[0] % 4 == 1)
        return grammar_source_regular(text, size - 1, "regex", wire, e);
    if (data[0] % 4 == 3) {
        buffer_append(wire, text, size - 1);
        return 0;
    }
    json_t *schema = json_loadb(text, size - 1, JSON_DECODE_ANY, NULL);
    int rc = schema ? grammar_source_schema(schema, "schema", wire, e) : HP_EPARSE;
    json_decref(schema);
    return rc;
}

static void automaton_try(struct automaton *a, uint8_t seed)
{
    struct matcher *m = NULL;
    struct err e = {0};
    uint32_t end = 256;
    if (matcher_create(a, 40, &end, 1, &m, &e) < 0)
        return;
    for (int i = 0; i < 40; i++) {
        const uint64_t *mask = matcher_mask(m);
        uint32_t token = seed = (uint8_t)(seed * 31 + 7);
        if (!mask)
            break;
        if (!(mask[token / 64] >> token % 64 & 1) || !matcher_fits(m, token))
            token = matcher_shortest(m);
        if (token == TOKEN_NONE)
            break;
        if (!(mask[token / 64] >> token % 64 & 1))
            abort(); /* the shortest way is allowed */
        matcher_accept(m, token);
        if (matcher_error(m, &e) == HP_EINVAL)
            abort(); /* what the mask allows can be accepted */
        if (token == end)
            break;
    }
    matcher_destroy(&m);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);
int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct buffer wire = {0};
    struct grammar *g = NULL;
    struct automaton *a = NULL;
    struct err e = {0};
    if (size && source_read(data, size, &wire, &e) == 0) {
        int rc = grammar_read(wire.data, wire.size, &g, &e);
        if (rc < 0 && data[0] % 4 != 3)
            abort(); /* what was made can be read */
        if (rc == 0 && automaton_create(&g, tree_make(), &a, &e) == 0) {
            automaton_try(a, data[size - 1]);
            automaton_destroy(&a);
        }
    }
    buffer_free(&wire);
    return 0;
}
