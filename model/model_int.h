/* An open model, as the files of its face share it. */
#ifndef HP_MODEL_MODEL_INT_H
#define HP_MODEL_MODEL_INT_H

#include <stdatomic.h>

#include "model/files/gguf.h"
#include "model/files/hub.h"
#include "model/files/mapped_file.h"
#include "model/graph/family.h"
#include "model/model.h"
#include "model/template/template.h"
#include "model/weight_table.h"

struct model_template {
    const char *source; /* NULL: none */
    struct chat_template *compiled;
    bool failed; /* and why */
    struct err failure;
};

struct model {
    struct arena arena; /* all of what follows that is not named as something else's */
    const char *path;
    enum model_form form;
    enum gguf_need need; /* GGUF_KEYS: model_open_text */
    int expert_groups;
    struct gguf gguf;
    struct gguf *parts;    /* [n_files], the first unused: of a model in several files; else NULL */
    struct weight *joined; /* [n_joined]: of all parts */
    size_t n_joined;
    struct hub hub;
    struct model_file *files;
    struct mapped_file *maps; /* [n_files]; empty for small files */
    int n_files;
    struct model_range *heads;
    int n_heads;
    struct weight_table weights;
    struct family_facts facts;
    struct graph graph;
    int *previous_use; /* [n_weight_uses]: graph_weights_index */
    struct model_template chat,
        tool_chat; /* the second where the file has one of its own for requests with tools */
    struct tokenizer *tokenizer;
    atomic_uint shares; /* owners beside the first */
};

/* model_parts.c: the files beside the first, which is open and parsed. HP_EPARSE, HP_EUNSUPPORTED,
 * HP_ENOENT naming the part, HP_ENOMEM. */
int model_parts_open(struct model *m, struct err *e);
void model_parts_close(struct model *m);

#endif
