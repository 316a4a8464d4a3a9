/* What the files of the simulated cluster share: cluster.c (the face and the loop),
 * cluster_events.c (time), cluster_core.c (network and coordinator), cluster_admin.c (hpctl),
 * cluster_clients.c, and of agents: cluster_agent.c (their life), cluster_actions.c (what their
 * cores order), cluster_fetch.c (weights), cluster_executor.c, cluster_kv.c, cluster_spills.c,
 * cluster_shares.c (of pools) and cluster_links.c (frames); and cluster_check.c and
 * cluster_orders.c (what always holds).
 */
#ifndef HP_TESTS_SIM_CLUSTER_INT_H
#define HP_TESTS_SIM_CLUSTER_INT_H

#include "common/kv_account.h"
#include "tests/sim/cluster.h"
#include "transport/message.h"

enum sim_event_kind {
    EVENT_TICK,     /* the coordinator's timer */
    EVENT_TO_CORE,  /* bytes of `peer` */
    EVENT_TO_AGENT, /* bytes over the connection `peer` */
    EVENT_CONNECT,  /* an agent's control connection is up again */
    EVENT_MODEL,    /* the coordinator has opened a model */
    EVENT_WORKED,   /* a thread of the coordinator has done its work */
    EVENT_STORED,   /* its disk has taken a batch */
    EVENT_POOLS,    /* a batch of a plan of pools is due to leave */
    EVENT_RESULT,   /* a frame for the coordinator */
    EVENT_TIMER,    /* an agent's */
    EVENT_FRAME,
    EVENT_LINK_DOWN,
    EVENT_WORK,     /* fetch or load goes on */
    EVENT_EXECUTOR, /* the executor has done its first order */
};

struct sim_event {
    uint64_t at_ns, order;
    enum sim_event_kind kind;
    int agent, from;      /* from: 1 + the agent that sent the frame */
    uint64_t incarnation; /* of the agent, or of the coordinator: events of a dead one are lost */
    uint64_t peer;
    uint8_t *bytes;
    size_t size;
    char key[80];
    uint64_t slot, ticket, timer;
    enum agent_link link;
    int step;
    struct frame_header header;
    struct batch_run *runs;
    struct frame_token *tokens;
    struct sim_buffer *buffer;
    struct kv_range kv;
    struct coord_work *work;    /* the core's */
    struct sim_change *changes; /* of a batch, and its number */
    size_t n_changes;
    uint64_t number;
};

struct sim_change {
    char kind[16], key[600];
    uint8_t *bytes; /* NULL: removed */
    size_t size;
};

struct sim_buffer {    /* rows of a frame, or keys and values */
    uint32_t n_tokens; /* numbers */
    uint64_t x[];
};

struct sim_sequence { /* on a stage */
    struct toy_memory memory;
    uint64_t (*history)[TOY_LAYERS]; /* [TOY_CONTEXT]: what it remembered after each position */
    struct kv_holding holding;
    uint32_t certain;         /* of its tokens, those that are no guesses */
    uint32_t gone;            /* its first ones, which no window sees any more */
    uint32_t lent;            /* those that it has of another */
    uint32_t n_awaited;       /* keys and values that have not come, */
    bool (*came)[TOY_LAYERS]; /* [TOY_CONTEXT]: and those that have */
};

struct sim_stage { /* in the executor */
    uint64_t slot;
    int first, end;
    bool is_first, is_last, keeps;
    struct sim_sequence *sequences;
    size_t n_sequences;
    struct kv_account kv;
    uint64_t most_pages;
};

struct sim_slot { /* links of a slot, by address */
    uint64_t slot;
    int device;
    char next[32], first[32];
    bool gap[2]; /* by link: it was silent for a while, and what went there is lost */
};

struct sim_order {
    enum agent_action_kind kind;
    uint64_t slot, ticket, sequence, share;
    uint64_t takes_ns;              /* of the one that is being done */
    uint32_t shared;                /* of length; 0 with share: all */
    uint32_t tokens, length;        /* of SEQUENCE_OPEN, GROW: reserved; CLOSE: length to keep */
    const struct agent_action *run; /* copied action; what it points at holds until it is done */
    struct kv_range kv;             /* KV_IMPORT, KV_EXPORT */
    struct sim_buffer *buffer;      /* KV_IMPORT */
    struct frame_header header;     /* KV_EXPORT, and to which address */
    char to[32];
    struct digest identity, *pages; /* SPILL: [length], UNSPILL: the name of the last */
};

/* Of one device. */
struct sim_executor {
    struct sim_order *orders;
    size_t n_orders;
    bool busy; /* an EVENT_EXECUTOR is on its way, or being handled */
};

/* What an agent has spilled of a chain: on disk, so that it stays when the agent dies. */
struct sim_spill {
    struct digest identity, *pages;  /* [n_pages] */
    uint32_t n_pages, least;         /* with so many of them a sequence begins, or with more */
    uint64_t slot;                   /* of the stage that hears of it */
    uint64_t (*history)[TOY_LAYERS]; /* of all its tokens */
};

/* What it was ordered, and the newest generation of that (cluster_orders.c). */
enum { SIM_KEPT_ORDERS = 12 };
struct sim_kept_order {
    uint64_t deployment, generation;
    uint8_t *bytes; /* NULL: none */
    size_t size;
};
struct sim_term {
    uint64_t deployment, generation;
};

struct sim_agent {
    int index;
    uint64_t incarnation;
    bool alive, stopped;
    struct agent_core *core;
    struct agent_core_config config;
    struct agent_actions actions;
    char name[16], key[41], address[32], node[512], machine[16];
    uint64_t peer;                    /* of its control connection; 0: none */
    uint64_t to_core_ns, to_agent_ns; /* arrival of the last message, each way: order is kept */
    struct sim_event **deferred; /* what arrived while it was stopped, or what it said while there
                                    was no connection */
    size_t n_deferred;
    struct sim_event **unsent;
    size_t n_unsent;
    bool has_layer[TOY_LAYERS];
    bool has_model;
    uint64_t timer;
    /* executors */
    struct sim_stage *stages;
    size_t n_stages;
    struct sim_slot *slots;
    size_t n_slots;
    struct sim_executor executors[SIM_DEVICES];
    struct sim_share **shares;
    size_t n_shares;
    struct sim_spill *spills;
    size_t n_spills;
    bool hung; /* they never come back from what they do */
    struct sim_kept_order orders[SIM_KEPT_ORDERS];
    size_t next_order;
    struct sim_term *terms;
    size_t n_terms;
    bool order_is_old; /* the message that its core gets now */
    uint64_t buffers;  /* out */
    /* fetches that wait for an upload */
    struct {
        uint64_t slot, ticket;
        int first, end;
        bool waiting;
    } fetch[8];
};

struct sim_event *sim_event_add(struct sim *s, enum sim_event_kind kind, uint64_t after_ns);
void sim_event_free(struct sim_event *ev);
uint64_t sim_delay_ns(struct sim *s, uint64_t least_ns, uint64_t most_ns);
void sim_say(struct sim *s, struct sim_agent *a, const struct message *m);
void sim_core_settle(struct sim *s);
struct sim_agent *sim_agent_at(struct sim *s, const char *address);

void sim_agent_create(struct sim *s, int index);
void sim_agent_destroy(struct sim *s, struct sim_agent *a);
void sim_agent_handle(struct sim *s, struct sim_agent *a,
                      struct sim_event *ev); /* does not free ev */
void sim_agent_uploaded(struct sim *s, struct sim_agent *a, const json_t *chunks);

static const char admin_key[] = "admin-key-of-forty-characters-0123456789";

/* cluster_events.c: what happens when, in order of time */
void sim_event_push(struct sim *s, struct sim_event *ev);
struct sim_event *sim_event_pop(struct sim *s);

/* cluster_core.c: the coordinator; defer: whether it is stopped and takes the event later */
void sim_connected(struct sim *s, struct sim_agent *a);
void sim_disk_stored(struct sim *s, const struct sim_event *ev);
bool sim_core_event_defer(struct sim *s, struct sim_event *ev);

/* cluster_check.c: what holds after each event of the coordinator; ends the run where it does not
 */
void sim_core_check(const struct sim *s);
/* The same of an agent whose executor has done something to the stage in this slot. */
void sim_agent_check(const struct sim *s, const struct sim_agent *a, uint64_t slot);

/* cluster_admin.c: what the coordinator answers hpctl */
void sim_admin_answer(struct sim *s, const struct coord_action *a);

/* cluster_orders.c: messages of the coordinator, and whether old orders are obeyed: ends the run
 * then */
void sim_message_in(struct sim *s, struct sim_agent *a, const struct sim_event *ev);
void sim_old_order_check(const struct sim *s, const struct sim_agent *a,
                         const struct agent_actions *did);
void sim_orders_forget(struct sim_agent *a);

/* cluster_actions.c */
void sim_agent_event(struct sim *s, struct sim_agent *a, const struct agent_event *ev);

/* cluster_agent.c */
void sim_stage_free(struct sim_stage *st);
void sim_stage_remove(struct sim_agent *a, uint64_t slot);
void sim_store_tell(struct sim *s, struct sim_agent *a, uint64_t id);
void sim_link_down_later(struct sim *s, struct sim_agent *a, uint64_t slot, enum agent_link link);
struct sim_slot *sim_slot_of(struct sim_agent *a, uint64_t slot);

/* cluster_executor.c */
void sim_buffer_release(struct sim_agent *a, void *buffer);
void sim_order_add(struct sim *s, struct sim_agent *a, struct sim_order order);
void sim_executor_done(struct sim *s, struct sim_agent *a, int device);
void sim_load_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act);
/* The first token of the first page that one behind so many sees. */
uint32_t sim_first_seen(const struct sim *s, uint32_t length);
struct sim_sequence *sim_sequence_of(struct sim_agent *a, uint64_t slot, uint64_t id);
struct sim_buffer *sim_buffer_create(struct sim_agent *a, uint32_t n);

/* cluster_kv.c */
void sim_kv_order(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_kv_done(struct sim *s, struct sim_agent *a, const struct sim_order *o);

/* cluster_spills.c: where agents spill; orders of the executor, done there, and what is told */
void sim_spill_order(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_spill_done(struct sim *s, struct sim_agent *a, const struct sim_order *o);
void sim_spills_tell(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_spills_free(struct sim_agent *a);

/* cluster_shares.c: parts of devices that run blocks of a network for a plan of pools */
void sim_share_load(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_share_connect(struct sim_agent *a, const struct agent_action *act);
/* False: the slot is none of a share. */
bool sim_share_drop(struct sim_agent *a, uint64_t slot);
void sim_shares_free(struct sim_agent *a);
/* A FRAME_TENSORS; takes its bytes. */
void sim_share_frame(struct sim *s, struct sim_agent *a, struct sim_event *ev);
/* False: it is no work of a share. */
bool sim_share_work(struct sim *s, struct sim_agent *a, const struct sim_event *ev);
/* On its way; "": to the coordinator. False: nobody is there. */
bool sim_frame_send(struct sim *s, const char *address, const struct frame_header *h,
                    const uint8_t *payload);

/* cluster_fetch.c */
void sim_fetch_begin(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_fetch_step(struct sim *s, struct sim_agent *a, const struct sim_event *ev);

/* cluster_links.c */
void sim_link_connect(struct sim_agent *a, const struct agent_action *act);
/* Keys and values, or a sign of life without any (`buffer` NULL). False: nobody is there. */
bool sim_kv_post(struct sim *s, struct sim_agent *a, const struct sim_order *o,
                 struct sim_buffer *buffer);
void sim_post(struct sim *s, struct sim_agent *a, const struct agent_action *act);
void sim_frame_in(struct sim *s, struct sim_agent *a, struct sim_event *ev);

#endif
