/* What backends stand on: views of memory, and what they refuse alike. */
#include <sys/mman.h>
#include <unistd.h>

#include "agent/backend/backend.h"

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

static int blocks_check(const struct weight *w, struct err *e)
{
    int64_t bad = weight_bad_block(w);
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
