/* Where a cluster is: address, the coordinator's public key, the admin's key pair. One file each in
 * HP_CONFIG_DIR (default ~/.config/hp) under contexts/, readable by the owner alone; `current`
 * names the one that verbs use unless --context says otherwise, and those that they used before. */
#ifndef HP_HPCTL_CONTEXT_H
#define HP_HPCTL_CONTEXT_H

#include <stdbool.h>
#include <stddef.h>

#include "common/json.h"
#include "common/status.h"
#include "transport/keys.h"

struct control_hub;

struct context {
    char name[64];
    struct control_hub *hub; /* of a cluster within this process, `control` is its name; else NULL.
                                No file has it */
    char control[280];       /* HOST:PORT */
    char http[280];          /* http://HOST:PORT, or https://HOST:PORT */
    char http_ca[512]; /* PEM file whose certificates the API's must come from; "": the system's */
    char server_key[KEY_TEXT];
    struct key_pair admin;
    char local_dir[512];                /* of a cluster that `hpctl local up` made; "" otherwise */
    char listen[280], http_listen[280]; /* what the coordinator was told to bind, as HOST:PORT,
                                           where this box runs it; "" where that is not known */
    char data[8],
        trust[512];    /* which data channel the coordinator is told to want (`cluster init`) */
    char api_key[128]; /* sent to the HTTP API; "": none */
};

/* Names are of common/names.h and do not begin with '.'. HP_EINVAL otherwise. */
int context_check_name(const char *name, struct err *e);
int context_save(const struct context *c, bool make_current, struct err *e);
/* `name` NULL: the current one. HP_ENOCLUSTER when there is none, with what to do. */
int context_load(const char *name, struct context *out, struct err *e);
/* Where it was the current one, the one that was current before it is again. */
int context_remove(const char *name, struct err *e);
/* HP_EEXIST where another cluster's context has this name: its file may hold the only copy of an
 * admin's key. `server_key`: of the cluster that wants the name, NULL where it has none yet;
 * `local`: it is one of `hpctl local`, which replace each other's. */
int context_check_free(const char *name, const char *server_key, bool local, struct err *e);
/* The file's form, hp-context/1, which holds secrets; *out is the caller's. */
int context_to_json(const struct context *c, json_t **out, struct err *e);
int context_from_json(const struct json_at *at, struct context *out, struct err *e);
/* How its API is spoken to: "http" or "https". */
const char *context_scheme(const struct context *c);
/* Names of all contexts, sorted: a JSON array of strings. */
json_t *context_list(void);
/* The name of a context that is nearest to this one, or ""; false then. */
bool context_nearest(const char *name, char *out, size_t size);
/* The folder of hpctl's own files, made where missing. */
int context_folder(const char *below, char *out, size_t size, struct err *e);

#endif
