/* Keys of a GGUF file, read as what they are asked for. */
#include <string.h>

#include "common/bytes.h"
#include "model/files/gguf.h"

const struct gguf_key *gguf_find(const struct gguf *g, const char *name)
{
    size_t n = strlen(name);
    for (size_t i = 0; i < g->n_keys; i++)
        if (g->keys[i].name.size == n && memcmp(g->keys[i].name.data, name, n) == 0)
            return &g->keys[i];
    return NULL;
}

#define ELEMENT(ctype)                                                                             \
    {                                                                                              \
        ctype v;                                                                                   \
        memcpy(&v, k->data + i * sizeof v, sizeof v);                                              \
        return (RESULT)v;                                                                          \
    }

#define ELEMENT_CASES                                                                              \
    case GGUF_BOOL:                                                                                \
    case GGUF_U8: ELEMENT(uint8_t)                                                                 \
    case GGUF_I8: ELEMENT(int8_t)                                                                  \
    case GGUF_U16: ELEMENT(uint16_t)                                                               \
    case GGUF_I16: ELEMENT(int16_t)                                                                \
    case GGUF_U32: ELEMENT(uint32_t)                                                               \
    case GGUF_I32: ELEMENT(int32_t)                                                                \
    case GGUF_U64: ELEMENT(uint64_t)                                                               \
    case GGUF_I64: ELEMENT(int64_t)

static enum gguf_type type_of_element(const struct gguf_key *k)
{
    return k->type == GGUF_ARRAY ? k->element_type : k->type;
}

#define RESULT double

double gguf_element_f64(const struct gguf_key *k, uint64_t i)
{
    if (i >= k->count)
        return 0;
    switch (type_of_element(k)) {
        ELEMENT_CASES
    case GGUF_F32: ELEMENT(float)
    case GGUF_F64: ELEMENT(double)
    default: return 0;
    }
}

#undef RESULT

/* Floats are whole in range or give 0: converting others is undefined. */
static int64_t real_to_integer(double v)
{
    return v > -0x1p63 && v < 0x1p63 ? (int64_t)v : 0;
}

#define RESULT int64_t

int64_t gguf_element_i64(const struct gguf_key *k, uint64_t i)
{
    if (i >= k->count)
        return 0;
    switch (type_of_element(k)) {
        ELEMENT_CASES
    default: return real_to_integer(gguf_element_f64(k, i));
    }
}

#undef RESULT

static int wrong_type(const char *file, const char *name, const char *wanted, struct err *e)
{
    return err_set(e, HP_EPARSE, "%s: key %s is not %s", file, name, wanted);
}

static int key_missing(const char *file, const char *name, struct err *e)
{
    return err_set(e, HP_EPARSE, "%s: key %s is missing", file, name);
}

static bool is_integer(enum gguf_type t)
{
    return t <= GGUF_I32 || t == GGUF_U64 || t == GGUF_I64;
}

int gguf_get_u64(const struct gguf *g, const char *file, const char *name, const uint64_t *fallback,
                 uint64_t *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k && !fallback)
        return key_missing(file, name, e);
    if (k && !is_integer(k->type))
        return wrong_type(file, name, "a whole number", e);
    int64_t v = k ? gguf_element_i64(k, 0) : 0;
    if (v < 0 && k->type != GGUF_U64)
        return err_set(e, HP_EPARSE, "%s: key %s is %lld, which is negative", file, name,
                       (long long)v);
    *out = k ? (uint64_t)v : *fallback;
    return 0;
}

int gguf_get_same_u64(const struct gguf *g, const char *file, const char *name,
                      const uint64_t *fallback, uint64_t *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k || k->type != GGUF_ARRAY)
        return gguf_get_u64(g, file, name, fallback, out, e);
    if (!is_integer(k->element_type) || k->count == 0)
        return wrong_type(file, name, "a list of whole numbers", e);
    int64_t first = gguf_element_i64(k, 0);
    for (uint64_t i = 0; i < k->count; i++)
        if (gguf_element_i64(k, i) != first)
            return err_set(e, HP_EUNSUPPORTED,
                           "%s: key %s differs from block to block (%lld, then %lld in block "
                           "%llu); known are models whose "
                           "blocks are alike",
                           file, name, (long long)first, (long long)gguf_element_i64(k, i),
                           (unsigned long long)i);
    if (first < 0)
        return err_set(e, HP_EPARSE, "%s: key %s is %lld, which is negative", file, name,
                       (long long)first);
    *out = (uint64_t)first;
    return 0;
}

int gguf_get_f64(const struct gguf *g, const char *file, const char *name, const double *fallback,
                 double *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    if (!k && !fallback)
        return key_missing(file, name, e);
    if (k && !is_integer(k->type) && k->type != GGUF_F32 && k->type != GGUF_F64)
        return wrong_type(file, name, "a number", e);
    *out = k ? gguf_element_f64(k, 0) : *fallback;
    return 0;
}

int gguf_get_bool(const struct gguf *g, const char *file, const char *name, bool fallback,
                  bool *out, struct err *e)
{
    const struct gguf_key *k = gguf_find(g, name);
    bool fits = k && (k->type == GGUF_BOOL || is_integer(k->type)) && gguf_element_i64(k, 0) >= 0 &&
                gguf_element_i64(k, 0) <= 1;
    if (k && !fits)
        return wrong_type(file, name, "true or false", e);
    *out = k ? gguf_element_i64(k, 0) == 1 : fallback;
    return 0;
}

int gguf_get_string(const struct gguf *g, const char *file, const char *name,
                    struct gguf_string *out, struct err *e)
{
    *out = (struct gguf_string){0};
    const struct gguf_key *k = gguf_find(g, name);
    if (k && k->type != GGUF_STRING)
        return wrong_type(file, name, "a string", e);
    if (k)
        *out = k->strings[0];
    return 0;
}
