/* A Hugging Face folder: which files it has, its config, and which tensor lies in which shard.
 * Mapping and reading the shards is model.c's. */
#ifndef HP_MODEL_FILES_HUB_H
#define HP_MODEL_FILES_HUB_H

#include <jansson.h>
#include <stdint.h>

#include "common/arena.h"
#include "common/json.h"
#include "common/status.h"
#include "model/weight_table.h"

enum { HUB_SHARDS_MAX = 4096, HUB_SMALL_FILE_MAX_BYTES = 64 << 20 };

struct hub {
    const char *folder;
    const char **names; /* files: first the small ones that we read, then the shards in the order of
                           their names */
    int n_files, first_shard;
    json_t *config;
    struct json_at config_at;
    json_t *index; /* model.safetensors.index.json, or NULL */
    struct json_at index_at;
    json_t *modules, *pooling; /* modules.json and 1_Pooling/config.json of a sentence encoder, or
                                  NULL */
    struct json_at modules_at, pooling_at;
    const char *chat_template; /* chat_template.jinja, else of tokenizer_config.json; NULL when
                                  there is none */
    const char *
        tool_template; /* the one for requests with tools: additional_chat_templates/tool_use.jinja,
                          else of tokenizer_config.json */
};

/* Lists and reads the small files; strings are made in the arena. Shards are those of the index;
 * without one model.safetensors; without that every *.safetensors. HP_ENOENT (no config.json, no
 * weights), HP_EPARSE naming file and place, HP_ELIMIT. */
int hub_open(const char *folder, struct arena *arena, struct hub *out, struct err *e);
/* The same for templates alone: config and weights need not be there, and are not looked at. */
int hub_open_text(const char *folder, struct arena *arena, struct hub *out, struct err *e);
void hub_close(struct hub *h);

/* "folder/name" in the arena, or NULL. */
char *hub_path(const struct hub *h, struct arena *arena, const char *name);
/* Every tensor that the index names is in the shard that it names. */
int hub_index_check(const struct hub *h, const struct weight_table *t, struct err *e);

#endif
