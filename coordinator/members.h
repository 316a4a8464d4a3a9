/* Who is here, how well, with which keys: the membership table and the invitations to join it. */
#ifndef HP_COORDINATOR_MEMBERS_H
#define HP_COORDINATOR_MEMBERS_H

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "common/digest.h"
#include "common/machine.h"
#include "transport/keys.h"
#include "transport/message.h"

struct core;
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

enum {
    MEMBER_NAME = 64,
    MEMBER_NODE_BYTES = 64 << 10,
    MEMBER_INPROC_ADDRESS_BYTES = 16,
    MEMBER_RIVAL_MS = 700
};

struct member_held { /* message_held_stage, copied */
    uint64_t deployment, generation, stage;
    char state[16];
    uint64_t sequences, queued_batches, kv_used_tokens, kv_tokens, batches_done;
    double busy_s, planned_s;
    bool hop_heard, running;
};
struct member_model {
    char id[DIGEST_HEX], name[128];
    uint64_t bytes;
};

struct member {
    char name[MEMBER_NAME], key[KEY_TEXT];
    int state;
    bool draining;    /* asked for; survives a restart of either side (drain.h) */
    bool drain_asked; /* whether it may is being found out, and kept nowhere; (drain_peer,
                         drain_ask) hears of it */
    uint64_t drain_peer, drain_ask;
    char machine[80], hostname[80], program[64];
    json_t *node;        /* of hp-cluster/1, with our name; NULL before it first joined */
    char kind[64];       /* of its first device */
    double memory_bytes; /* of its first device */
    uint8_t *address;
    size_t address_size;
    uint64_t peer; /* 0: not connected */
    uint64_t heard_ns, joined_ns, joins;
    uint64_t process; /* that it joined with; 0: not said */
    uint64_t rival,
        rival_ns;        /* another process with its key, and when that one asked first; 0: none */
    char rival_host[80]; /* "" while none was refused */
    uint64_t memory_free_bytes, dropped_stale, dropped_foreign;
    int64_t clock_offset_ns; /* add it to its clock to have ours (truth.c) */
    uint64_t clock_heard_ns; /* 0: not known yet */
    struct member_held *held;
    size_t n_held;
    struct member_model *models;
    size_t n_models;
    struct member_link *links; /* to others, as measured (links.h) */
    size_t n_links;
};

struct member_invite {
    char digest[65];
    uint64_t expires_s, created_s; /* Unix time */
    char used_by[MEMBER_NAME];     /* "" while it is good */
};

struct member *member_find(struct core *c, const char *name);
struct member *member_of_key(struct core *c, const char *key);
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

void members_join(struct core *c, uint64_t peer, const char *key, uint64_t id,
                  const struct message_join *j);
void members_heartbeat(struct core *c, struct member *m, const struct message_heartbeat *h);
void members_models_set(struct member *m, const struct pack_list *models);
void members_tick(struct core *c);
void members_peer_gone(struct core *c, uint64_t peer);

/* A secret for one agent, good for `ttl_s` seconds; what is kept is its digest. */
int members_invite(struct core *c, uint64_t ttl_s, char token[TOKEN_TEXT], struct err *e);
/* The one setter of a member's state; what of it outlives a restart. */
void member_move(struct member *m, int to); /* enum member_state */
void member_keep(struct core *c, const struct member *m);
/* For people; `whole`: with models and node (member_describe.c). */
json_t *member_describe(const struct core *c, const struct member *m, bool whole);
/* Forgets an agent and its key. HP_EBUSY while it is here or a deployment needs it. */
int members_remove(struct core *c, struct member *m, struct err *e);

int members_restore_agent(struct core *c, const char *name, const json_t *record, struct err *e);
int members_restore_invite(struct core *c, const char *digest, const json_t *record, struct err *e);
void member_free(struct member *m);

#endif
