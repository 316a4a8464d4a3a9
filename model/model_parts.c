/* GGUF models in several files: NAME-00001-of-0000N.gguf and its likes, each with its own header
 * and tensors; the keys are in the first. */
#include <stdio.h>
#include <string.h>

#include "model/model_int.h"

enum { PARTS_MAX = 4096, ENDING_BYTES = sizeof "-00001-of-00001.gguf" - 1, PART_PATH_BYTES = 4096 };

static void part_ending(int part, int n, char out[ENDING_BYTES + 8])
{
    snprintf(out, ENDING_BYTES + 8, "-%05d-of-%05d.gguf", part + 1, n);
}

static const char *path_name(const char *path)
{
    const char *slash = strrchr(path, '/');
    return slash ? slash + 1 : path;
}

static int split_number(const struct gguf *g, const char *path, const char *key, uint64_t *out,
                        struct err *e)
{
    const uint64_t none = 0;
    return gguf_get_u64(g, path, key, &none, out, e);
}

/* The file that was opened is the first, and is named so. */
static int first_check(const struct model *m, uint64_t number, int n, struct err *e)
{
    char ending[ENDING_BYTES + 8];
    size_t size = strlen(m->path);
    part_ending(0, n, ending);
    if (number == 0 && size > ENDING_BYTES && strcmp(m->path + size - ENDING_BYTES, ending) == 0)
        return 0;
    err_set(e, HP_EUNSUPPORTED, "%s: one of %d parts of a model, and not the first", m->path, n);
    return err_hint(e, "open the part whose name ends with %s; the others lie beside it", ending);
}

/* Room for all parts; what the first has stays. */
static int parts_alloc(struct model *m, int n, struct err *e)
{
    struct model_file *files = arena_alloc(&m->arena, (size_t)n, sizeof *files);
    struct mapped_file *maps = arena_alloc(&m->arena, (size_t)n, sizeof *maps);
    struct model_range *heads = arena_alloc(&m->arena, (size_t)n + 3, sizeof *heads);
    m->parts = arena_alloc(&m->arena, (size_t)n, sizeof *m->parts);
    if (!files || !maps || !heads || !m->parts) {
        m->parts = NULL;
        return err_set(e, HP_ENOMEM, "%s: out of memory", m->path);
    }
    memset(maps, 0, (size_t)n * sizeof *maps);
    memset(files, 0, (size_t)n * sizeof *files);
    memset(m->parts, 0, (size_t)n * sizeof *m->parts);
    files[0] = m->files[0];
    maps[0] = m->maps[0];
    m->files = files;
    m->maps = maps;
    m->heads = heads;
    return 0;
}

static int part_open(struct model *m, int part, int n, struct err *e)
{
    char path[PART_PATH_BYTES], ending[ENDING_BYTES + 8];
    uint64_t number, count;
    part_ending(part, n, ending);
    int size = snprintf(path, sizeof path, "%.*s%s", (int)(strlen(m->path) - ENDING_BYTES), m->path,
                        ending);
    char *kept = arena_strdup(&m->arena, path);
    if (!kept || size >= (int)sizeof path)
        return err_set(e, HP_ENOMEM, "%s: out of memory", m->path);
    int rc = mapped_file_open(kept, &m->maps[part], e);
    if (rc == HP_ENOENT)
        err_hint(e, "part %d of %d of the model is missing: fetch it", part + 1, n);
    if (rc < 0)
        return rc;
    m->n_files = part + 1;
    m->files[part] = (struct model_file){path_name(kept), m->maps[part].bytes};
    rc = gguf_parse(kept, m->maps[part].data, m->maps[part].bytes, m->need, &m->parts[part], e);
    rc = rc < 0 ? rc : split_number(&m->parts[part], kept, "split.no", &number, e);
    rc = rc < 0 ? rc : split_number(&m->parts[part], kept, "split.count", &count, e);
    if (rc == 0 && (number != (uint64_t)part || count != (uint64_t)n))
        return err_set(e, HP_EPARSE,
                       "%s: says that it is part %llu of %llu of a model: it is of another one",
                       kept, (unsigned long long)number + 1, (unsigned long long)count);
    return rc;
}

/* One array over all parts, in the order of files. */
static int weights_join(struct model *m, int n, struct err *e)
{
    size_t total = m->gguf.n_weights, at = 0;
    uint64_t wanted;
    int rc = split_number(&m->gguf, m->path, "split.tensors.count", &wanted, e);
    for (int i = 1; i < n; i++)
        total += m->parts[i].n_weights;
    if (rc == 0 && wanted != 0 && wanted != total)
        return err_set(e, HP_EPARSE,
                       "%s: its %d parts have %zu tensors, the first says %llu: one is of another "
                       "model",
                       m->path, n, total, (unsigned long long)wanted);
    struct weight *all = rc < 0 ? NULL : arena_alloc(&m->arena, total + 1, sizeof *all);
    if (!all)
        return rc < 0 ? rc : err_set(e, HP_ENOMEM, "%s: out of memory", m->path);
    for (int i = 0; i < n; i++) {
        const struct gguf *g = i ? &m->parts[i] : &m->gguf;
        for (size_t w = 0; w < g->n_weights; w++) {
            all[at] = g->weights[w];
            all[at++].file = i;
        }
    }
    m->joined = all;
    m->n_joined = total;
    return 0;
}

int model_parts_open(struct model *m, struct err *e)
{
    uint64_t count, number;
    m->joined = m->gguf.weights;
    m->n_joined = m->gguf.n_weights;
    int rc = split_number(&m->gguf, m->path, "split.count", &count, e);
    rc = rc < 0 ? rc : split_number(&m->gguf, m->path, "split.no", &number, e);
    if (rc < 0 || count <= 1)
        return rc;
    if (count > PARTS_MAX)
        return err_set(e, HP_EPARSE, "%s: a model in %llu parts; at most %d are read", m->path,
                       (unsigned long long)count, PARTS_MAX);
    int n = (int)count;
    rc = first_check(m, number, n, e);
    if (rc < 0 || m->need == GGUF_KEYS)
        return rc;
    rc = parts_alloc(m, n, e);
    for (int i = 1; i < n && rc == 0; i++)
        rc = part_open(m, i, n, e);
    return rc < 0 ? rc : weights_join(m, n, e);
}

void model_parts_close(struct model *m)
{
    for (int i = 1; m->parts && i < m->n_files; i++)
        gguf_free(&m->parts[i]);
}
