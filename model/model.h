/* Open anything: a GGUF file or a Hugging Face folder becomes a config, a graph, a tokenizer and a
 * chat template. The one face of this folder.
 *
 * Opening reads headers alone and maps weights without touching them, so it takes milliseconds at
 * any size. A sparse copy of a model whose heads (model_heads) are filled in opens like the model
 * itself: that is how agents open what they hold a part of. A model is immutable after opening and
 * may be read from any thread, but for the two lazily made parts (tokenizer, template), which the
 * owner asks for first. */
#ifndef HP_MODEL_MODEL_H
#define HP_MODEL_MODEL_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/bytes.h"
#include "common/status.h"
#include "model/graph/graph.h"
#include "model/tokenizer/tokenizer.h"

struct model;

/* HP_ENOENT, HP_EIO, HP_EPARSE (names file, tensor and problem), HP_EUNSUPPORTED (architecture or
 * number format, saying which are known). */
int model_open(const char *path, struct model **out, struct err *e);
/* The same with the experts of each block in so many groups of neighbours, fewer where there are
 * fewer: each group is a layer of its own (`blk.3.moe.0`, `blk.3.moe.1`, ..), so that a block that
 * fits nobody can be shared out. What the model computes is the same to the bit. 0 or 1: one group,
 * as model_open. */
int model_open_divided(const char *path, int expert_groups, struct model **out, struct err *e);
/* The same as model_open_divided for who looks and does not compute: weights of GGUF files in
 * formats that are not computed here (quantised ones above all) are taken, with DTYPE_COUNT as
 * their dtype. */
int model_open_sizes(const char *path, int expert_groups, struct model **out, struct err *e);
/* The same for tokenizer and template alone: neither family nor tensors are looked at, so config,
 * graph, weights and heads are empty. */
int model_open_text(const char *path, struct model **out, struct err *e);
/* Another owner of the same model: it lives until each has closed it. From any thread that has it
 * open. */
struct model *model_share(struct model *m);
void model_close(struct model **m);
/* HP_EIO when some byte of its files could not be read since they were opened (mapped_file.h): then
 * what was computed from its weights is wrong, or somebody wrote to them. From any thread: to be
 * asked after each use of the weights, before its result counts. */
int model_check(const struct model *m, struct err *e);
/* Likewise after each of many short uses (mapped_file_glance). */
int model_glance(const struct model *m, struct err *e);

/* Owned by the model, valid until it is closed. */
const char *model_path(const struct model *m);
const struct model_config *model_config(const struct model *m);
const struct graph *model_graph(const struct model *m);

/* Files of the model, by name below its folder (one name for a GGUF file), in a stable order. */
struct model_file {
    const char *name;
    uint64_t bytes;
};
const struct model_file *model_files(const struct model *m, int *count);
/* Of all of them. */
uint64_t model_files_bytes(const struct model *m);

/* A run of bytes of one file. */
struct model_range {
    int file;
    uint64_t offset, bytes;
};
/* The ranges that everybody needs to open the model: a GGUF header; or every small file and the
 * safetensors headers of a folder. */
const struct model_range *model_heads(const struct model *m, int *count);

/* All weights, each once, in file order; a layer's weights are those that its operators name. */
const struct weight *model_weights(const struct model *m, int *count);
/* Calls `each` once for every distinct weight of layers [first, end). */
void model_layers_weights(const struct model *m, int first, int end,
                          void (*each)(void *ctx, const struct weight *w), void *ctx);

/* The tokenizer, made on the first call (by one thread) and owned by the model. HP_EUNSUPPORTED
 * names what is unknown. */
int model_tokenizer(struct model *m, const struct tokenizer **out, struct err *e);

/* Renders messages (a JSON array) by the chat template of the file into `out`. HP_EUNSUPPORTED when
 * the file has no template or it uses what the interpreter lacks; HP_EINVAL with the template's own
 * words when it refuses. `extra` (may be NULL) adds variables such as tools; where it has tools and
 * the file a template of its own for them ("tool_use"), that one is taken. */
int model_chat_render(struct model *m, const json_t *messages, bool add_generation_prompt,
                      const json_t *extra, struct buffer *out, struct err *e);
/* Makes tokenizer and template now, so that afterwards any thread may tokenize and render. A
 * template that does not compile is no failure here; every rendering fails, in the same words. */
int model_text_prepare(struct model *m, struct err *e);
/* The template's source, or NULL; and that of the one that is run where there are tools. */
const char *model_chat_template(const struct model *m);
const char *model_tool_template(const struct model *m);

#endif
