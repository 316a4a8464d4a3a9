/* A whole cluster of cores in one process under virtual time: one coordinator core, agent cores, a
 * network between them that delays, and breaks when something dies. Everything that happens follows
 * from the seed.
 *
 * What is real: both cores, every message through its encoding, the store's records. What stands
 * in: the control channel (ordered, a connection dies with its ends, what an agent says meanwhile
 * waits for the next one, as with ZeroMQ), the data channel (frames overtake each other), the
 * executor (toy.h), and weights (a set of layers an agent). */
#ifndef HP_TESTS_SIM_CLUSTER_H
#define HP_TESTS_SIM_CLUSTER_H

#include <jansson.h>

#include "agent/agent_core.h"
#include "coordinator/core.h"
#include "tests/sim/toy.h"

enum {
    SIM_AGENTS = 4,
    SIM_DEVICES = 3,
    SIM_CLIENTS = 64,
    SIM_ADMIN_PEER = 1,
    SIM_MAX_OUTPUT = 150,
    SIM_SCORES = 4, /* of a token, at most */
};

struct sim_event;
struct sim_agent;
struct sim;

/* What becomes of frames on their way. */
enum sim_path {
    SIM_PATH_GOOD,
    SIM_PATH_SILENT, /* none arrives, and nobody is told */
    SIM_PATH_BREAKS, /* the link breaks with every frame that carries something */
};

/* One request and what came of it. */
struct sim_client {
    uint64_t request;
    uint32_t prompt[TOY_CONTEXT], expected[SIM_MAX_OUTPUT], got[SIM_MAX_OUTPUT];
    size_t n_prompt, n_expected, n_got;
    bool ends_early; /* `expected` closes with an end token, which is not handed out */
    bool open, finished, failed, cancelled, lost; /* lost: with its coordinator */
    struct request_usage usage;                   /* when it was finished */
    uint32_t said_width, prompt_width;            /* scores that it asks for */
    size_t n_scored, n_prompt_scored;             /* tokens whose scores came */
    struct toy_memory scored;                     /* the undisturbed run, up to there */
    struct err why;
    struct sim *sim;
    uint64_t stream;  /* it outlives its coordinator; 0: it does not */
    size_t n_now;     /* tokens of the stream that it reads now, which begins anew then */
    uint32_t resumed; /* so often */
    size_t max_tokens;
    char name[32];
    bool found;
    bool asks, leaves; /* it is to ask again; it has all and is to say so */
};

struct sim {
    uint64_t seed, chance; /* of the network */
    uint64_t trace;        /* hash of all events so far: a seed has the same one each time */
    struct env_virtual clock;
    struct env env;
    struct store *store;
    uint64_t stored_ns; /* when the last batch will be on it */
    uint64_t disk_ns;   /* the longest that a batch takes; 0: 30 ms */
    struct coord *core; /* NULL while the coordinator is dead */
    bool core_stopped;
    uint64_t pools_ns;                /* when its pools want to be looked at */
    struct sim_event **core_deferred; /* what arrived while it was stopped */
    size_t n_core_deferred;
    struct requests requests;
    uint64_t next_peer, event_order, core_incarnation;
    uint64_t profile_ms;     /* of coord_config */
    bool as_profiled;        /* stages take what their profile says, which grows with the prefix, */
    double slow[SIM_AGENTS]; /* so many times as long (0: once), */
    double noise;            /* and by chance up to so much longer */
    struct sim_event **events; /* heap */
    size_t n_events, capacity;
    struct sim_agent *agents[SIM_AGENTS];
    int n_agents;
    int n_devices; /* of each agent */
    struct sim_client clients[SIM_CLIENTS];
    int n_clients;
    json_t *answer;    /* the last whole answer to the admin; its error in `answer_error` */
    uint64_t answered; /* how many */
    uint64_t asked, answered_last, awaited; /* numbers of the admin's asks; awaited 0: any */
    struct err answer_error;
    struct buffer logits; /* blobs of `logits` answers */
    bool uploader;        /* the admin uploads what is asked for */
    bool admin_gone;      /* hpctl was interrupted */
    char token[128];
    bool streams;      /* clients come back after the coordinator's death */
    bool scored;       /* clients ask for scores, a third of them for those of the prompt, too */
    uint64_t computed; /* positions, by stages */
    uint64_t wrong;    /* tokens that an undisturbed run would not have given */
    uint64_t frames_sent, frames_lost, uploads, loads;
    uint64_t old_orders; /* that came to agents after newer ones */
    uint64_t cached,
        missed; /* tokens that requests had from others; beginnings that were not there */
    const char *speculate;      /* option of the deployments; NULL: none */
    uint64_t replicate_kv;      /* option of "toy"; 0: none */
    const char *replicate_to;   /* the same; NULL: not given */
    unsigned tight, full, bare; /* agents, as bits: their stages find memory only where they keep no
                                   copies; they find none at all; no stage can keep copies there */
    double alike;       /* chance that a prompt begins as another request's prompt and answer did */
    uint32_t window;    /* of all layers of what is deployed; 0: none */
    size_t most_spills; /* chains that an agent spills; 0: none */
    uint64_t spilled, unspilled; /* chains, by stages; read back */
    double spill_lie;            /* chance that a stage tells of a chain that it does not have */
    double spill_flip;           /* chance that what is read back is not what was written */
    uint64_t most_pages;         /* of KV cache on a stage; 0: what it was told to have */
    struct {
        uint64_t slow_ns;   /* the longest delay of a frame */
        double bytes_per_s; /* what agents measure of their links; 0: 1e9 */
        double repeat; /* chance that a control message to the coordinator is delivered twice */
        double lose, twice, late, refuse; /* chances that a frame is lost, comes twice, comes
                                             `late_ns` later, or that its post fails */
        uint64_t late_ns;
        enum sim_path path[SIM_AGENTS][SIM_AGENTS]; /* from one agent to another */
        int lose_from; /* 1 + agent: its next frame never arrives, and nobody is told; 0: all arrive
                        */
    } network;
};

void sim_open(struct sim *s, uint64_t seed, int agents);
/* The same, with so many devices each. */
void sim_open_devices(struct sim *s, uint64_t seed, int agents, int devices);
void sim_close(struct sim *s);

/* Time goes on: for so long, or until `done` says so (false when it did not within `limit_ms`). */
void sim_run_ms(struct sim *s, uint64_t ms);
void sim_run_us(struct sim *s, uint64_t us);
/* What a call of requests.h, or of pool_requests.h, has left to do is done. */
void sim_core_run(struct sim *s);
bool sim_run_until(struct sim *s, bool (*done)(struct sim *s), uint64_t limit_ms);

/* Faults. Nothing happens where it makes no sense. */
void sim_agent_kill(struct sim *s, int agent);
void sim_agent_start(struct sim *s, int agent);
void sim_agent_stop(struct sim *s, int agent); /* SIGSTOP */
void sim_agent_continue(struct sim *s, int agent);
void sim_executor_hang(struct sim *s, int agent, bool hung); /* all its executors; the rest of the
                                                                agent lives on */
void sim_agent_forget_weights(struct sim *s, int agent);
void sim_agent_have_weights(struct sim *s, int agent); /* all of the toy's, in its store */
void sim_connection_break(struct sim *s, int agent);   /* its control channel */
void sim_links_break(struct sim *s, int agent);        /* its data links */
void sim_coordinator_kill(struct sim *s);
void sim_coordinator_start(struct sim *s);
void sim_coordinator_stop(struct sim *s); /* SIGSTOP */
void sim_coordinator_continue(struct sim *s);
bool sim_agent_alive(const struct sim *s, int agent);

/* Asks as hpctl does; the answer comes into s->answer. `arguments` is taken. */
void sim_ask(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob);
/* The same, and waits for it: 0 or the error's code. */
int sim_ask_wait(struct sim *s, const char *verb, json_t *arguments, const struct buffer *blob);
/* Deploys the toy as "toy" and waits until it serves. `agents`: as --agents, NULL leaves it to the
 * planner. */
int sim_deploy(struct sim *s, const char *agents, const char *layers, uint64_t slice);
/* The same by a name and with options of its own (taken), or without waiting. */
int sim_deploy_with(struct sim *s, const char *name, json_t *options);
void sim_deploy_ask(struct sim *s, const char *name, json_t *options);
/* The same under another name, without waiting. */
void sim_deploy_as(struct sim *s, const char *name, const char *agents);
bool sim_serves(struct sim *s); /* "toy" */
/* Takes an agent out of service, or back; the answer is waited for by nobody. */
void sim_drain(struct sim *s, int agent, bool undo);
bool sim_serves_name(struct sim *s, const char *name);

/* A request with a prompt of n random ids. NULL when it was refused. */
struct sim_client *sim_request(struct sim *s, size_t n, size_t max_tokens, struct err *e);
struct sim_client *sim_request_of(struct sim *s, const char *name, size_t n, size_t max_tokens,
                                  struct err *e);
/* One of "toy" whose prompt begins with the other's and what came out there (or should have). */
struct sim_client *sim_request_after(struct sim *s, const struct sim_client *other, size_t n,
                                     size_t max_tokens, struct err *e);
/* One of "toy" with a prompt of n random ids, and n_forks more of it; returns the first. NULL when
 * any was refused. */
struct sim_client *sim_request_forked(struct sim *s, size_t n, uint32_t n_forks, size_t max_tokens,
                                      struct err *e);
/* The stages of an agent lose all that they keep of sequences that have ended. */
void sim_kept_forget(struct sim *s, int agent);
/* Those of a coordinator that died: what the next one has of their requests, or once more. */
void sim_clients_return(struct sim *s);
void sim_clients_ask(struct sim *s);
void sim_cancel(struct sim *s, struct sim_client *c);
bool sim_quiet(struct sim *s); /* no client is open */

/* Sequences, waiting frames, samplers and buffers that anybody still has. */
uint64_t sim_leftovers(const struct sim *s);
/* Whether an agent counts other pages of KV cache as taken than its coordinator does: once nothing
 * is on its way they have been told the same. */
bool sim_pages_differ(const struct sim *s);
/* A random number below n, from the network's chance. */
uint64_t sim_random(struct sim *s, uint64_t n);

#endif
