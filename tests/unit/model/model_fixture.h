/* A folder of its own for each test of models, and what is opened in it. */
#ifndef HP_TESTS_UNIT_MODEL_MODEL_FIXTURE_H
#define HP_TESTS_UNIT_MODEL_MODEL_FIXTURE_H

#include "model/model.h"
#include "tests/test.h"

static char folder[64];

static inline int make_folder(void **state)
{
    (void)state;
    snprintf(folder, sizeof folder, "/tmp/hp-model-XXXXXX");
    return mkdtemp(folder) ? 0 : -1;
}

static inline int remove_folder(void **state)
{
    (void)state;
    char command[96];
    snprintf(command, sizeof command, "rm -rf %s", folder);
    return system(command);
}

static inline const char *write_bytes(const char *name, const void *data, size_t size)
{
    static char path[192];
    snprintf(path, sizeof path, "%s/%s", folder, name);
    FILE *f = fopen(path, "wb");
    assert_non_null(f);
    assert_int_equal(fwrite(data, 1, size, f), size);
    assert_int_equal(fclose(f), 0);
    return path;
}

static inline const char *write_text(const char *name, const char *text)
{
    return write_bytes(name, text, strlen(text));
}

static inline struct model *open_or_fail(const char *path)
{
    struct model *m = NULL;
    struct err e = {0};
    if (model_open(path, &m, &e) < 0)
        fail_msg("%s", e.text);
    return m;
}

static inline void refuses(const char *path, int code, const char *says)
{
    struct model *m = NULL;
    struct err e = {0};
    int rc = model_open(path, &m, &e);
    if (rc != code || !strstr(e.text, says) || !strstr(e.text, folder) || m)
        fail_msg("expected %d and \"%s\", got %d and \"%s\"", code, says, rc, e.text);
}

static inline void count_weight(void *ctx, const struct weight *w)
{
    (void)w;
    ++*(int *)ctx;
}

static inline int weights_of(const struct model *m, int first, int end)
{
    int n = 0;
    model_layers_weights(m, first, end, count_weight, &n);
    return n;
}

#endif
