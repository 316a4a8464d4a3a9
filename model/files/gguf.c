#include "model/files/gguf.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "common/bytes.h"

enum {
    KEY_MAX_BYTES = 65535,
    NAME_MAX_BYTES = 512,
    SHOWN_BYTES = 200,
    DEFAULT_ALIGNMENT = 32,
    ALIGNMENT_MAX = 1 << 20
};

/* Bytes of one value on disk; 0 for what has no fixed size. */
static size_t type_bytes(enum gguf_type t)
{
    static const uint8_t bytes[] = {
        [GGUF_U8] = 1,  [GGUF_I8] = 1,  [GGUF_U16] = 2,  [GGUF_I16] = 2,    [GGUF_U32] = 4,
        [GGUF_I32] = 4, [GGUF_F32] = 4, [GGUF_BOOL] = 1, [GGUF_STRING] = 0, [GGUF_ARRAY] = 0,
        [GGUF_U64] = 8, [GGUF_I64] = 8, [GGUF_F64] = 8,
    };
    return bytes[t];
}

/* ---- the header ---- */

struct parse {
    const char *file;
    struct reader in;
    enum gguf_need need;
    struct gguf *out;
    struct err *e;
};

static int header_truncated(struct parse *p, const char *what)
{
    return err_set(p->e, HP_EPARSE, "%s: header ends inside %s (%zu bytes in all)", p->file, what,
                   p->in.size);
}

static int out_of_memory(struct parse *p)
{
    return err_set(p->e, HP_ENOMEM, "%s: out of memory for the header", p->file);
}

static int read_string(struct parse *p, const char *what, struct gguf_string *out)
{
    uint64_t n = reader_u64(&p->in);
    if (p->in.failed)
        return header_truncated(p, what);
    if (n > p->in.size - p->in.at)
        return err_set(p->e, HP_EPARSE, "%s: %s: a string of %llu bytes is longer than the file",
                       p->file, what, (unsigned long long)n);
    out->size = (size_t)n;
    out->data = (const char *)reader_take(&p->in, out->size);
    return 0;
}

/* Names of keys and tensors: short, and fit to be printed. */
static int read_name(struct parse *p, const char *what, size_t most, struct gguf_string *out)
{
    int rc = read_string(p, what, out);
    if (rc < 0)
        return rc;
    if (out->size == 0 || out->size > most)
        return err_set(p->e, HP_EPARSE, "%s: %s has a name of %zu bytes (1 to %zu are allowed)",
                       p->file, what, out->size, most);
    for (size_t i = 0; i < out->size; i++)
        if ((unsigned char)out->data[i] < 0x20 || out->data[i] == 0x7f)
            return err_set(p->e, HP_EPARSE, "%s: %s has a control character in its name", p->file,
                           what);
    return 0;
}

static int read_strings(struct parse *p, struct gguf_key *k, const char *what)
{
    /* A string takes eight bytes at least, so the table is bounded by twice the file's size. */
    if (k->count > (p->in.size - p->in.at) / sizeof(uint64_t))
        return err_set(p->e, HP_EPARSE, "%s: %s: an array of %llu strings is longer than the file",
                       p->file, what, (unsigned long long)k->count);
    k->strings = arena_alloc(&p->out->arena, k->count ? k->count : 1, sizeof *k->strings);
    if (!k->strings)
        return out_of_memory(p);
    int rc = 0;
    for (uint64_t i = 0; i < k->count && rc == 0; i++)
        rc = read_string(p, what, &k->strings[i]);
    return rc;
}

static int read_value(struct parse *p, struct gguf_key *k, const char *what)
{
    k->count = 1;
    enum gguf_type type = k->type;
    if (type == GGUF_ARRAY) {
        uint32_t element = reader_u32(&p->in);
        k->count = reader_u64(&p->in);
        if (p->in.failed)
            return header_truncated(p, what);
        if (element > GGUF_F64 || element == GGUF_ARRAY)
            return err_set(p->e, HP_EPARSE, "%s: %s: an array of type %u is not one that is known",
                           p->file, what, element);
        type = k->element_type = (enum gguf_type)element;
    }
    k->data = p->in.data + p->in.at;
    if (type == GGUF_STRING)
        return read_strings(p, k, what);
    size_t bytes;
    if (__builtin_mul_overflow(k->count, type_bytes(type), &bytes) || bytes > p->in.size - p->in.at)
        return err_set(p->e, HP_EPARSE, "%s: %s: a value of %llu elements is longer than the file",
                       p->file, what, (unsigned long long)k->count);
    reader_take(&p->in, bytes);
    return 0;
}

static int compare_strings(const struct gguf_string *a, const struct gguf_string *b)
{
    size_t n = a->size < b->size ? a->size : b->size;
    int c = memcmp(a->data, b->data, n);
    return c ? c : (a->size > b->size) - (a->size < b->size);
}

static int by_key_name(const void *a, const void *b)
{
    return compare_strings(&(*(const struct gguf_key *const *)a)->name,
                           &(*(const struct gguf_key *const *)b)->name);
}

static int refuse_repeated_keys(struct parse *p)
{
    struct gguf *g = p->out;
    const struct gguf_key **sorted = malloc((g->n_keys + 1) * sizeof *sorted);
    if (!sorted)
        return out_of_memory(p);
    for (size_t i = 0; i < g->n_keys; i++)
        sorted[i] = &g->keys[i];
    qsort(sorted, g->n_keys, sizeof(const struct gguf_key *), by_key_name);
    int rc = 0;
    for (size_t i = 1; i < g->n_keys && rc == 0; i++)
        if (by_key_name(&sorted[i - 1], &sorted[i]) == 0)
            rc = err_set(
                p->e, HP_EPARSE, "%s: key %.*s is there twice", p->file,
                (int)(sorted[i]->name.size < SHOWN_BYTES ? sorted[i]->name.size : SHOWN_BYTES),
                sorted[i]->name.data);
    free(sorted);
    return rc;
}

static int read_keys(struct parse *p, uint64_t count)
{
    enum { KEY_MIN_BYTES = 8 + 1 + 4 + 1 };
    if (count > (p->in.size - p->in.at) / KEY_MIN_BYTES)
        return err_set(p->e, HP_EPARSE, "%s: header says %llu keys, more than the file can hold",
                       p->file, (unsigned long long)count);
    struct gguf *g = p->out;
    g->keys = arena_alloc(&g->arena, count ? count : 1, sizeof *g->keys);
    if (!g->keys)
        return out_of_memory(p);
    for (; g->n_keys < count; g->n_keys++) {
        char what[SHOWN_BYTES + 32];
        snprintf(what, sizeof what, "key %zu", g->n_keys);
        struct gguf_key *k = &g->keys[g->n_keys];
        int rc = read_name(p, what, KEY_MAX_BYTES, &k->name);
        if (rc < 0)
            return rc;
        snprintf(what, sizeof what, "key %.*s",
                 (int)(k->name.size < SHOWN_BYTES ? k->name.size : SHOWN_BYTES), k->name.data);
        uint32_t type = reader_u32(&p->in);
        if (p->in.failed)
            return header_truncated(p, what);
        if (type > GGUF_F64)
            return err_set(p->e, HP_EPARSE, "%s: %s: type %u is not one that is known", p->file,
                           what, type);
        k->type = (enum gguf_type)type;
        rc = read_value(p, k, what);
        if (rc < 0)
            return rc;
    }
    return refuse_repeated_keys(p);
}

/* ---- tensors ---- */

/* The size of what nothing here computes with; 0 where it is not known. */
static int size_of_other(struct parse *p, struct weight *w, uint32_t type, uint64_t elements)
{
    uint32_t block_elements, block_bytes;
    char known[192];
    if (p->need == GGUF_WEIGHTS) {
        err_set(p->e, HP_EUNSUPPORTED,
                "%s: tensor %s has number format %s (GGUF type %u); known are %s", p->file, w->name,
                dtype_gguf_name(type), type, dtype_known(known, sizeof known));
        err_hint(p->e, "take this model's file in one of those formats, such as Q8_0, or make one "
                       "of its first weights with `hpctl model convert`");
        return HP_EUNSUPPORTED;
    }
    w->dtype = DTYPE_COUNT;
    bool whole = dtype_gguf_block(type, &block_elements, &block_bytes) &&
                 w->shape[w->n_dims - 1] % block_elements == 0;
    if (whole &&
        __builtin_mul_overflow(elements / block_elements, (uint64_t)block_bytes, &w->bytes))
        return err_set(p->e, HP_EPARSE, "%s: tensor %s is too large", p->file, w->name);
    return 0;
}

static int size_tensor(struct parse *p, struct weight *w, uint32_t type, uint64_t elements)
{
    int dtype = dtype_of_gguf(type);
    w->format = dtype_gguf_name(type);
    if (dtype < 0)
        return size_of_other(p, w, type, elements);
    w->dtype = (enum dtype)dtype;
    const struct dtype_info *info = dtype_info(w->dtype);
    if (w->shape[w->n_dims - 1] % info->block_elements) {
        err_set(p->e, HP_EPARSE, "%s: tensor %s has rows of %llu elements, not whole blocks of %s",
                p->file, w->name, (unsigned long long)w->shape[w->n_dims - 1], info->name);
        err_hint(p->e,
                 "blocks of %s have %zu elements; fetch the file again, or make it anew with "
                 "`hpctl model convert`, which falls back to smaller blocks",
                 info->name, info->block_elements);
        return HP_EPARSE;
    }
    if (__builtin_mul_overflow(elements / info->block_elements, (uint64_t)info->block_bytes,
                               &w->bytes))
        return err_set(p->e, HP_EPARSE, "%s: tensor %s is too large", p->file, w->name);
    return 0;
}

/* Shape, type and size of a tensor; its offset is still relative to the data. */
static int read_tensor(struct parse *p, struct weight *w, size_t index)
{
    char what[32];
    snprintf(what, sizeof what, "tensor %zu", index);
    struct gguf_string name;
    int rc = read_name(p, what, NAME_MAX_BYTES, &name);
    if (rc < 0)
        return rc;
    w->name = arena_strndup(&p->out->arena, name.data, name.size);
    if (!w->name)
        return out_of_memory(p);
    uint32_t n_dims = reader_u32(&p->in);
    if (p->in.failed)
        return header_truncated(p, w->name);
    if (n_dims < 1 || n_dims > 4)
        return err_set(p->e, HP_EPARSE, "%s: tensor %s has %u dimensions (1 to 4 are allowed)",
                       p->file, w->name, n_dims);
    w->n_dims = (int)n_dims;
    uint64_t elements = 1;
    for (uint32_t d = 0; d < n_dims; d++) {
        uint64_t n = reader_u64(&p->in);
        w->shape[n_dims - 1 - d] = n; /* the file has the innermost first */
        if (!p->in.failed &&
            (n == 0 || __builtin_mul_overflow(elements, n, &elements) || elements > INT64_MAX))
            return err_set(p->e, HP_EPARSE, "%s: tensor %s: dimension %u is %llu", p->file, w->name,
                           d, (unsigned long long)n);
    }
    uint32_t type = reader_u32(&p->in);
    w->offset = reader_u64(&p->in);
    if (p->in.failed)
        return header_truncated(p, w->name);
    return size_tensor(p, w, type, elements);
}

static int by_offset(const void *a, const void *b)
{
    const struct weight *v = a, *w = b;
    if (v->offset != w->offset)
        return v->offset < w->offset ? -1 : 1;
    return strcmp(v->name, w->name);
}

/* Puts the tensors in order and checks that each lies in the file, aligned, and over no other. */
static int place_tensors(struct parse *p, uint64_t alignment)
{
    struct gguf *g = p->out;
    uint64_t size = p->in.size;
    if (g->n_weights > 0 && g->data_offset > size)
        return err_set(p->e, HP_EPARSE, "%s: the file ends before its tensors' bytes", p->file);
    qsort(g->weights, g->n_weights, sizeof *g->weights, by_offset);
    uint64_t free_from = 0;
    for (size_t i = 0; i < g->n_weights; i++) {
        struct weight *w = &g->weights[i];
        uint64_t relative = w->offset, end,
                 next = i + 1 < g->n_weights ? w[1].offset : size - g->data_offset;
        if (w->bytes == 0 && next > relative)
            w->bytes = next - relative;
        if (relative % alignment)
            return err_set(p->e, HP_EPARSE, "%s: tensor %s: offset %llu is not a multiple of %llu",
                           p->file, w->name, (unsigned long long)relative,
                           (unsigned long long)alignment);
        if (__builtin_add_overflow(g->data_offset, relative, &w->offset) ||
            __builtin_add_overflow(w->offset, w->bytes, &end) || end > size) {
            err_set(p->e, HP_EPARSE,
                    "%s: tensor %s: %llu bytes at offset %llu reach beyond the end of the file "
                    "(%llu bytes)",
                    p->file, w->name, (unsigned long long)w->bytes, (unsigned long long)relative,
                    (unsigned long long)size);
            return err_hint(p->e, "the file is cut off: fetch it again");
        }
        if (w->offset < free_from)
            return err_set(p->e, HP_EPARSE, "%s: tensor %s overlaps tensor %s", p->file, w->name,
                           g->weights[i - 1].name);
        free_from = end;
        w->data = p->in.data + w->offset;
    }
    return 0;
}

static int read_tensors(struct parse *p, uint64_t count)
{
    enum { TENSOR_MIN_BYTES = 8 + 1 + 4 + 8 + 4 + 8 };
    if (count > (p->in.size - p->in.at) / TENSOR_MIN_BYTES)
        return err_set(p->e, HP_EPARSE, "%s: header says %llu tensors, more than the file can hold",
                       p->file, (unsigned long long)count);
    struct gguf *g = p->out;
    uint64_t alignment = DEFAULT_ALIGNMENT, fallback = DEFAULT_ALIGNMENT;
    int rc = gguf_get_u64(g, p->file, "general.alignment", &fallback, &alignment, p->e);
    if (rc < 0)
        return rc;
    if (alignment == 0 || alignment > ALIGNMENT_MAX || (alignment & (alignment - 1)))
        return err_set(p->e, HP_EPARSE,
                       "%s: key general.alignment is %llu, not a power of two up to %d", p->file,
                       (unsigned long long)alignment, ALIGNMENT_MAX);
    g->weights = arena_alloc(&g->arena, count ? count : 1, sizeof *g->weights);
    if (!g->weights)
        return out_of_memory(p);
    for (; g->n_weights < count; g->n_weights++) {
        rc = read_tensor(p, &g->weights[g->n_weights], g->n_weights);
        if (rc < 0)
            return rc;
    }
    g->data_offset = (p->in.at + alignment - 1) & ~(alignment - 1);
    return place_tensors(p, alignment);
}

static int read_all(struct parse *p)
{
    const uint8_t *magic = reader_take(&p->in, 4);
    if (!magic || memcmp(magic, "GGUF", 4) != 0) {
        err_set(p->e, HP_EPARSE, "%s: not a GGUF file", p->file);
        size_t n = strlen(p->file);
        if (n > 5 && strcmp(p->file + n - 5, ".onnx") == 0)
            return err_hint(p->e, "`hpctl apply` serves ONNX models over a cluster, `hpctl "
                                  "model run` and `hpctl model serve` on this machine");
        return err_hint(p->e, "a model is a GGUF file, or a Hugging Face folder (config.json, "
                              "tokenizer.json, *.safetensors), named as a folder");
    }
    uint32_t version = p->out->version = reader_u32(&p->in);
    uint64_t n_tensors = reader_u64(&p->in), n_keys = reader_u64(&p->in);
    if (p->in.failed)
        return header_truncated(p, "its first 24 bytes");
    if (version != 2 && version != 3)
        return err_set(p->e, HP_EUNSUPPORTED,
                       version & 0xffff ? "%s: GGUF version %u; known are 2 and 3"
                                        : "%s: big-endian GGUF (version field %u)",
                       p->file, version);
    int rc = read_keys(p, n_keys);
    p->out->data_offset = p->in.at;
    return rc < 0 || p->need == GGUF_KEYS ? rc : read_tensors(p, n_tensors);
}

int gguf_parse(const char *file, const uint8_t *map, uint64_t size, enum gguf_need need,
               struct gguf *out, struct err *e)
{
    *out = (struct gguf){0};
    struct parse p = {file, reader_of(map, size), need, out, e};
    int rc = read_all(&p);
    if (rc < 0)
        gguf_free(out);
    return rc;
}

void gguf_free(struct gguf *g)
{
    arena_free(&g->arena);
    *g = (struct gguf){0};
}
