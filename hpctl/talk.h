/* Whom `hpctl run` and `hpctl chat` talk to: a deployment of a cluster, or a model file on this
 * box, for which a cluster of its own begins and ends (own_cluster.h). */
#ifndef HP_HPCTL_TALK_H
#define HP_HPCTL_TALK_H

#include "hpctl/command.h"
#include "hpctl/context.h"
#include "hpctl/own_cluster.h"

struct talk {
    struct context where;
    char name[256];
    struct own_cluster *own; /* where a file was named */
};

/* `asked` names a deployment or a file; NULL: the only deployment there is. HP_ENOENT, HP_EUSAGE:
 * there are several, or an option is for files alone; else as own_cluster_open and client_open. */
int talk_open(const struct invocation *in, const char *asked, struct talk *t, struct err *e);
void talk_close(struct talk *t);

/* What a verb that takes a file declares, and what that says of its cluster; `options` are the
 * caller's then. */
#define OWN_OPTIONS                                                                                \
    {"max-context", "N", "of a file: longest prompt with its answer (default: what fits)", 0},     \
        {"max-sequences", "N", "of a file: answered at once (default: what fits, up to 32)", 0},   \
        {"compute", "f32|auto", "of a file: as what products are computed (default auto)", 0},     \
        {"kv", "auto|f16|q8_0|f32", "of a file: as what keys and values are kept", 0},             \
    {                                                                                              \
        "device", "SPEC",                                                                          \
            "of a file: what computes, as hp-agent --device says it: cpu[:CORES], cuda:N, ...; "   \
            "may be given more than once (default: a GPU that the model fits on, with the CPU "    \
            "beside it where it does not, else the CPU)",                                          \
            0                                                                                      \
    }
int talk_options_read(const struct invocation *in, struct own_options *out, struct err *e);

#endif
