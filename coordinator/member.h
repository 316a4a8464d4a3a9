/* One agent of the cluster: who it is, how well, what it holds. State, lookups and setters; what
 * follows from a change is decided in membership.h and lifecycle.h. */
#ifndef HP_COORDINATOR_MEMBER_H
#define HP_COORDINATOR_MEMBER_H

#include "common/digest.h"
#include "common/machine.h"
#include "common/map.h"
#include "coordinator/member_node.h"
#include "coordinator/state.h"
#include "transport/message.h"

struct member_link;

enum member_state {
    MEMBER_JOINING,
    MEMBER_READY,
    MEMBER_SUSPECT,
    MEMBER_LOST,
    MEMBER_DRAINING,
    MEMBER_STATE_COUNT
};
extern const struct machine_state member_states[];

enum { MEMBER_NODE_BYTES = 64 << 10, DEVICE_TEXT = 160 };

/* Taken out of service (drains.h). */
enum member_drain {
    MEMBER_STAYS,
    MEMBER_ASKS,   /* whether it may leave is being found out; kept nowhere */
    MEMBER_LEAVES, /* survives a restart of either side */
};

struct member_model {
    char id[DIGEST_HEX], name[128];
    uint64_t bytes;
};

/* How one of its devices computes a model, beside its kind's profile (paces.h). */
struct member_pace {
    char model[DIGEST_HEX];
    int device, steps;
    int told; /* of these, as deployments that rebalance by themselves look at them; 0: not gross */
    bool f32;
    bool degraded;     /* so slow that what lies there leaves by itself */
    unsigned losses;   /* how often it became gross */
    uint64_t heard_ns; /* 0: nothing stands here */
};
enum {
    MEMBER_PACES = 16,
    MEMBER_SHORT_LEAST =
        256,              /* parts of a device's memory that plans count on less: one at first, */
    MEMBER_SHORT_MOST = 8 /* one of so many at last */
};

struct member {
    char name[MEMBER_NAME], key[KEY_TEXT];
    UT_hash_handle by_name, by_key;
    int state;
    enum member_drain drain;
    uint64_t drain_peer, drain_ask; /* who hears whether it may */
    char machine[80], hostname[80], program[64];
    struct member_node *node; /* with our name; NULL before it first joined */
    uint8_t *address;
    size_t address_size;
    bool streams_awaited; /* it has said that it will tell of some (streams.h) */
    uint64_t peer;        /* 0: not connected */
    uint64_t heard_ns, joined_ns, joins;
    uint64_t gone_ns; /* when its connection was found to be closed; 0: it is not */
    uint64_t lost_ns, held_off_until_ns; /* when it was lost last; it comes and goes (flapping.h) */
    unsigned flaps;                      /* losses in a row, without ten good minutes between */
    uint64_t copies_failed_ns;           /* when none could be kept there (keeper_plans.h) */
    uint64_t process;                    /* that it joined with; 0: not said */
    uint64_t rival,
        rival_ns;        /* another process with its key, and when that one asked first; 0: none */
    char rival_host[80]; /* "" while none was refused */
    uint64_t device_free_bytes[MESSAGE_MAX_DEVICES]; /* as the last heartbeat told */
    double pooled_bytes[MESSAGE_MAX_DEVICES];        /* that shares of plans of pools hold there */
    double
        short_bytes[MESSAGE_MAX_DEVICES]; /* that no plan counts on: what kernels and drivers hold
                                             beside what is planned for is known there alone */
    struct member_pace paces[MEMBER_PACES];
    char *device_lost[MESSAGE_MAX_DEVICES]; /* why it takes no stages until the agent starts again;
                                               NULL: it works */
    uint64_t spilled_memory_bytes, spilled_disk_bytes; /* as it told last (spills.h) */
    uint64_t memory_free_bytes, dropped_stale, dropped_foreign, data_sent_bytes,
        data_received_bytes;
    int64_t clock_offset_ns;         /* add it to the agent's clock to have ours (clocks.h) */
    uint64_t clock_heard_ns;         /* 0: not known yet */
    struct message_held_stage *held; /* as the agent told them last */
    size_t n_held;
    struct member_model *models;
    size_t n_models;
    struct member_link *links; /* to others, as measured (links.h) */
    size_t n_links, room_links;
};

/* One more member, with this name and key; LOST. NULL: no memory. */
struct member *member_add(struct coord *c, const char *name, const char *key);
/* Takes a member out of the table, and frees it. */
void member_remove(struct coord *c, struct member *m);
struct member *member_find(struct coord *c, const char *name);
/* HP_ENOENT, with the nearest name that there is as its hint. */
int member_missing(const struct coord *c, const char *name, struct err *e);
struct member *member_of_key(struct coord *c, const char *key);
void members_free(struct coord *c);

/* May be given new stages. */
static inline bool member_available(const struct member *m)
{
    return m->state == MEMBER_READY;
}
/* Is there, as far as one knows: its stages go on. */
static inline bool member_present(const struct member *m)
{
    return m->state == MEMBER_READY || m->state == MEMBER_SUSPECT || m->state == MEMBER_DRAINING ||
           m->state == MEMBER_JOINING;
}
/* The device that a paced member stands for, "" for all others. */
static inline const char *member_paced_as(const struct member *m)
{
    return m->node ? m->node->paced_as : "";
}

/* Its devices, as they stand in its node: how many, one of them (NULL: there is no such), and what
 * kind that is ("" likewise). */
static inline int member_device_count(const struct member *m)
{
    return m->node ? m->node->cluster.n_devices : 0;
}
static inline const struct cluster_device *member_device(const struct member *m, int device)
{
    return device < member_device_count(m) ? &m->node->cluster.devices[device] : NULL;
}
static inline const char *member_kind(const struct member *m, int device)
{
    const struct cluster_device *own = member_device(m, device);
    return own ? own->kind : "";
}
/* The number of its device with this name; -1: none. */
int member_device_find(const struct member *m, const char *name);
/* What people call a device: the agent's name where that has one device, else "agent/device". */
void member_device_text(const struct member *m, int device, char out[DEVICE_TEXT]);

/* Why the device takes no stages; NULL: it does. */
static inline const char *member_device_lost(const struct member *m, int device)
{
    return device >= 0 && device < MESSAGE_MAX_DEVICES ? m->device_lost[device] : NULL;
}

/* What the member's devices do not run of these (member_node_lacks). */
static inline const char *member_lacks(const struct member *m, const char *const *names)
{
    return m->node ? member_node_lacks(m->node, names) : NULL;
}

/* ---- setters ---- */

void member_move(struct member *m, int to); /* enum member_state */
/* The device has failed for good, as it said; and what was lost is there again: it is another
 * process. */
void member_device_lose(struct member *m, int device, const char *why);
void member_devices_find(struct member *m);
/* A stage that was planned there found no memory: plans count on less, twice as much less each time
 * until the agent starts again. */
void member_device_shorten(struct member *m, int device);
void member_node_set(struct member *m, struct member_node *node); /* takes node */
int member_address_set(struct member *m, struct pack_span from, struct err *e);
void member_held_set(struct member *m, const struct pack_list *held);    /* NULL: none */
void member_free_set(struct member *m, const struct pack_list *devices); /* message_device_state */
void member_models_set(struct member *m, const struct pack_list *models);

/* ---- the store ---- */

/* What of a member outlives a restart. */
void member_keep(struct coord *c, const struct member *m);
int member_restore(struct coord *c, const char *name, json_t *record, struct err *e);

/* ---- those that were removed since the start, so that they can be told ---- */

/* NULL: none with this key. */
const char *member_removed_name(const struct coord *c, const char *key);

#endif
