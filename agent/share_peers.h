/* Where batches of a plan of pools go from this agent: the rows of `share_connect`, each with its
 * link, made when the first batch goes there and made anew when it broke. Runners of several shares
 * post over it at once. A paced agent's frames arrive as late as the links that it stands for would
 * have brought them. */
#ifndef HP_AGENT_SHARE_PEERS_H
#define HP_AGENT_SHARE_PEERS_H

#include "agent/backend/paced.h"
#include "agent/delay_line.h"
#include "common/pack.h"
#include "transport/data.h"

struct share_peers;

struct share_peers_config { /* all of it outlives the table */
    struct data_endpoint *data;
    struct delay_line *line;   /* posts what may not leave yet */
    const struct paced *paced; /* NULL: it stands for nothing */
    /* A frame will not arrive: it is `header`, of the share that posted it. On any thread; must
     * not block. */
    void (*lost)(void *ctx, const struct frame_header *header, uint32_t share, int status);
    void *ctx;
};

/* What of a frame is not in its header. */
struct share_post {
    uint32_t share;        /* that posts it */
    uint32_t peer;         /* row */
    uint64_t ready_ns;     /* when it was done; a paced device's */
    uint64_t send_ns;      /* it does not leave before; 0: at once */
    uint64_t sample_bytes; /* as message_share says it, to a paced link, which counts bytes so */
};

/* `peers`: struct message_share_peer. Held once. HP_ENOMEM. */
int share_peers_create(const struct share_peers_config *c, const struct pack_list *peers,
                       struct share_peers **out, struct err *e);
struct share_peers *share_peers_hold(struct share_peers *p);
/* The last one disconnects, and drops what is still on its way. NULL is nothing. */
void share_peers_release(struct share_peers *p);

/* Fills in the header's session and posts. Takes the payload whatever happens. HP_EINVAL: no such
 * row; HP_ELINK, HP_ENOMEM: it did not leave, and `lost` is not called; later failures are told
 * there. */
int share_peers_post(struct share_peers *p, const struct share_post *post, struct frame_header *h,
                     struct data_buffer *payload, struct err *e);

#endif
