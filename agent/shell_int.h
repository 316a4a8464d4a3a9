/* What the files of the shell share: agent.c (its life, threads and mail), shell_actions.c (doing
 * what the core says). */
#ifndef HP_AGENT_SHELL_INT_H
#define HP_AGENT_SHELL_INT_H

#include <pthread.h>
#include <stdatomic.h>

#include "agent/agent.h"
#include "agent/agent_core.h"
#include "agent/executor.h"
#include "agent/link_prober.h"
#include "agent/post_box.h"
#include "agent/store_worker.h"
#include "agent/wire.h"
#include "common/log.h"

enum { LOG_LINES = 512, LOG_LINE_BYTES = 512, MAIL_A_TURN = 256 };
#define ABSENCE_FIRST_NS UINT64_C(5000000000)
#define ABSENCE_AGAIN_NS UINT64_C(30000000000)

/* Each kind of mail has places of its own, so that a flood of one takes none from another. */
enum mail_class {
    MAIL_FRAME,
    MAIL_LINK,
    MAIL_OUTPUT,
    MAIL_RAN,
    MAIL_OPENED,
    MAIL_LOADED,
    MAIL_OTHER,
    MAIL_CLASSES
};

/* What other threads tell the loop: an event for the core, and what it points at. */
struct mail {
    struct agent_event event;
    struct frame_header header; /* FRAME */
    struct data_buffer *buffer; /* FRAME */
    uint64_t link;     /* LINK_DOWN: data_link_number of what broke; 0: the slot has no such link */
    struct err *error; /* owned */
    void *memory;      /* owned: what lists of the event point into */
    char *path;        /* owned: FETCHED and, for the profiler, opened */
    bool known;        /* PROFILED: its id is the request's already */
    bool opened;       /* the store has a model ready for the profiler */
};

/* What the shell keeps of a stage that the core holds. */
struct shell_stage {
    uint64_t slot;
    char *path; /* of the model in the store */
    uint32_t vocabulary;
    bool is_first;
    uint64_t n_stages, max_batch_tokens,
        inputs_bytes; /* inputs: of all frames that may be on their way to the stage */
    struct outlet *next, *first;
    /* of a paced agent */
    int end_layer;
    double stands_for;
};

/* A profile that is being made: the store opens the model under `slot`, the executor measures it.
 */
struct shell_profile {
    uint64_t slot, id, budget_ms;
    uint8_t model[DIGEST_BYTES];
    bool f32, fine;
};

struct agent {
    struct agent_config config;
    uv_loop_t *loop;
    uv_async_t wake;
    uv_timer_t timer, meter;
    int open_handles;
    pthread_mutex_t gate; /* guards `stopping` against the data channel's thread */
    bool stopping;
    struct post_box mail;
    atomic_bool lost; /* mail that had no place: sequences may be waiting for it */
    struct agent_core *core;
    struct agent_core_config core_config;
    struct agent_actions actions;
    struct control *control;
    struct data_endpoint *data;
    char data_host[DATA_HOST_TEXT]; /* where `data` listens */
    enum data_kind data_kind;
    struct executor *executor;
    struct store_worker *store;
    uint64_t box_free_bytes; /* when last read; UINT64_MAX: never */
    struct paced *paced;     /* the device that this agent stands for; NULL: itself */
    struct link_prober *prober;
    struct wire *wire; /* paced: frames on their way */
    struct key_pair keys;
    char machine[80], hostname[256], kind[DISCOVER_KIND], store_folder[1100], profile_folder[1100],
        key_file[1100];
    struct buffer node_json, encoded;
    struct shell_stage *stages;
    size_t n_stages, stage_capacity;
    struct shell_profile *profiles;
    size_t n_profiles;
    uint64_t last_profile;
    struct frame_run *runs;     /* [FRAME_MAX_RUNS], of the frame that is being read */
    struct frame_token *tokens; /* [FRAME_MAX_RUNS] */
    bool quit_said;
    uint64_t absent_ns, absence_told_ns; /* since when the coordinator has not answered, and when
                                            that was last said; 0: it answers */

    pthread_mutex_t log_lock;
    char (*log_lines)[LOG_LINE_BYTES];
    size_t log_at, log_count;
};

/* ---- agent.c */

/* From any thread: takes what the mail owns. */
void shell_mail(struct agent *a, const struct mail *m);
/* On the loop: an event to the core, and its actions done. */
void shell_event(struct agent *a, const struct agent_event *ev);
struct shell_stage *shell_stage_of(struct agent *a, uint64_t slot);

/* ---- shell_actions.c */

void shell_actions_do(struct agent *a);
/* Frees what the shell keeps of a stage. */
void shell_stage_drop(struct agent *a, uint64_t slot);
/* The store has opened a model for the profiler, or could not. */
void shell_profile_opened(struct agent *a, const struct mail *m);
void shell_profile_drop(struct agent *a, uint64_t slot);

/* Slots of profiles are told from those of stages by this bit. */
#define SHELL_PROFILE_SLOT (UINT64_C(1) << 63)

#endif
