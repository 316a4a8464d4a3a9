/* A coordinator and an agent within this process: the cores that the programs have, on
 * a loop and threads of their own, joined by the transports' twins in one process. Nothing of them
 * listens but the gateway, on 127.0.0.1; nothing that they store outlives them but what was
 * measured. Signals are the caller's threads'. */
#ifndef HP_HPCTL_EMBEDDED_H
#define HP_HPCTL_EMBEDDED_H

#include <stdint.h>

#include "common/status.h"
#include "hpctl/context.h"

struct embedded;
struct discover_share;

struct embedded_options {
    const struct discover_share *share; /* what the agent computes with */
    const char *dir;      /* a folder of its own, for keys, heads of models and `log` */
    const char *measured; /* where measurements are kept; "": below `dir` */
    const char *http;     /* "127.0.0.1:PORT"; port 0: any free one */
};

/* Returns when agent and gateway run; that the agent has joined the coordinator says. What `o`
 * points at is copied. One a process. HP_EIO (a port in use, saying so), and what agent_start says.
 */
int embedded_start(const struct embedded_options *o, struct embedded **out, struct err *e);
/* How the coordinator is asked (client_open_at) and the API is reached; as long as it lives. */
const struct context *embedded_context(const struct embedded *m);
/* The code and, in `e`, the reason, where the cluster has ended by itself. */
int embedded_check(struct embedded *m, struct err *e);
/* Requests that are under way may go on for `patience_ms`; then all ends. */
void embedded_stop(struct embedded **m, uint64_t patience_ms);

#endif
