#include "agent/spill_files.h"

#include <stdio.h>
#include <string.h>
#include <sys/stat.h>

#include "common/fs.h"

static const char ending[] = ".kv";
enum { HEAD_MOST_BYTES = 1024 + SPILL_PAGES_MAX * DIGEST_BYTES };

void spill_entry_path(const char *folder, const struct spill_entry *x, char out[SPILL_PATH_ROOM])
{
    char page[DIGEST_HEX], identity[DIGEST_HEX];
    digest_hex(&x->head.pages[x->head.n_pages - 1], page);
    digest_hex(&x->head.identity, identity);
    snprintf(out, SPILL_PATH_ROOM, "%s/%.32s-%.16s%s", folder, page, identity, ending);
}

static int head_read(const char *path, struct buffer *b, struct spill_head *h, struct err *e)
{
    struct stat st;
    FILE *f = fopen(path, "re");
    size_t begin;
    int rc = f && fstat(fileno(f), &st) == 0 ? 0 : fs_error(path, "read", e);
    if (rc == 0) {
        size_t n = st.st_size < HEAD_MOST_BYTES ? (size_t)st.st_size : HEAD_MOST_BYTES;
        uint8_t *at = buffer_extend(b, n);
        rc = !at                       ? err_no_memory(e, "a spilled file's head")
             : fread(at, 1, n, f) == n ? spill_file_head(at, n, h, &begin, e)
                                       : fs_error(path, "read", e);
    }
    if (rc == 0 && (uint64_t)st.st_size != spill_file_bytes(h))
        rc = err_set(e, HP_EPARSE, "%s is cut short", path);
    if (f)
        fclose(f);
    return rc;
}

struct spill_entry *spill_entry_of_file(const char *folder, const char *name, struct err *e)
{
    char path[SPILL_PATH_ROOM], named[SPILL_PATH_ROOM];
    struct buffer b = {0};
    struct spill_head h;
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", folder, name);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode)) {
        err_set(e, HP_ENOENT, "%s is no file", path);
        return NULL;
    }
    struct spill_entry *x = head_read(path, &b, &h, e) == 0 ? spill_entry_make(&h) : NULL;
    if (!x && !e->code)
        err_set(e, HP_ENOMEM, "no memory for %s", path);
    buffer_free(&b);
    if (x)
        spill_entry_path(folder, x, named);
    if (x && strcmp(named, path) == 0) {
        x->used = (uint64_t)st.st_mtime;
        return x;
    }
    if (x)
        err_set(e, HP_EPARSE, "%s has another's keys and values", path);
    spill_entry_free(x);
    return NULL;
}

static bool head_same(const struct spill_head *a, const struct spill_head *b)
{
    return memcmp(&a->identity, &b->identity, sizeof a->identity) == 0 &&
           a->n_pages == b->n_pages && a->first == b->first &&
           memcmp(a->from, b->from, sizeof a->from) == 0 &&
           spill_shape_same(&a->shape, &b->shape) &&
           memcmp(a->pages, b->pages, a->n_pages * sizeof *a->pages) == 0;
}

struct spill_image *spill_entry_read(const char *folder, const struct spill_entry *x,
                                     atomic_ullong *counted, double *took_s, struct err *e)
{
    char path[SPILL_PATH_ROOM];
    struct buffer b = {0};
    struct spill_head h;
    size_t begin;
    uint64_t from_ns = env_now_ns(&env_real);
    spill_entry_path(folder, x, path);
    int rc = fs_file_read(path, (size_t)x->bytes, &b, e);
    if (rc == 0)
        rc = spill_file_check(b.data, b.size, e);
    if (rc == 0 && (spill_file_head(b.data, b.size, &h, &begin, e) < 0 || !head_same(&h, &x->head)))
        rc = err_set(e, HP_EPARSE, "%s has another's keys and values", path);
    *took_s = (double)(env_now_ns(&env_real) - from_ns) * 1e-9;
    if (rc < 0) {
        buffer_free(&b);
        return NULL;
    }
    struct spill_image *i = spill_image_of(b, counted);
    if (!i)
        err_set(e, HP_ENOMEM, "no memory for what was spilled");
    return i;
}
