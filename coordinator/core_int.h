/* What the files of the core share: the core itself, and the ways to say and keep something. */
#ifndef HP_COORDINATOR_CORE_INT_H
#define HP_COORDINATOR_CORE_INT_H

#include <jansson.h>

#include "coordinator/core.h"
#include "coordinator/deployments.h"
#include "coordinator/hops.h"
#include "coordinator/layouts.h"
#include "coordinator/links.h"
#include "coordinator/members.h"
#include "coordinator/profiles.h"
#include "coordinator/profiling.h"
#include "coordinator/sequences.h"
#include "transport/message.h"

enum { CORE_KEY_PLACES = 8192 };

/* Actions of one core_take. Bytes of all of them lie in one buffer; an action knows its offset
 * until it is handed over. */
struct core_batch {
    struct core_action *actions;
    size_t *at; /* of each action's bytes, in `bytes` */
    size_t count, capacity;
    struct buffer bytes;
    struct arena arena;     /* keys */
    struct sequence *ended; /* whose last action is here; freed with it */
};

struct core_held;

/* One model that deployments refer to. */
struct core_model_slot {
    char id[DIGEST_HEX];
    char name[128];
    uint8_t *manifest;
    size_t manifest_size;
    bool opening, open;
    uint32_t users;     /* work that holds it open (work.h) */
    struct err failure; /* code 0 while there is none */
    struct arena arena; /* what `facts` points to */
    struct core_model facts;
};

struct core_profile {
    char *key; /* model/kind/compute */
    json_t *tables;
};

struct core_api_key {
    char digest[65];
    char name[64];
    uint64_t created_s;
};

/* A question to agents, most often because hpctl asked one. */
struct core_relay {
    uint64_t id; /* ours, towards agents: by chance, so that nobody else's answer has it */
    char asked[MEMBER_NAME]; /* who alone may answer; "": all who were asked (STORE_STATE) */
    uint64_t peer, ask;      /* hpctl's; PROFILE_RESULT: 0, and 1 for f32 */
    enum message_type type;  /* of the answer awaited */
    char what[DIGEST_HEX];   /* STORE_STATE, PROFILE_RESULT: the model */
    char kind[64];           /* PROFILE_RESULT: of the device that is measured */
    uint32_t awaited;        /* answers to come */
    uint64_t until_ns;
};

enum { CORE_REMOVED = 64 };

struct core_removed {
    char key[KEY_TEXT], name[MEMBER_NAME];
};

struct core {
    struct core_config config;
    char cluster[64], version[64], public_key[KEY_TEXT], admin_key[KEY_TEXT], http[300];
    const struct env *env;
    uint64_t started_ns; /* env's */
    uint64_t woke_ns;    /* env's, at the last event */
    uint64_t now_ns;     /* the core's own time at the last event: without its pauses */
    uint64_t boot, next_deployment, next_request;
    bool running;

    struct core_batch batches[2];
    int filling;
    struct arena decoded;  /* of the message that is being handled */
    struct buffer encoded; /* of the message that is being said */

    struct member **members;
    size_t n_members;
    uint16_t
        member_places[CORE_KEY_PLACES]; /* by a hash of the key: where its member was found last */
    struct member_invite *invites;
    size_t n_invites;
    struct deployment **deployments;
    size_t n_deployments;
    struct core_model_slot **models;
    size_t n_models;
    struct core_profile *profiles;
    size_t n_profiles;
    struct core_api_key *api_keys;
    size_t n_api_keys;
    struct core_relay *relays;
    size_t n_relays;
    struct profiling *profilings; /* that hpctl waits for */
    size_t n_profilings;
    struct core_held *held; /* messages that wait for the disk (holding.c) */
    size_t n_held;
    uint64_t batches_asked;
    struct err read_only; /* the store cannot be written; code 0: it can */
    struct work *works;   /* that are out */
    uint32_t n_works;
    uint32_t n_planning;                      /* plans and slices among them */
    uint64_t profiles_version, links_version; /* rise with every change */
    struct links_probe probe;
    size_t next_pair;  /* to look at, for the next probe */
    json_t *layouts;   /* by model (layouts.h); NULL: none */
    size_t pairs_idle; /* looked at in a row without finding one that is due */
    struct links_ask *links_asks;
    size_t n_links_asks;
    size_t n_ends; /* of requests that are open */
    struct {
        uint64_t actions, records; /* for want of memory */
    } lost;
    struct core_removed removed[CORE_REMOVED]; /* agents, the last ones */
    size_t next_removed;

    struct {
        uint64_t refused, opened, finished, failed, cancelled, rejected, prompt_tokens,
            output_tokens;
        uint64_t pauses; /* of our own */
        uint64_t stale;  /* messages of an older generation, or of a closed sequence */
    } counts;
};

/* The time of this event. It stands still while the coordinator does not run, so that nobody's
 * deadline passes then. */
static inline uint64_t core_now(const struct core *c)
{
    return c->now_ns;
}
/* The clock as it is: for clocks of others, and for people. */
static inline uint64_t core_clock(const struct core *c)
{
    return env_now_ns(c->env);
}
static inline uint64_t core_ms(uint64_t ms)
{
    return ms * 1000000u;
}
uint64_t core_unix_s(const struct core *c);
/* The beginning of every event. */
void core_woke(struct core *c);

/* ---- saying ---- */
bool core_say(struct core *c, uint64_t peer,
              const struct message *m); /* false: lost for want of memory */
void core_refuse(struct core *c, uint64_t peer, uint64_t id, const struct err *why);
/* An answer to hpctl; takes `result` (NULL: null). */
void core_answer(struct core *c, uint64_t peer, uint64_t id, bool more, json_t *result);
void core_answer_error(struct core *c, uint64_t peer, uint64_t id, const struct err *why);

/* ---- keeping ---- */
void core_keep_json(struct core *c, const char *kind, const char *key,
                    json_t *value); /* takes value */
void core_keep_bytes(struct core *c, const char *kind, const char *key, const void *bytes,
                     size_t size);
void core_forget(struct core *c, const char *kind, const char *key);

/* ---- doing ---- */
/* Appends an action; the caller fills what `bytes` does not say. NULL: lost for want of memory, and
 * said in the log. */
struct core_action *core_action_add(struct core *c, enum core_action_kind kind, const void *bytes,
                                    size_t size);
/* Makes room for the end of one more request, so that it cannot be lost: each reserved end is used
 * by one core_end_add, which takes the (closed) sequence. */
bool core_ends_reserve(struct core *c);
struct core_action *core_end_add(struct core *c, enum core_action_kind kind, struct sequence *s);
struct arena *core_action_arena(struct core *c); /* lives as long as the action */
/* Callbacks of a request that has been cancelled are not to come any more. */
void core_actions_forget_request(struct core *c, uint64_t request);

/* ---- waiting for the disk (holding.c) ---- */
/* Numbers the changes of a batch and takes out what must wait. */
void core_actions_hold(struct core *c, struct core_batch *b);
/* Whether anything may be changed now: HP_ENOSPACE, HP_EIO ... where it could not be stored. */
int core_may_change(const struct core *c, struct err *e);
void core_holding_free(struct core *c);

/* ---- work (work.c) ---- */
/* HP_EBUSY: too much is out; the work stays the caller's. `uses` (may be NULL) is not closed
 * meanwhile. */
int core_work_add(struct core *c, struct work *w, struct core_model_slot *uses, struct err *e);
void core_works_drop(struct core *c);
int core_requests_work(void *ctx, const struct model *model, struct work *w,
                       struct err *e); /* requests.h */

/* ---- models ---- */
struct core_model_slot *core_model_find(struct core *c, const char *id);
/* Finds or makes the slot of a manifest, keeps it, and has it opened. */
int core_model_use(struct core *c, struct pack_span manifest, struct core_model_slot **out,
                   struct err *e);
/* Closes what no deployment uses. */
void core_models_sweep(struct core *c);

/* ---- questions to agents ---- */
struct core_relay *core_relay_add(struct core *c, enum message_type type,
                                  const struct member *asked, uint64_t peer, uint64_t ask,
                                  uint64_t until_ns); /* `asked` NULL: several; NULL: too many */
struct core_relay *core_relay_find(struct core *c, uint64_t id, enum message_type type);
/* The question that this member answers; NULL where it was asked none. */
struct core_relay *core_relay_answered(struct core *c, const struct member *by, uint64_t id,
                                       enum message_type type);
void core_relay_end(struct core *c, struct core_relay *r);

/* The code of a failure that an agent tells of: whatever it says, a failure it is. */
static inline int core_failure_code(const char *word)
{
    int code = status_of_word(word);
    return code < 0 ? code : HP_EPROTO;
}

/* ---- arrays ---- */
/* Room for one more item, zeroed, in the array whose pointer is at `array`; NULL when memory ran
 * out. */
void *core_array_add(void *array, size_t *count, size_t item_size);
void core_array_remove(void *items, size_t *count, size_t item_size, size_t at);

/* Copies text into a fixed array: cut between characters where it is too long, UTF-8 whatever it
 * was. */
void core_text_set(char *out, size_t size, const char *text);

#endif
