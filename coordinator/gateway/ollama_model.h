/* What Ollama's clients list of a model: how large it is, of which family, in which number format.
 * No I/O; any thread. */
#ifndef HP_COORDINATOR_GATEWAY_OLLAMA_MODEL_H
#define HP_COORDINATOR_GATEWAY_OLLAMA_MODEL_H

#include <stdint.h>

#include "common/bytes.h"

struct model; /* model/model.h */

/* "size": N,"digest": "..","details": {..}, as /api/tags and /api/ps have them. `content` is the
 * digest of the model's content in hexadecimal, or NULL: programs cut it to twelve characters, so
 * there are always more. */
void ollama_model_write(struct buffer *out, const struct model *m, const char *content);
/* "details": {..} alone, */
void ollama_details_write(struct buffer *out, const struct model *m);
/* "model_info": {..}, under the keys that GGUF files have: sizes, and the context that a sequence
 * may have here. */
void ollama_info_write(struct buffer *out, const struct model *m, uint64_t context,
                       uint32_t vocabulary);

#endif
