/* What the files of this folder share: the tensors of the file in the making. */
#ifndef HP_MODEL_CONVERT_CONVERT_INT_H
#define HP_MODEL_CONVERT_CONVERT_INT_H

#include "common/arena.h"
#include "model/convert/convert.h"
#include "model/files/gguf_write.h"
#include "model/model_int.h"

/* Matrices of a tensor that is read, as those of the one that is written: some rows and columns of
 * every `stride` rows, turned or not. */
struct convert_view {
    uint64_t stride; /* rows from one matrix to the next */
    uint64_t row_first, row_step, rows, column_first, column_step, columns;
    bool turned; /* what is written is [columns, rows] */
};

struct convert_tensor {
    const char *name;
    int n_dims;
    uint64_t shape[4];                 /* outermost first */
    const struct weight *const *parts; /* [n_parts]: with matrices one after the other */
    int n_parts;
    struct convert_view view;
    uint64_t head_dim, rotated; /* of each head the first `rotated` rows, which are two halves,
                                   become pairs; 0: none do */
    bool one_more;              /* values are kept as what they differ from 1 */
    enum dtype dtype;
    uint64_t offset, bytes; /* from the first byte of data */
    bool copied;            /* rows are what they were */
};

struct convert_list {
    struct arena *arena;
    struct convert_tensor *tensors;
    int n, room;
};

/* tensors.c: every tensor of the model by GGUF's name. Formats and places are not set. */
int convert_list_make(const struct model *m, struct convert_list *out, struct err *e);

/* mix.c */
struct convert_type {
    const char *name;
    enum dtype dtype;
    uint32_t file_type; /* general.file_type */
};
const struct convert_type *convert_type_find(const char *name);
/* The format of each tensor; what differs from the type's rule goes into `result`. */
int convert_mix(const struct model *m, const struct convert_type *type, struct convert_list *l,
                struct convert_result *result, struct err *e);

/* keys.c: everything but tensors. */
int convert_keys(struct model *m, const struct convert_type *type, struct gguf_header *h,
                 struct err *e);
/* tokens.c: the tokenizer of a Hugging Face folder. */
int convert_tokens(struct model *m, struct gguf_header *h, struct err *e);
/* Whether the file that was made of a folder cuts text as the folder's tokenizer does.
 * HP_EUNSUPPORTED where not. */
int convert_tokens_check(struct model *from, struct model *made, struct err *e);

/* rows.c: rows [first, first + n) of a tensor as blocks of its format. `scratch` is one thread's.
 */
struct convert_scratch {
    float *values, *row;
    uint8_t *blocks;
};
uint64_t convert_chunk_rows(const struct convert_tensor *t);
int convert_scratch_alloc(struct convert_scratch *s, const struct convert_list *l, struct err *e);
void convert_scratch_free(struct convert_scratch *s);
int convert_rows(const struct convert_tensor *t, uint64_t first, uint64_t n,
                 struct convert_scratch *s, struct err *e);

#endif
