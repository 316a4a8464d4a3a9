/* Rows of a tensor that is written, from those that are read. */
#include <math.h>
#include <stdlib.h>
#include <string.h>

#include "model/convert/convert_int.h"

enum { CHUNK_ELEMENTS = 1 << 16, TURNED_CHUNK_ELEMENTS = 1 << 20 };

static uint64_t columns_of(const struct convert_tensor *t)
{
    return t->shape[t->n_dims - 1];
}

uint64_t convert_chunk_rows(const struct convert_tensor *t)
{
    uint64_t most = t->view.turned ? TURNED_CHUNK_ELEMENTS : CHUNK_ELEMENTS,
             rows = most / columns_of(t);
    return rows ? rows : 1;
}

int convert_scratch_alloc(struct convert_scratch *s, const struct convert_list *l, struct err *e)
{
    uint64_t values = 0, row = 0, blocks = 0;
    for (int i = 0; i < l->n; i++) {
        const struct convert_tensor *t = &l->tensors[i];
        uint64_t n = convert_chunk_rows(t) * columns_of(t),
                 read = weight_shape_columns(t->parts[0]);
        values = n > values ? n : values;
        row = read > row ? read : row;
        blocks =
            n / dtype_info(t->dtype)->block_elements * dtype_info(t->dtype)->block_bytes > blocks
                ? n / dtype_info(t->dtype)->block_elements * dtype_info(t->dtype)->block_bytes
                : blocks;
    }
    *s = (struct convert_scratch){.values = malloc((values + 1) * sizeof(float)),
                                  .row = malloc((row + 1) * sizeof(float)),
                                  .blocks = malloc(blocks + 1)};
    return s->values && s->row && s->blocks ? 0 : err_no_memory(e, "rows of weights");
}

void convert_scratch_free(struct convert_scratch *s)
{
    free(s->values);
    free(s->row);
    free(s->blocks);
}

/* ---- where a row comes from ---- */

/* A row of the matrices of all parts, as a part and its row. */
static const struct weight *part_of(const struct convert_tensor *t, uint64_t row, uint64_t *in_part)
{
    uint64_t rows = weight_shape_rows(t->parts[0]);
    *in_part = row % rows;
    return t->parts[row / rows];
}

static uint64_t written_rows(const struct convert_view *v)
{
    return v->turned ? v->columns : v->rows;
}

/* Row r of a matrix that is written with pairs, in the matrix with halves. */
static uint64_t row_unpaired(const struct convert_tensor *t, uint64_t r)
{
    if (!t->rotated || r % t->head_dim >= t->rotated)
        return r;
    uint64_t at = r % t->head_dim;
    return r - at + at / 2 + at % 2 * (t->rotated / 2);
}

/* Of a row that is not turned. */
static uint64_t source_row(const struct convert_tensor *t, uint64_t row)
{
    const struct convert_view *v = &t->view;
    uint64_t in_matrix = t->n_dims > 1 ? row_unpaired(t, row % v->rows) : row % v->rows;
    return row / v->rows * v->stride + v->row_first + in_matrix * v->row_step;
}

/* Of a row that is not turned; the elements of a bias are ordered as its matrix's rows are. */
static uint64_t source_column(const struct convert_tensor *t, uint64_t column)
{
    uint64_t in_row = t->n_dims > 1 ? column : row_unpaired(t, column);
    return t->view.column_first + in_row * t->view.column_step;
}

/* ---- float32 ---- */

static int plain_rows_read(const struct convert_tensor *t, uint64_t first, uint64_t n,
                           struct convert_scratch *s, struct err *e)
{
    const struct convert_view *v = &t->view;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row;
        const struct weight *w = part_of(t, source_row(t, first + i), &row);
        float *out = s->values + i * v->columns;
        bool whole = v->columns == weight_shape_columns(w) && t->n_dims > 1;
        int rc = weight_rows_f32(w, row, 1, whole ? out : s->row, e);
        if (rc < 0)
            return rc;
        for (uint64_t c = 0; !whole && c < v->columns; c++)
            out[c] = s->row[source_column(t, c)];
    }
    return 0;
}

/* Columns [first, first + n) of a matrix that is read become rows. */
static int turned_rows_read(const struct convert_tensor *t, uint64_t matrix, uint64_t first,
                            uint64_t n, float *out, struct convert_scratch *s, struct err *e)
{
    const struct convert_view *v = &t->view;
    uint64_t from = v->column_first + first * v->column_step;
    for (uint64_t i = 0; i < v->rows; i++) {
        uint64_t row;
        const struct weight *w =
            part_of(t, matrix * v->stride + v->row_first + i * v->row_step, &row);
        const struct dtype_info *info = dtype_info(w->dtype);
        const float *values = s->row + from;
        int rc = 0;
        if (w->stored == WEIGHT_PLAIN && info->block_elements == 1) {
            info->to_f32(w->data + (row * weight_shape_columns(w) + from) * info->block_bytes,
                         (size_t)((n - 1) * v->column_step + 1), s->row);
            values = s->row;
        } else {
            rc = weight_rows_f32(w, row, 1, s->row, e);
        }
        if (rc < 0)
            return rc;
        for (uint64_t c = 0; c < n; c++)
            out[c * v->rows + i] = values[c * v->column_step];
    }
    return 0;
}

static int values_read(const struct convert_tensor *t, uint64_t first, uint64_t n,
                       struct convert_scratch *s, struct err *e)
{
    uint64_t per_matrix = written_rows(&t->view);
    int rc = 0;
    if (!t->view.turned)
        return plain_rows_read(t, first, n, s, e);
    for (uint64_t done = 0, some; done < n && rc == 0; done += some) {
        uint64_t row = (first + done) % per_matrix;
        some = n - done < per_matrix - row ? n - done : per_matrix - row;
        rc = turned_rows_read(t, (first + done) / per_matrix, row, some,
                              s->values + done * t->view.rows, s, e);
    }
    return rc;
}

/* ---- blocks ---- */

static int value_refuse(const struct convert_tensor *t, uint64_t row, uint64_t column, float v,
                        struct err *e)
{
    if (!isfinite(v))
        return err_set(e, HP_EPARSE, "tensor %s (%s): row %llu, column %llu is %g, no number",
                       t->parts[0]->name, t->name, (unsigned long long)row,
                       (unsigned long long)column, (double)v);
    err_set(e, HP_EPARSE, "tensor %s (%s): row %llu, column %llu is %g, beyond what %s can hold",
            t->parts[0]->name, t->name, (unsigned long long)row, (unsigned long long)column,
            (double)v, dtype_info(t->dtype)->name);
    return err_hint(e, "--type bf16 and f32 hold it");
}

/* The greatest that a format can hold is bounded by its scale, which is a half. */
static float most_of(enum dtype t)
{
    const struct dtype_info *info = dtype_info(t);
    return t == DTYPE_F16 || info->n_scales ? 65504 : INFINITY;
}

static int values_check(const struct convert_tensor *t, uint64_t first, uint64_t n,
                        const float *values, struct err *e)
{
    float most = most_of(t->dtype);
    uint64_t columns = columns_of(t);
    for (uint64_t i = 0; i < n * columns; i++)
        if (!(fabsf(values[i]) <= most) || isinf(values[i]))
            return value_refuse(t, first + i / columns, i % columns, values[i], e);
    return 0;
}

/* Rows that stay what they were. */
static void rows_copy(const struct convert_tensor *t, uint64_t first, uint64_t n, uint8_t *out)
{
    const struct dtype_info *info = dtype_info(t->dtype);
    uint64_t bytes = columns_of(t) / info->block_elements * info->block_bytes;
    for (uint64_t i = 0; i < n; i++) {
        uint64_t row;
        const struct weight *w = part_of(t, source_row(t, first + i), &row);
        weight_rows_make(w, row, 1, out + i * bytes);
    }
}

int convert_rows(const struct convert_tensor *t, uint64_t first, uint64_t n,
                 struct convert_scratch *s, struct err *e)
{
    if (t->copied) {
        rows_copy(t, first, n, s->blocks);
        return 0;
    }
    int rc = values_read(t, first, n, s, e);
    if (rc < 0)
        return rc;
    size_t elements = (size_t)(n * columns_of(t));
    for (size_t i = 0; t->one_more && i < elements; i++)
        s->values[i] += 1;
    rc = values_check(t, first, n, s->values, e);
    if (rc == 0)
        dtype_info(t->dtype)->from_f32(s->values, elements, s->blocks);
    return rc;
}
