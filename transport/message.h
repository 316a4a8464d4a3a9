/* Control messages: types, fields, versions. A message is a msgpack map {"v": version, "t": type,
 * "id": number, "body": bin}, whose body is a map of the type's fields; unknown keys are ignored,
 * an unknown type is answered with `refused`. One row of the table in message.c a type; a struct
 * here is what a row describes. What stands beside a member here stands in docs/protocol.md as well
 * (`make docs`).
 *
 * Who says what to whom is drawn in docs/protocol.md. Strings and lists of a decoded message live
 * in the arena that was handed in. */
#ifndef HP_TRANSPORT_MESSAGE_H
#define HP_TRANSPORT_MESSAGE_H

#include <stdbool.h>
#include <stdint.h>

#include "common/pack.h"
#include "common/sampling.h"
#include "common/score.h"
#include "common/status.h"

enum { MESSAGE_VERSION = 1 };

/* The largest that agents send; who has no key here sends no more than a join. */
enum { MESSAGE_AGENT_MAX_BYTES = 20 << 20, MESSAGE_STRANGER_MAX_BYTES = 64 << 10 };

/* How many rows the lists of a message may have. */
enum {
    MESSAGE_MAX_HELD = 1024,
    MESSAGE_MAX_DEVICES = 64,
    MESSAGE_MAX_MODELS = 8192,
    MESSAGE_MAX_SLICES = 1 << 16,
    MESSAGE_MAX_PEERS = 4096,
    MESSAGE_MAX_SAID = 4096,
    MESSAGE_MAX_VALUES = 64,
    MESSAGE_MAX_KV_BLOCKS = 64,
    MESSAGE_MAX_SPILLS = 256,
    MESSAGE_MAX_SHARES = 1, /* of a stage_prepare */
    MESSAGE_MAX_DIMS = 64,
    MESSAGE_MAX_BATCH = 1024,
    MESSAGE_MAX_SIZES = 16,
    MESSAGE_MAX_STREAMS = 4096,
    MESSAGE_MAX_LOSSES = 256
};

enum message_type {
    MESSAGE_NONE,
    /* agent -> coordinator */
    MESSAGE_JOIN,
    MESSAGE_HEARTBEAT,
    MESSAGE_STAGE_STATE,
    MESSAGE_TOKENS,
    MESSAGE_SEQUENCE_FAILED,
    MESSAGE_LOGITS,
    MESSAGE_PROFILE_RESULT,
    MESSAGE_STORE_STATE,
    MESSAGE_LOG_TEXT,
    MESSAGE_PREFILL,
    MESSAGE_DECODE,
    MESSAGE_PROFILE_PROGRESS,
    MESSAGE_LINK_RESULT,
    MESSAGE_HOP_STATE,
    MESSAGE_KV_STATE,
    MESSAGE_SPILLS,
    MESSAGE_SHARE_FAILED,
    MESSAGE_STREAMS,
    MESSAGE_LOSSES,
    /* coordinator -> agent */
    MESSAGE_WELCOME,
    MESSAGE_MEMBERS,
    MESSAGE_HEARTBEAT_ACK,
    MESSAGE_PROFILE_RUN,
    MESSAGE_STAGE_PREPARE,
    MESSAGE_STAGE_CONNECT,
    MESSAGE_STAGE_UNLOAD,
    MESSAGE_SHARE_CONNECT,
    MESSAGE_CHUNK_GRANT,
    MESSAGE_SEQUENCE_OPEN,
    MESSAGE_SEQUENCE_GROW,
    MESSAGE_SEQUENCE_SPILL,
    MESSAGE_SEQUENCE_CLOSE,
    MESSAGE_KV_IMPORT,
    MESSAGE_KV_EXPORT,
    MESSAGE_STORE_REMOVE,
    MESSAGE_LOG_FETCH,
    MESSAGE_LINK_PROBE,
    /* hpctl <-> coordinator */
    MESSAGE_ASK,
    MESSAGE_ANSWER,
    /* anybody */
    MESSAGE_REFUSED,
    MESSAGE_TYPE_COUNT
};

/* ---- agent -> coordinator ---- */

struct message_held_stage { /* a stage that the agent has, told when it joins and with every
                               heartbeat */
    uint64_t deployment, generation, stage;
    uint64_t device;   /* on which of the agent's devices it is, as they stand in its node */
    const char *state; /* "fetching", "loading", "warming", "ready", "failed" */
    uint64_t sequences, queued_batches, kv_used_tokens, kv_tokens;
    uint64_t kept; /* sequences that have ended and are kept for others to begin with */
    uint64_t batches_done;
    double busy_s, planned_s; /* measured and predicted compute so far */
    bool hop_heard;           /* the stage before it is heard over the data channel */
    bool running;             /* its device works on a batch now */
    uint64_t missing_bytes;   /* of its weights, which come while it serves */
};

struct message_join {
    const char *name;    /* as asked for; the coordinator may give another */
    const char *token;   /* secret of a join token; "" when the key is known already */
    const char *program; /* version of the program */
    uint64_t process; /* chosen by chance when the program started: tells two programs with one key
                         apart; 0: not said */
    const char *machine; /* id of the box: two agents of one box share it */
    const char *hostname;
    const char *node; /* its node as a JSON object of hp-cluster/1 */
    struct pack_span data_address;
    struct pack_list held;   /* struct message_held_stage */
    struct pack_list models; /* struct message_model: what its store holds some of */
    uint64_t streams; /* of earlier runs of the coordinator, of which it will tell a new one */
};

struct message_model {
    struct pack_span model; /* id */
    uint64_t bytes;         /* of its chunks held */
    const char *name;
};

struct message_device_state { /* of one of the agent's devices */
    uint64_t memory_free_bytes;
};

struct message_heartbeat {
    uint64_t number;
    uint64_t memory_free_bytes; /* of all devices, and no more than the box has */
    uint64_t dropped_stale, dropped_foreign;
    uint64_t data_sent_bytes,
        data_received_bytes;  /* payloads of the data channel, since it began */
    struct pack_list held;    /* struct message_held_stage */
    struct pack_list devices; /* struct message_device_state, in the order of its node */
};

struct message_stage_state {
    uint64_t deployment, generation, stage;
    const char *state; /* "fetching", "loading", "warming", "ready", "failed", "unloaded"; of a copy
                          "copied", "uncopied" */
    uint64_t done_bytes, total_bytes; /* of what this state does */
    uint64_t moved_bytes;             /* over the network so far, for this stage */
    uint64_t missing_bytes;           /* "ready": of its weights, which come while it serves */
    struct pack_u32s
        wanted; /* chunks (indices of the manifest) that nobody else can give: please upload */
    const char *code, *text, *hint; /* "failed": why, and what to do; "fetching": text alone, why
                                       chunks are wanted that should have been there */
};

struct message_said { /* what came out of one sequence */
    uint64_t sequence;
    uint64_t first; /* index of the first of them in the output */
    struct pack_u32s ids;
    const char *finish;      /* "": goes on; "stop": an end token (which is among ids); "length" */
    uint64_t drafts;         /* guesses that were verified: one less than ids were right, or said */
    struct pack_span scores; /* of a sequence opened with said_scores: struct score [ids,
                                said_scores] */
};

struct message_tokens { /* what the last stage sampled: one message a batch */
    uint64_t deployment, generation;
    uint64_t made_ns;      /* by the agent's clock: messages may be held up on their way */
    struct pack_list said; /* struct message_said */
};

struct message_sequence_failed {
    uint64_t deployment, generation, sequence;
    const char *code, *text;
};

struct message_logits { /* of a sequence opened with all_logits, or with prompt_scores */
    uint64_t deployment, generation, sequence;
    uint64_t first_position, count;
    struct pack_span values; /* f32 [count, vocabulary]; of an encoder [count, width]; with
                                prompt_scores struct score [count, prompt_scores], of the tokens
                                that follow these positions in the prompt */
};

struct message_profile_result {
    struct pack_span model;
    const char *kind;        /* of the device */
    const char *tables;      /* JSON: {"class": {"slice": [], "prefix": [], "seconds": [[]]}} as in
                                hp-profile/1, and "layers": [{...}]; of a network hp-profile/1 of
                                its layers, with this kind alone */
    const char *code, *text; /* when it failed */
};

struct message_prefill_slice { /* one run of a prompt through a stage, by the agent's clock */
    uint64_t first_position, tokens;
    uint64_t arrived_ns; /* its input was there; 0: not known */
    uint64_t start_ns, end_ns;
    uint64_t runs; /* of the batch that it was part of */
};

struct message_prefill { /* a prompt has been through this stage, or takes long: what that took, for
                            comparing with the plan */
    uint64_t deployment, generation, sequence, stage;
    uint64_t clock_ns;       /* the agent's clock as it says this */
    struct pack_list slices; /* struct message_prefill_slice */
    bool loading;            /* meanwhile weights were missing, here or at another stage */
    bool part;               /* more slices are to come, and all of them are told then */
};

struct message_decode { /* the first steps of an answer have been through this stage, each a token
                           (more where some were guessed): what they took */
    uint64_t deployment, generation, sequence, stage;
    uint64_t clock_ns;      /* the agent's clock as it says this */
    struct pack_list steps; /* struct message_prefill_slice */
};

struct message_profile_progress { /* how a measurement goes that may take a while */
    const char *what;             /* the class of layers that is looked at */
    uint64_t points;              /* measured so far, of all classes */
    double elapsed_s, budget_s;
    double error; /* the largest that is left of interpolating between points of this class, as a
                     share of the time */
};

struct message_hop_state { /* a stage hears the stage before it (stage 0: the last) over the data
                              channel for the first time, or has heard nothing for a while */
    uint64_t deployment, generation, stage;
    bool heard;
    double silent_s; /* !heard: for how long */
};

struct message_kv_state { /* how kv_import or kv_export goes, with its id */
    uint64_t deployment, generation, stage, sequence;
    const char *state;    /* of an import: "awaited", "received"; of an export: "sent"; "failed" */
    uint64_t moved_bytes; /* keys and values so far */
    const char *code, *text; /* "failed": why. A sequence whose keys and values did not come has
                                also failed, and is closed */
};

/* What a stage's agent has spilled of chains of tokens that this stage would compute alike: all of
 * it once the stage is ready, then what changes. A chain is named by its pages: a digest each,
 * which covers all tokens up to the page's end and what they are computed with. */
struct message_spills {
    uint64_t deployment, generation, stage;
    bool anew;               /* whatever was told of this stage before holds no more */
    struct pack_list chains; /* struct message_spill */
    double memory_bytes_per_s, disk_bytes_per_s; /* as read back lately; 0: not measured */
    uint64_t memory_bytes, disk_bytes;           /* that the agent has spilled, of all models */
    uint64_t dropped; /* files that were cut short, changed or of another model */
};

struct message_spill {
    struct pack_span pages; /* 32 bytes each */
    bool disk;              /* there; else in memory */
    bool gone;              /* it is not there any more */
};

struct message_share_failed { /* a batch came to a share and has no result: the coordinator answers
                                 whoever waits for it */
    uint64_t deployment, generation, stage, batch;
    const char *code, *text;
};

struct message_link_result { /* answer to link_probe, with its id */
    double latency_s,
        bandwidth_bytes_per_s; /* one way; 0 for "echo", which only says that it is ready */
    const char *code, *text;   /* when it failed */
};

struct message_store_state {
    struct pack_list models; /* struct message_model */
    const char *code, *text;
};

struct message_log_text {
    const char *text;
};

/* Of a sequence with a stream (`sequence_open`): told to a coordinator that has started again. */
struct message_stream {
    uint64_t deployment, generation, stage;
    uint64_t sequence;
    uint64_t stream;
    bool open;            /* the stage has it; else it has ended here, and what follows is left */
    uint64_t reserved;    /* of its tokens */
    uint64_t sampled;     /* by the last stage: tokens of the answer so far, */
    struct pack_u32s ids; /* and all of these; fewer: they are not known any more */
    uint64_t unheard;     /* of these the last, said since its last sign of a coordinator */
    struct pack_span scores; /* of a sequence opened with said_scores: struct score [ids,
                                said_scores]; shorter: they are not known any more */
    const char *finish;      /* "stop" or "length" behind the last of them */
};
struct message_streams {
    struct pack_list streams; /* struct message_stream */
    bool whole;               /* these were the last of them */
};

struct message_loss { /* what TCP sent over the data channel to one peer, since the agent's process
                         began */
    struct pack_span peer; /* its public key */
    uint64_t segments;
    uint64_t lost; /* of these, sent again because the network had lost them */
};
struct message_losses {      /* of peers of which there is news */
    struct pack_list losses; /* struct message_loss */
};

/* ---- coordinator -> agent ---- */

struct message_welcome {
    const char *name; /* what the agent is called from now on */
    uint64_t heartbeat_ms;
    uint64_t coordinator_boot; /* differs after a restart of the coordinator */
    const char *data,
        *trust; /* what the cluster wants of data endpoints (data_choice.h); "": auto, no network */
    uint64_t orphan_ms; /* so long sequences go on without a coordinator; 0: as the agent has it */
};

/* Whose connections an agent's data endpoint may take: the public keys (X25519) of all agents and
 * of the admin, after `welcome` and whenever the set changes. */
struct message_members {
    struct pack_span keys; /* 32 bytes each */
};

struct message_loading { /* stages of a deployment serve while their weights come */
    uint64_t deployment, generation;
    uint64_t missing_bytes; /* of all its stages */
};

struct message_heartbeat_ack {
    uint64_t number;
    struct pack_list loading; /* struct message_loading: of deployments that have stages there */
};

struct message_profile_run {
    struct pack_span model;
    struct pack_span manifest; /* encoded; heads only matter */
    const char *compute;
    uint64_t budget_ms;
    bool fine; /* more points where interpolation errs, until the budget ends; else a few that tell
                  enough to place layers */
    uint64_t device; /* which of the agent's devices is measured */
};

/* Measures the data path from one agent to another: the coordinator tells the far one to "echo",
 * then the near one to "measure", then both that it is the "end". Frames of the probe carry the
 * session of its own. */
struct message_link_probe {
    uint64_t session;
    const char *role; /* "echo", "measure", "end" */
    const char *peer; /* the other one's name, and where it is; not for "end" */
    struct pack_span data_address;
};

struct message_peer {
    const char *name;
    struct pack_span data_address;
};

/* One value that crosses between two stages: as the graph names it, and the elements of a token. */
struct message_value {
    const char *name;
    uint64_t width;
    bool exact; /* as float32, whatever the hop's format is */
};

/* The size of a dimension that a network leaves free, the first of its inputs (the batch) apart. */
struct message_dim {
    const char *symbol; /* as the file names it; "" for those without a name */
    uint64_t size;
};

/* What one batch takes. */
struct message_seconds {
    double s;
};

/* What is measured of a network on a device: how it goes is told with profile_progress and
 * profile_result of this id. A stage_unload ends it. */
struct message_measure {
    uint64_t id;
    struct pack_u32s batches; /* rising; empty: the network's own where it is fixed, else 1, 2, 4, 8
                               */
    struct pack_u32s shares;  /* rising: into how many equal parts the device is cut, all of which
                                 work; empty: 1 to 4, as far as it has cores */
    uint64_t budget_ms;       /* for all of it; eleven runs of each are made whatever it says */
};

/* Instead of a stage of a sequence model: part of a device runs some blocks of a network (an ONNX
 * model), one batch after the other, for a plan of pools. `deployment` is the plan's number,
 * `stage` the share's number in the plan, the layers are blocks. */
struct message_share {
    uint64_t parts, part;    /* the device is cut into so many equal parts; this is that one, from
                                0 */
    uint64_t n_blocks;       /* of the network */
    struct pack_u32s bounds; /* [n_blocks + 1]: where blocks begin and the last ends, in layers of
                                the network as its profile has them; empty: its layers are dealt out
                                evenly */
    uint64_t batch;          /* the largest */
    uint64_t sizes;          /* sets of free dimensions whose batches it runs, the largest first; 0:
                                one. `sequence` of a batch's frame says which, from 0 */
    struct pack_list dims;   /* struct message_dim, as many for each size */
    struct pack_list seconds; /* struct message_seconds [sizes][batch], of batches of 1, 2, ...:
                                 what the plan says; a paced agent takes as long */
    uint64_t sample_bytes;    /* what its last block gives for one sample, as the profile says; 0:
                                 not known. A paced agent's links take as long as that does */
    struct pack_list measure; /* struct message_measure, one: the whole network is measured instead,
                                 and no batch comes */
};

struct message_stage_prepare {
    uint64_t deployment, generation, stage, n_stages;
    uint64_t session;       /* token of this generation's chunks */
    uint64_t input_session; /* token of the frames that come to this stage: each hop has its own; 0:
                               `session` */
    struct pack_span input_from; /* public key of whoever sends them; empty: not said */
    const char *deployment_name;
    struct pack_span model;    /* id */
    struct pack_span manifest; /* encoded */
    uint64_t first_layer, end_layer;
    const char *compute; /* "auto", "f32" */
    uint64_t context;    /* longest sequence */
    uint64_t kv_tokens, max_sequences, max_batch_tokens;
    const char *source_machine,
        *source_path;       /* where hpctl read the model: usable by agents of that box */
    bool upload_only;       /* do not use the path even where it could be read */
    struct pack_list peers; /* struct message_peer: agents whose stores hold some of the model */
    double planned_s_per_token;      /* on this stage; 0: not planned */
    double planned_trip_s_per_token; /* on all stages together */
    uint64_t beside_tokens; /* of a slice, at most, while anything decodes, so that time per token
                               keeps its target; 0: any */
    double stands_for;      /* to a paced agent: how many of the profile's sequences one of this
                               deployment stands for; 0: its batch */
    const char *wire; /* as what values cross between stages: "f32" (also ""), "f16", "bf16", "q8"
                       */
    struct pack_list
        enters,      /* struct message_value: what comes from the stage before; empty: not said */
        crosses;     /* what goes to the next */
    uint64_t device; /* which of the agent's devices runs it, as they stand in its node; a device
                        holds one stage of a deployment, and an older one makes room for it */
    const char *kv;  /* as what keys and values are kept: "f16", "f32", "q8_0"; "" as "auto": by
                        `compute` */
    double
        weight; /* of the deployment's share of each device's time, beside those of others; 0: 1 */
    bool copy;  /* nothing is to be run: the layers come into the store, `stage_state` says "copied"
                   or "uncopied", and that is all */
    struct pack_list share; /* struct message_share, one: what is prepared is that, and nothing of
                               sequences is looked at. All of the model comes into the store */
    bool keeps; /* room for keys and values and no weights: sequences begin with what others
                   computed, are kept and handed on, and none is run */
    uint64_t expert_groups; /* layers are numbered as of a model whose blocks' experts are in so
                               many groups, each a layer of its own; 0 or 1: in one */
};

struct message_stage_connect {
    uint64_t deployment, generation, stage, n_stages;
    struct pack_span next_address;          /* of stage + 1; empty at the last */
    struct pack_span first_address;         /* at the last stage: of stage 0 */
    const char *next_device, *first_device; /* what paced neighbours stand for, "node/device" */
    uint64_t next_session,
        first_session; /* tokens of the frames on these hops; 0: the generation's */
    const char *wire;  /* as what the next stage takes the values that cross, and which: the same as
                          this stage was prepared for, or it refuses */
    struct pack_list crosses; /* struct message_value */
    bool keep; /* what is open stays so, and links that lead there already are left alone: a
                  coordinator that has started again has found the stage at work */
};

struct message_stage_unload {
    uint64_t deployment, generation; /* all its stages of this generation and of every older one */
};

struct message_share_peer { /* whoever holds shares of a plan, and who hears of its results */
    const char *name;
    struct pack_span data_address;
    uint64_t session;   /* of the frames that go there */
    const char *device; /* what a paced one stands for, "node/device"; "" else */
};

/* Where batches of a plan go from this agent's shares: legs (frame_tensors.h) name rows of this
 * list; the coordinator is row 0. */
struct message_share_connect {
    uint64_t deployment, generation;
    struct pack_list peers; /* struct message_share_peer */
};

struct message_chunk_grant { /* frames with this token may bring or ask for chunks */
    uint64_t session;
    struct pack_span model;
    bool revoke;
};

struct message_sequence_open { /* to every stage of the deployment; ids rise within a deployment */
    uint64_t deployment, generation, sequence;
    uint64_t stage;          /* of this one */
    struct pack_u32s prompt; /* to the first stage, and to the last for penalties */
    struct pack_u32s
        slices; /* tokens of each prefill slice, to the first stage; sum is the prompt's length */
    uint64_t max_tokens;      /* to sample at most */
    uint64_t kv_tokens;       /* that it may become: prompt + max_tokens */
    uint64_t reserved;        /* of these: tokens that pages are reserved for, and that may run;
                                 sequence_grow says more. 0: all */
    struct pack_u32s end_ids; /* "stop" after one of these; empty: never */
    uint64_t
        prompt_tokens; /* to every stage; 0: not said, and then nothing is told of its prefill */
    uint64_t length;   /* to every stage: tokens of the prompt that it begins with, whose keys and
                          values are there before; slices are of the others */
    uint64_t share;    /* the sequence of this stage that they are shared with; 0: they are sent to
                          each stage (kv_import) */
    struct pack_span spilled; /* they are not sent: this agent reads back what it has spilled. The
                                 name of the last of their pages (32 bytes, as in `spills`) */
    uint64_t shared;  /* with spilled and share: so many of them, whole pages, are shared, and those
                         behind them are read back */
    uint64_t sampled; /* to the last stage: so many of the prompt's last tokens were sampled before,
                         and count as output */
    uint64_t speculate; /* to the last stage: where it guesses tokens (enum speculate of
                           common/batch.h); 0: nowhere */
    bool
        all_logits; /* the last stage reports logits of every prompt position instead of sampling */
    uint64_t pooling;     /* with all_logits, of an encoder: 0: every row is reported; else the last
                             stage reports one row: 1 their mean, 2 the first, 3 the last */
    uint64_t said_scores; /* to the last stage: it reports so many scores (common/score.h) of each
                             token that it samples; 0: none */
    uint64_t prompt_scores; /* to the last stage: the same of each token of the prompt but the
                               first; the sequence begins with none of them */
    struct sampling_params sampling; /* borrowed, as all that the message points at; what is missing
                                        on the wire is greedy's */
    uint64_t stream; /* of a request that outlives its coordinator: the stages go on with it without
                        one, and tell the next one of it (`streams`); 0: it does not */
};

struct message_sequence_grow { /* to every stage: an open sequence may run up to more tokens */
    uint64_t deployment, generation, sequence, stage;
    uint64_t reserved; /* tokens that pages are reserved for from now on */
};

/* The keys and values of a sequence's first pages go to where the agent spills, before it is closed
 * or kept for fewer; `spills` says when they are there. What cannot be spilled is not answered. */
struct message_sequence_spill {
    uint64_t deployment, generation, sequence, stage;
    struct pack_span pages; /* their names, 32 bytes each, as in `spills` */
};

struct message_sequence_close {
    uint64_t deployment, generation;
    uint64_t sequence; /* 0: all that the stage has */
    uint64_t stage;    /* of which the sequence is closed */
    uint64_t keep;     /* so many of its first tokens stay, for others to share, until it is closed
                          with 0 or kept for fewer; what has not so many is closed */
};

/* The keys and values that an open sequence begins with come with frames of this session. Answered
 * with kv_state: "awaited", and once all have come "received". One import for each sender. */
struct message_kv_import {
    uint64_t deployment, generation, stage, sequence;
    uint64_t session;
    struct pack_span from; /* public key of whoever sends them */
};

/* The keys and values of the first `length` tokens of a sequence go to a stage that awaits them (of
 * blocks that both stages have, where these are not the same). Answered with kv_state. */
struct message_kv_export {
    uint64_t deployment, generation, stage, sequence;
    uint64_t length;
    bool follow; /* it may have fewer tokens as yet: they go as they are computed */
    uint64_t session;
    struct pack_span to_address;
    uint64_t to_deployment, to_generation, to_stage, to_sequence;
    const char *kv; /* as what the receiver keeps them: f16, f32, q8_0; "": as the sender does */
    struct pack_list
        blocks; /* struct message_kv_blocks: of each group what goes there; empty: all */
};

struct message_kv_blocks { /* blocks of a group of layers whose keys and values look alike */
    uint64_t group, first, count;
};

struct message_store_remove {
    struct pack_span model;
};

struct message_log_fetch {
    uint64_t lines;
};

/* ---- hpctl <-> coordinator ---- */

struct message_ask {
    const char *verb;      /* "node.ls": docs/protocol.md lists them */
    const char *arguments; /* a JSON object */
    struct pack_span blob; /* a manifest, where the verb takes one */
};

struct message_answer {
    bool more;        /* progress: further answers to this id follow */
    const char *code; /* status word; "ok" or "" when all is well */
    const char *text, *hint;
    const char *result; /* a JSON value */
    struct pack_span blob;
};

struct message_refused {
    const char *code, *text, *hint;
};

struct message {
    enum message_type type;
    uint64_t id; /* of a request, and of its answers */
    union {
        struct message_join join;
        struct message_heartbeat heartbeat;
        struct message_stage_state stage_state;
        struct message_tokens tokens;
        struct message_sequence_failed sequence_failed;
        struct message_logits logits;
        struct message_profile_result profile_result;
        struct message_store_state store_state;
        struct message_log_text log_text;
        struct message_prefill prefill;
        struct message_decode decode;
        struct message_profile_progress profile_progress;
        struct message_link_result link_result;
        struct message_hop_state hop_state;
        struct message_kv_state kv_state;
        struct message_spills spills;
        struct message_share_failed share_failed;
        struct message_streams streams;
        struct message_losses losses;
        struct message_welcome welcome;
        struct message_members members;
        struct message_heartbeat_ack heartbeat_ack;
        struct message_profile_run profile_run;
        struct message_stage_prepare stage_prepare;
        struct message_stage_connect stage_connect;
        struct message_stage_unload stage_unload;
        struct message_share_connect share_connect;
        struct message_chunk_grant chunk_grant;
        struct message_sequence_open sequence_open;
        struct message_sequence_grow sequence_grow;
        struct message_sequence_spill sequence_spill;
        struct message_sequence_close sequence_close;
        struct message_kv_import kv_import;
        struct message_kv_export kv_export;
        struct message_store_remove store_remove;
        struct message_log_fetch log_fetch;
        struct message_link_probe link_probe;
        struct message_ask ask;
        struct message_answer answer;
        struct message_refused refused;
    } u;
};

const char *message_type_word(enum message_type t);
void message_encode(const struct message *m, struct buffer *out);
/* HP_EPROTO with both versions in the text when the versions differ, HP_EUNSUPPORTED for an unknown
 * type (id is set so that it can be answered), HP_ELIMIT for a message that is larger than its type
 * may be (1 MiB, but for those that carry manifests, chunk lists, profiles, logs or logits),
 * HP_EPARSE otherwise. `bytes` must outlive *out. */
int message_decode(const uint8_t *bytes, size_t size, struct arena *arena, struct message *out,
                   struct err *e);

#endif
