/* What backends stand on: views of memory, and what they refuse alike. */
#include <sys/mman.h>
#include <unistd.h>

#include "agent/backend/backend.h"
#include "common/spread.h"

int backend_require(const struct backend *b, const struct graph_op *op, struct err *e)
{
    const struct op_kind_info *kind = op_kind_info(op->kind);
    if (kind->is_view)
        return 0;
    for (int i = 0; i < op->n_weights; i++)
        if (op->weights[i] && !b->op_supports(op->kind, op->weights[i]->dtype))
            return err_set(e, HP_EUNSUPPORTED, "the %s backend has no operator \"%s\" for %s (%s)",
                           b->name, kind->name, op->weights[i]->format, op->weights[i]->name);
    if (!b->op_supports(op->kind, DTYPE_F32))
        return err_set(e, HP_EUNSUPPORTED, "the %s backend has no operator \"%s\"", b->name,
                       kind->name);
    return 0;
}

/* Every byte is looked at before it goes to a device: rows are shared out, or one thread would
 * bring the file's pages into memory for all. */
enum { CHECK_THREADS = 6, CHECK_BYTES = 4 << 20 /* of a thread, at least */ };

struct blocks_look {
    const struct weight *weight;
    uint64_t rows;
    int parts;
    int64_t bad[CHECK_THREADS]; /* of each part's rows, by the weight's own count; -1: none */
};

static void rows_look(void *ctx, int part)
{
    struct blocks_look *l = ctx;
    const struct weight *w = l->weight;
    const struct dtype_info *type = dtype_info(w->dtype);
    uint64_t first = l->rows * (uint64_t)part / (uint64_t)l->parts,
             end = l->rows * ((uint64_t)part + 1) / (uint64_t)l->parts,
             blocks = weight_shape_columns(w) / type->block_elements;
    int64_t bad = dtype_bad_block(w->dtype, w->data + first * blocks * type->block_bytes,
                                  (end - first) * blocks * type->block_elements);
    l->bad[part] = bad < 0 ? -1 : bad + (int64_t)(first * blocks);
}

static int64_t bad_block(const struct weight *w)
{
    struct blocks_look l = {.weight = w, .rows = weight_shape_rows(w)};
    if (w->stored != WEIGHT_PLAIN || w->bytes < 2 * CHECK_BYTES)
        return weight_bad_block(w);
    l.parts = spread_threads(CHECK_THREADS, w->bytes / CHECK_BYTES);
    spread_run(l.parts, rows_look, &l);
    for (int i = 0; i < l.parts; i++)
        if (l.bad[i] >= 0)
            return l.bad[i];
    return -1;
}

static int blocks_check(const struct weight *w, struct err *e)
{
    int64_t bad = bad_block(w);
    if (bad < 0)
        return 0;
    const struct dtype_info *type = dtype_info(w->dtype);
    bool plain = w->stored == WEIGHT_PLAIN && type->block_elements == 1;
    err_set(e, HP_EPARSE, "tensor %s: %s %lld (row %llu) of %s %s", w->name,
            plain ? "value" : "block", (long long)bad,
            (unsigned long long)((uint64_t)bad * type->block_elements / w->shape[w->n_dims - 1]),
            w->stored == WEIGHT_PLAIN ? type->name : w->format,
            plain ? "is no finite number" : "has a scale that is no number");
    return err_hint(e, "the file is damaged, or was made from weights that overflowed: fetch or "
                       "convert it again");
}

int backend_weight_check(const struct weight *w, enum weight_use use, struct err *e)
{
    const struct dtype_info *type = dtype_info(w->dtype);
    for (int i = 0; i < w->n_parts; i++) {
        int rc = backend_weight_check(w->parts[i], use, e);
        if (rc < 0)
            return rc;
    }
    if (w->n_parts > 0)
        return 0;
    uint64_t columns = w->n_dims > 0 ? w->shape[w->n_dims - 1] : 0;
    if (w->n_dims < 1 || w->n_dims > 2)
        return err_set(e, HP_EUNSUPPORTED, "%s has %d dimensions; vectors and matrices are run",
                       w->name, w->n_dims);
    if (columns == 0 || w->shape[0] == 0 || columns % type->block_elements)
        return err_set(e, HP_EUNSUPPORTED, "%s: rows of %llu values are no whole blocks of %s",
                       w->name, (unsigned long long)columns, type->name);
    if (use == WEIGHT_MATMUL_TURNED && (type->block_elements > 1 || w->stored != WEIGHT_PLAIN))
        return err_set(e, HP_EUNSUPPORTED, "%s: blocks of %s cannot be turned", w->name,
                       type->name);
    return blocks_check(w, e);
}

void backend_weight_want(const struct weight *w)
{
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), begin = (uintptr_t)w->data / page * page;
    for (int i = 0; i < w->n_parts; i++)
        backend_weight_want(w->parts[i]);
    if (w->n_parts == 0 && w->file >= 0)
        madvise((void *)begin, (uintptr_t)w->data + w->bytes - begin, MADV_WILLNEED);
}

struct tensor tensor_rows(struct memory m, enum dtype dtype, uint64_t rows, uint64_t width)
{
    return (struct tensor){
        .memory = m, .dtype = dtype, .n_dims = 2, .shape = {rows, width}, .strides = {width, 1}};
}

struct tensor tensor_on_host(const void *data, enum dtype dtype, uint64_t rows, uint64_t width)
{
    struct memory m = {(void *)(uintptr_t)data, dtype_bytes(dtype, rows * width)};
    struct tensor t = tensor_rows(m, dtype, rows, width);
    t.on_host = true;
    return t;
}
