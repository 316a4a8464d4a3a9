/* Inside the reading of ONNX files: what its parts share. */
#ifndef HP_MODEL_FILES_ONNX_INT_H
#define HP_MODEL_FILES_ONNX_INT_H

#include "common/arena.h"
#include "common/map.h"
#include "model/files/mapped_file.h"
#include "model/files/onnx.h"
#include "model/files/onnx_builder.h"
#include "model/files/protobuf.h"

enum { ONNX_FILES_MAX = 64 };

struct onnx_value_name {
    const char *name;
    int value;
    UT_hash_handle hh;
};

/* A mapped file and its path below the model's folder; the model's own is the first. */
struct onnx_data_file {
    const char *path;
    struct mapped_file map;
};

struct onnx_file {
    struct onnx o; /* first: who closes it has this */
    const char *path, *folder;
    struct arena arena;
    struct onnx_data_file files[ONNX_FILES_MAX];
    int n_files;
    struct onnx_value_name *names;
    struct onnx_value *values;
    int room_values;
    struct onnx_owner owner; /* of one that was made (onnx_builder.h) */
};

/* An empty one, closed by onnx_close. `folder` NULL: external data is not allowed. */
int onnx_file_new(const char *path, const char *folder, struct onnx_file **out, struct err *e);

/* A string field's text in the arena. HP_EPARSE where it has a NUL or is no UTF-8. */
int onnx_text(struct onnx_file *f, const struct pb_field *field, const char **out, struct err *e);

/* HP_EPARSE: that part of the file cannot be read. */
int onnx_damaged(const struct onnx_file *f, const char *what, struct err *e);
/* Zeroed room in the arena for all fields of a number (messages, texts); *n says how many. `what`
 * is the part of the file, for messages. HP_EPARSE, HP_ENOMEM. */
int onnx_fields_room(struct onnx_file *f, struct pb p, uint32_t number, size_t item_bytes,
                     const char *what, int *n, void *out_at, struct err *e);
/* The row of a value's name, made where there is none. */
int onnx_value_of(struct onnx_file *f, const char *name, int *out, struct err *e);
/* A NodeProto. */
int onnx_node_read(struct onnx_file *f, struct pb bytes, struct onnx_node *n, struct err *e);
/* What a node is called in messages: by its name, or by what it makes. */
const char *onnx_node_words(struct onnx_file *f, const struct onnx_node *n);

/* A TensorProto: its name ("": none) and array, whose data lies in the file or in the arena. */
int onnx_tensor_read(struct onnx_file *f, struct pb bytes, const char **name, struct ndarray *out,
                     struct err *e);

#endif
