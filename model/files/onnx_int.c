#include "model/files/onnx_int.h"

#include <string.h>

#include "common/vector.h"

enum { FIELDS_MAX = 1 << 22 }; /* of one kind in one message */

int onnx_damaged(const struct onnx_file *f, const char *what, struct err *e)
{
    return err_set(e, HP_EPARSE, "%s: its %s cannot be read: the file is damaged, or no ONNX file",
                   f->path, what);
}

/* How many fields of a number and wire type a message has; -1 where it is damaged or one has
 * another wire type. */
static int64_t fields_count(struct pb p, uint32_t number, enum pb_wire wire)
{
    struct pb_field field;
    int64_t n = 0;
    while (pb_next(&p, &field)) {
        n += field.number == number;
        if (field.number == number && field.wire != wire)
            return -1;
    }
    return p.failed || n > FIELDS_MAX ? -1 : n;
}

int onnx_fields_room(struct onnx_file *f, struct pb p, uint32_t number, size_t item_bytes,
                     const char *what, int *n, void *out_at, struct err *e)
{
    int64_t count = fields_count(p, number, PB_BYTES);
    if (count < 0)
        return onnx_damaged(f, what, e);
    void *items = arena_alloc(&f->arena, (size_t)count + 1, item_bytes);
    if (!items)
        return err_no_memory(e, "%s", f->path);
    *n = (int)count;
    memcpy(out_at, &items, sizeof items);
    return 0;
}

/* ---- values ---- */

int onnx_value_of(struct onnx_file *f, const char *name, int *out, struct err *e)
{
    struct onnx_value_name *found;
    HASH_FIND_STR(f->names, name, found);
    if (found) {
        *out = found->value;
        return 0;
    }
    found = arena_alloc(&f->arena, 1, sizeof *found);
    if (!found || !vector_push(f->values, f->o.n_values, f->room_values,
                               ((struct onnx_value){.name = name, .maker = -1, .n_dims = -1})))
        return err_no_memory(e, "%s", f->path);
    *found = (struct onnx_value_name){.name = name, .value = f->o.n_values - 1};
    HASH_ADD_KEYPTR(hh, f->names, found->name, strlen(found->name), found);
    if (!map_has_added(found))
        return err_no_memory(e, "%s", f->path);
    *out = found->value;
    return 0;
}
