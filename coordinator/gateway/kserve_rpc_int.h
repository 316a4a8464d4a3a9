/* The methods of GRPCInferenceService: which there are, and what they answer to a message. Only
 * kserve_rpc*.c include this. */
#ifndef HP_COORDINATOR_GATEWAY_KSERVE_RPC_INT_H
#define HP_COORDINATOR_GATEWAY_KSERVE_RPC_INT_H

#include "coordinator/gateway/infer_message.h"
#include "coordinator/gateway/kserve.h"

/* What a method answers from. */
struct kserve_asked {
    const struct kserve_backend *kserve;
    const char *client;
    const struct buffer *message;
    const struct infer_message_head *head;
    const struct infer_model *m; /* that the message names; NULL: none */
};

/* Whether a method's message names a model, which then has to be there, or may be missing. */
enum kserve_naming { NAMES_NONE, NAMES_OR_NOT, NAMES_ONE, NAMES_ANY };

struct kserve_method {
    const char *name;
    enum kserve_naming naming;
    bool open;   /* needs no key, and is answered while the gateway drains */
    bool counts; /* against the limits of its key */
    void (*answer)(const struct kserve_asked *a, struct buffer *out); /* NULL: infer */
};

/* Of "/inference.GRPCInferenceService/NAME"; NULL: there is none, as `missing` says. */
const struct kserve_method *kserve_method_find(const char *path);
void kserve_method_missing(const char *path, struct err *e);
/* Writes the answer; HP_PENDING: the message is for *m to infer. HP_EINVAL, HP_EDENIED, HP_ENOENT;
 * HP_ELIMIT: it is too large. */
int kserve_method_answer(const struct kserve_method *method, const struct kserve_backend *kserve,
                         const char *client, const struct buffer *message,
                         const struct infer_model **m, struct buffer *out, struct err *e);

#endif
