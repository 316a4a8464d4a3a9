/* The core's state, its clock and its tables. Every part owns the fields that its name stands at;
 * nobody else writes them. */
#ifndef HP_COORDINATOR_STATE_H
#define HP_COORDINATOR_STATE_H

#include <jansson.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/bytes.h"
#include "common/env.h"
#include "common/status.h"
#include "coordinator/action.h"
#include "coordinator/config.h"
#include "coordinator/limits.h"
#include "transport/keys.h"

enum { COORD_REMOVED = 64, MEMBER_NAME = 64, DEVICE_KIND = 128 };

struct agent_ask;
struct api_key;
struct deployment;
struct held_message;
struct kept_profile;
struct links_ask;
struct member;
struct member_invite;
struct model_layout;
struct model_slot;
struct pool_service;
struct profiling_ask;
struct sequence;
struct stream_left;

/* Actions of one coord_take. Bytes of all of them lie in one buffer; an action knows its offset
 * until it is handed over. */
struct effects_batch {
    struct coord_action *actions;
    size_t *at; /* of each action's bytes, in `bytes` */
    size_t count, room, room_at;
    struct buffer bytes;
    struct arena arena;     /* keys */
    struct sequence *ended; /* whose last action is here; freed with it */
};

struct removed_member {
    char key[KEY_TEXT], name[MEMBER_NAME];
};

/* The measurement of a link that goes on; id 0: none. */
struct links_probe {
    uint64_t id, session, until_ns;
    struct member *from, *to;
    bool echoing; /* the far end is ready */
};

struct coord {
    struct coord_config config;
    char cluster[64], version[64], public_key[KEY_TEXT], admin_key[KEY_TEXT], http[300];
    const struct env *env;
    uint64_t started_ns; /* env's */
    uint64_t woke_ns;    /* env's, at the last event */
    uint64_t now_ns;     /* the core's own time at the last event: without its pauses */
    uint64_t boot, next_deployment, next_request;
    bool running;

    /* effects */
    struct effects_batch batches[2];
    int filling;
    struct arena decoded;  /* of the message that is being handled */
    struct buffer encoded; /* of the message that is being said */
    size_t n_ends;         /* of requests that are open */
    struct {
        uint64_t actions, records; /* for want of memory */
    } lost;
    /* holding: messages that wait for the disk */
    struct held_message *held;
    size_t n_held, room_held;
    uint64_t batches_asked;
    struct err read_only; /* the store cannot be written; code 0: it can */
    /* works: those that are out */
    struct coord_work *works;
    uint32_t n_works;
    uint32_t n_planning; /* plans and slices among them */

    /* member, invites */
    struct member **members;
    size_t n_members, room_members;
    struct member *members_by_name, *members_by_key; /* maps (common/map.h) */
    struct removed_member removed[COORD_REMOVED];    /* agents, the last ones */
    size_t next_removed;
    struct member_invite *invites;
    size_t n_invites, room_invites;
    /* deployment, model_slots, profiles, layouts, api_keys, asks */
    struct stream_left *streams; /* streams: of those before this process, not asked for so far */
    size_t n_streams, room_streams;
    struct sequence *sequences; /* a map by request: all that wait or run, of all deployments */
    struct deployment **deployments;
    size_t n_deployments, room_deployments;
    struct model_slot **models;
    size_t n_models, room_models;
    struct kept_profile *profiles;
    size_t n_profiles, room_profiles;
    uint64_t profiles_version; /* rises with every change */
    uint64_t paces_version;    /* the same */
    struct model_layout *layouts;
    size_t n_layouts, room_layouts;
    struct api_key *api_keys; /* a map by name */
    size_t n_api_keys;
    struct agent_ask *asks;
    size_t n_asks, room_asks;
    /* profiling: what hpctl waits for */
    struct profiling_ask *profilings;
    size_t n_profilings, room_profilings;
    /* pools: what is served by them; NULL: nothing was ever applied */
    struct pool_service *pools;
    /* links, link_probes */
    uint64_t links_version; /* rises with every change */
    struct links_probe probe;
    size_t next_pair;  /* to look at, for the next probe */
    size_t pairs_idle; /* looked at in a row without finding one that is due */
    struct links_ask *links_asks;
    size_t n_links_asks, room_links_asks;
    uint64_t
        doubts_until_ns; /* the answer waits so long for doubted results; 0: it has not begun */

    struct {
        uint64_t refused, opened, finished, failed, cancelled, rejected, prompt_tokens,
            output_tokens;
        uint64_t pauses;  /* of our own */
        uint64_t adopted; /* sequences that ran on without a coordinator */
        uint64_t stale;   /* messages of an older generation, or of a closed sequence */
    } counts;
};

/* The time of this event. It stands still while the coordinator does not run, so that nobody's
 * deadline passes then. */
static inline uint64_t coord_now(const struct coord *c)
{
    return c->now_ns;
}
/* The clock as it is: for clocks of others, and for people. */
static inline uint64_t coord_clock(const struct coord *c)
{
    return env_now_ns(c->env);
}
static inline uint64_t coord_ms(uint64_t ms)
{
    return ms * 1000000u;
}
uint64_t coord_unix_s(const struct coord *c);
/* The beginning of every event. */
void coord_woke(struct coord *c);

/* The code of a failure that an agent tells of: whatever it says, a failure it is. */
static inline int coord_failure_code(const char *word)
{
    int code = status_of_word(word);
    return code < 0 ? code : HP_EPROTO;
}

#endif
