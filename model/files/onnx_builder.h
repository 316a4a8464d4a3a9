/* ONNX graphs that are made here and not read from a file: what a model of another kind becomes to
 * run as a network. Functions that make a value return its number. The first error stays in the
 * builder, and what follows does nothing: onnx_builder_finish tells it. */
#ifndef HP_MODEL_FILES_ONNX_BUILDER_H
#define HP_MODEL_FILES_ONNX_BUILDER_H

#include "model/files/onnx.h"

struct onnx_builder;

/* Whose the borrowed data is. */
struct onnx_owner {
    void *ctx;
    void (*release)(void *ctx);
    int (*check)(const void *ctx, struct err *e); /* as onnx_check */
};

/* `name` stands where a file's path does in messages. HP_ENOMEM. */
int onnx_builder_create(const char *name, int64_t opset, struct onnx_builder **out, struct err *e);

/* Room that lives as long as the graph, zeroed; NULL: no memory, or an error before. */
void *onnx_builder_room(struct onnx_builder *b, size_t n, size_t item_bytes);
/* An error of whoever builds; returns 0, a value that nobody looks at. */
int onnx_builder_fail(struct onnx_builder *b, const struct err *why);
bool onnx_builder_has_failed(const struct onnx_builder *b);

/* Names, symbols and `dims` are copied. */
int onnx_builder_input(struct onnx_builder *b, const char *name, enum ndarray_type type,
                       const struct onnx_dim *dims, int n_dims);
/* A node's value, which is called so from then on. */
void onnx_builder_output(struct onnx_builder *b, int value, const char *name,
                         enum ndarray_type type, const struct onnx_dim *dims, int n_dims);
/* An array that is there already: its data is borrowed, and outlives the graph. */
int onnx_builder_weight(struct onnx_builder *b, const char *name, const struct ndarray *array);
/* A node with one output, which `name` is for. Attributes are copied, with their lists. */
int onnx_builder_node(struct onnx_builder *b, const char *name, const char *op, const int *inputs,
                      int n_inputs, const struct onnx_attribute *attributes, int n_attributes);

/* The node that makes `value` is an operator of this domain. */
void onnx_builder_domain(struct onnx_builder *b, int value, const char *domain);

/* The graph, closed by onnx_close, which lets the owner of what is borrowed go (also where this
 * fails); the builder is gone. */
int onnx_builder_finish(struct onnx_builder **b, const struct onnx_owner *owner,
                        const struct onnx **out, struct err *e);

#endif
