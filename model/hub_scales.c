#include "model/hub_scales.h"

#include <stdio.h>
#include <string.h>

enum { NAME_BYTES = 640, BLOCK_BYTES = 16, USUAL_TILE = 128, TILE_MAX = 1 << 20 };

static bool has_ending(const char *name, const char *ending)
{
    size_t n = strlen(name), m = strlen(ending);
    return n > m && strcmp(name + n - m, ending) == 0;
}

/* The tensor whose name has another ending; NULL: there is none. */
static struct weight *beside_find(const struct weight_table *t, const char *name,
                                  const char *ending, const char *other)
{
    char full[NAME_BYTES];
    snprintf(full, sizeof full, "%.*s%s", (int)(strlen(name) - strlen(ending)), name, other);
    const struct weight *w = weight_table_find(t, full);
    return w ? &t->weights[w - t->weights] : NULL;
}

static bool is_bytes(const struct weight *w)
{
    return w->dtype == DTYPE_COUNT;
}

/* ---- MXFP4 ---- */

static int scales_refuse(const struct weight_table *t, const struct weight *w,
                         const struct weight *scales, struct err *e)
{
    return err_set(e, HP_EPARSE,
                   "%s: tensor %s has %d dimensions, the last of %llu: no scales for tensor %s",
                   t->file, scales->name, scales->n_dims,
                   (unsigned long long)scales->shape[scales->n_dims - 1], w->name);
}

/* [experts, rows, blocks, 16] bytes and [experts, rows, blocks] exponents become one weight. */
static int blocks_join(struct weight_table *t, struct weight *w, struct arena *arena, struct err *e)
{
    static const char ending[] = "_blocks";
    struct weight *scales = beside_find(t, w->name, ending, "_scales");
    if (!scales)
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s has no tensor of scales beside it (%.*s_scales)", t->file,
                       w->name, (int)(strlen(w->name) - strlen(ending)), w->name);
    if (w->n_dims != 4 || w->shape[3] != BLOCK_BYTES)
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s has %d dimensions, the last of %llu; blocks of MXFP4 have 4, "
                       "the last of %d",
                       t->file, w->name, w->n_dims, (unsigned long long)w->shape[w->n_dims - 1],
                       (int)BLOCK_BYTES);
    if (!is_bytes(scales) || scales->n_dims != 3 ||
        memcmp(scales->shape, w->shape, 3 * sizeof *w->shape) != 0)
        return scales_refuse(t, w, scales, e);
    w->name = arena_strndup(arena, w->name, strlen(w->name) - strlen(ending));
    if (!w->name)
        return err_set(e, HP_ENOMEM, "%s: out of memory", t->file);
    w->dtype = DTYPE_MXFP4;
    w->format = dtype_info(DTYPE_MXFP4)->name;
    w->stored = WEIGHT_MXFP4_APART;
    w->n_dims = 3;
    w->shape[2] *= SMALL_BLOCK_ELEMENTS;
    w->scales = scales;
    w->tile_rows = 1;
    w->tile_columns = SMALL_BLOCK_ELEMENTS;
    return 0;
}

/* Names change, so the table is made again. */
static int all_blocks_join(struct weight_table *t, struct arena *arena, struct err *e)
{
    int rc = 0, joined = 0;
    for (size_t i = 0; i < t->n_weights && rc == 0; i++)
        if (is_bytes(&t->weights[i]) && has_ending(t->weights[i].name, "_blocks")) {
            rc = blocks_join(t, &t->weights[i], arena, e);
            joined++;
        }
    return rc < 0 || !joined ? rc
                             : weight_table_make(t->file, t->weights, t->n_weights, arena, t, e);
}

/* ---- eight bits ---- */

/* Rows and columns of a block, as config.json has them. */
static int tile_sizes_get(const struct json_at *config, uint64_t sizes[2], struct err *e)
{
    struct json_at method, list;
    size_t n = 0;
    sizes[0] = sizes[1] = USUAL_TILE;
    if (!json_find(config, "quantization_config", &method) ||
        !json_find(&method, "weight_block_size", &list))
        return 0;
    int rc = json_as_array(&list, &n, e);
    if (rc == 0 && n != 2)
        return json_fail(&list, e, "%zu sizes of a block, expected rows and columns", n);
    for (size_t i = 0; i < n && rc == 0; i++) {
        struct json_at item = json_item(&list, i);
        rc = json_as_u64(&item, &sizes[i], e);
        if (rc == 0 && (sizes[i] < 1 || sizes[i] > TILE_MAX))
            return json_fail(&item, e, "a block of %llu is not within 1 to %d",
                             (unsigned long long)sizes[i], (int)TILE_MAX);
    }
    return rc;
}

/* What one scale is for: all, a row, or a block. */
static int tile_find(const struct weight_table *t, struct weight *w, const struct weight *scales,
                     const uint64_t sizes[2], struct err *e)
{
    uint64_t rows = weight_shape_rows(w), columns = weight_shape_columns(w),
             down = weight_shape_rows(scales), across = weight_shape_columns(scales);
    if (down == 1 && across == 1) {
        w->tile_rows = rows;
        w->tile_columns = columns;
    } else if ((down == rows && across == 1) || (scales->n_dims == 1 && across == rows)) {
        w->tile_rows = 1;
        w->tile_columns = columns;
    } else if (w->n_dims == 2 && scales->n_dims == 2 && down == (rows + sizes[0] - 1) / sizes[0] &&
               across == (columns + sizes[1] - 1) / sizes[1]) {
        w->tile_rows = sizes[0];
        w->tile_columns = sizes[1];
    } else {
        return err_set(e, HP_EPARSE,
                       "%s: tensor %s has %llu x %llu scales; tensor %s of %llu x %llu values has "
                       "one, one a row, or one for each block of %llu x %llu",
                       t->file, scales->name, (unsigned long long)down, (unsigned long long)across,
                       w->name, (unsigned long long)rows, (unsigned long long)columns,
                       (unsigned long long)sizes[0], (unsigned long long)sizes[1]);
    }
    w->scales = scales;
    return 0;
}

static int eight_bits_join(struct weight_table *t, struct weight *w, const uint64_t sizes[2],
                           struct err *e)
{
    struct weight *scales = NULL;
    if (has_ending(w->name, ".weight")) {
        scales = beside_find(t, w->name, "weight", "weight_scale_inv");
        scales = scales ? scales : beside_find(t, w->name, "weight", "weight_scale");
    }
    if (!scales)
        return 0; /* values that were cast */
    if (is_bytes(scales) || scales->stored != WEIGHT_PLAIN)
        return err_set(e, HP_EUNSUPPORTED,
                       "%s: tensor %s has scales in number format %s; known are F32, F16 and BF16",
                       t->file, scales->name, scales->format);
    weight_table_ignore(t, scales);
    return tile_find(t, w, scales, sizes, e);
}

/* ---- the whole ---- */

/* Scales that a computation in eight bits would need. */
static bool is_of_activations(const char *name)
{
    static const char *const endings[] = {".input_scale",    ".activation_scale", ".output_scale",
                                          ".input_scale_ub", ".k_scale",          ".v_scale"};
    for (size_t i = 0; i < sizeof endings / sizeof *endings; i++)
        if (has_ending(name, endings[i]))
            return true;
    return false;
}

int hub_scales_join(const struct json_at *config, struct weight_table *t, struct arena *arena,
                    struct err *e)
{
    uint64_t sizes[2];
    int rc = tile_sizes_get(config, sizes, e);
    rc = rc < 0 ? rc : all_blocks_join(t, arena, e);
    for (size_t i = 0; i < t->n_weights && rc == 0; i++) {
        struct weight *w = &t->weights[i];
        if (w->stored == WEIGHT_F8_E4M3 || w->stored == WEIGHT_F8_E5M2)
            rc = eight_bits_join(t, w, sizes, e);
        else if (w->stored == WEIGHT_MXFP4_APART)
            weight_table_ignore(t, w->scales);
        else if (is_of_activations(w->name))
            weight_table_ignore(t, w);
    }
    for (size_t i = 0; i < t->n_weights && rc == 0; i++)
        if (is_bytes(&t->weights[i]) && !t->used[i]) {
            err_set(e, HP_EUNSUPPORTED,
                    "%s: tensor %s has number format U8, which is known as MXFP4's blocks and "
                    "scales alone",
                    t->file, t->weights[i].name);
            rc = err_hint(e, "take the model's first weights (BF16), or its GGUF file");
        }
    return rc;
}
