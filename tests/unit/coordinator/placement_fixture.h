/* A toy model of a few hundred megabytes, to be placed. */
#ifndef HP_TESTS_UNIT_COORDINATOR_PLACEMENT_FIXTURE_H
#define HP_TESTS_UNIT_COORDINATOR_PLACEMENT_FIXTURE_H

#include "tests/unit/coordinator/core_fixture.h"

/* Ten layers: 100 MB of weights each (200 MB once packed as bf16), 1000 bytes of KV a token. */
enum { LAYERS = 10 };
static struct layer_facts layers[LAYERS];
static struct model_facts facts = {.architecture = "test",
                                   .layers = layers,
                                   .n_layers = LAYERS,
                                   .vocabulary = 1000,
                                   .width = 1024,
                                   .context = 4096};

static inline int prepare_facts(void **state)
{
    (void)state;
    for (int i = 0; i < LAYERS; i++)
        layers[i] = (struct layer_facts){.name = "layer",
                                         .class_name = i % 2 ? "attn" : "mlp",
                                         .param_bytes = 100000000,
                                         .elements = 100000000,
                                         .state_bytes_per_token = 1000,
                                         .output_bytes_per_token = 4096,
                                         .flops_per_token = 2e8};
    return 0;
}

static inline void manifest(struct buffer *out)
{
    static const uint8_t head[4] = "head";
    struct manifest_file file = {"m.gguf", 4096};
    struct manifest_head first = {0, 0, {head, sizeof head}};
    struct manifest m = {.name = "m", .files = {&file, 1}, .heads = {&first, 1}};
    manifest_encode(&m, out);
}

/* Deploys with these options; the deployment while it is there, else NULL and the answer's error.
 */
static inline struct deployment *deploy(struct fixture *f, const char *name, const char *options,
                                        const struct message_answer **answer)
{
    char arguments[400];
    struct buffer blob = {0};
    manifest(&blob);
    f->facts = &facts;
    snprintf(arguments, sizeof arguments, "{\"name\": \"%s\", \"options\": %s}", name, options);
    const struct message_answer *a = fixture_ask(f, "deploy", arguments, &blob);
    buffer_free(&blob);
    if (answer)
        *answer = a;
    return deployment_find(f->core, name);
}

static inline const char *state_of(struct fixture *f, const char *name)
{
    static char word[32];
    const struct message_answer *a = fixture_ask(f, "deployment.ls", "{}", NULL);
    json_t *result = a ? json_loads(a->result, 0, NULL) : NULL, *row;
    size_t i;
    snprintf(word, sizeof word, "nothing");
    json_array_foreach(json_is_array(result) ? result : json_object_get(result, "deployments"), i,
                       row) if (strcmp(json_string_value(json_object_get(row, "name")), name) == 0)
        snprintf(word, sizeof word, "%s", json_string_value(json_object_get(row, "state")));
    json_decref(result);
    return word;
}

#endif
