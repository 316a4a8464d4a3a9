/* Messages of KServe's v2 protocol over gRPC, as the protobuf that they are: package `inference`,
 * service GRPCInferenceService, https://github.com/kserve/open-inference-protocol. They are held to
 * what infer.h's JSON bodies are held to, in the same words. Pure: any thread.
 *
 * Tensors come as raw_input_contents or as numbers of their own (`contents`), and go as
 * raw_output_contents. */
#ifndef HP_COORDINATOR_GATEWAY_INFER_MESSAGE_H
#define HP_COORDINATOR_GATEWAY_INFER_MESSAGE_H

#include "coordinator/gateway/infer.h"

enum { INFER_NAME_BYTES = 256 /* of a model or a tensor, with its NUL */ };

/* What a message about a model says of which. */
struct infer_message_head {
    char model[INFER_NAME_BYTES], version[16]; /* "": it names none */
};

/* Fields 1 and 2 of a message, which all that name a model have. HP_EINVAL: no message, or a name
 * that is none. */
int infer_message_head(const struct buffer *message, struct infer_message_head *out, struct err *e);
/* A ModelInferRequest, as infer_request_read reads a body: taken, also on failure. */
int infer_message_read(const struct infer_model *m, struct buffer *message,
                       struct infer_request *out, struct err *e);
/* A ModelInferResponse; what a request took is its parameter "timings", JSON. */
void infer_message_write(const struct infer_model *m, const struct infer_request *r,
                         const struct ndarray *outputs, struct buffer *out);
/* A ModelMetadataResponse, and a ModelConfigResponse, whose batches are of size 0: dimensions are
 * said whole. */
void infer_message_metadata(const struct infer_model *m, struct buffer *out);
void infer_message_config(const struct infer_model *m, struct buffer *out);

#endif
