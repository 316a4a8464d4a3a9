#include "agent/spill_shelf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include "common/env.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/vector.h"

static const char ending[] = ".kv";
enum { HEAD_MOST_BYTES = 1024 + SPILL_PAGES_MAX * DIGEST_BYTES, PATH_ROOM = 1300 };

/* ---- images ---- */

/* The buffer is its own from now on. NULL: no memory. */
static struct spill_image *image_of(struct buffer b, atomic_ullong *counted)
{
    struct spill_image *i = b.failed ? NULL : calloc(1, sizeof *i);
    if (!i) {
        buffer_free(&b);
        return NULL;
    }
    atomic_init(&i->holders, 1);
    i->counted = counted;
    i->bytes = b.size;
    i->b = b;
    atomic_fetch_add(counted, i->bytes);
    return i;
}

struct spill_image *spill_image_make(const struct spill_head *h, atomic_ullong *counted,
                                     uint8_t **keys)
{
    struct buffer b = {0};
    uint8_t *at = spill_file_begin(&b, h);
    struct spill_image *i = image_of(b, counted);
    *keys = i ? at : NULL;
    return i;
}

static struct spill_image *image_hold(struct spill_image *i)
{
    atomic_fetch_add(&i->holders, 1);
    return i;
}

void spill_image_release(struct spill_image *i)
{
    if (!i || atomic_fetch_sub(&i->holders, 1) > 1)
        return;
    atomic_fetch_sub(i->counted, i->bytes);
    buffer_free(&i->b);
    free(i);
}

/* ---- entries ---- */

static const struct digest *page_last(const struct spill_entry *x)
{
    return &x->pages[x->n_pages - 1];
}

static void entry_path(const struct spill_shelf *s, const struct spill_entry *x,
                       char out[PATH_ROOM])
{
    char page[DIGEST_HEX], identity[DIGEST_HEX];
    digest_hex(page_last(x), page);
    digest_hex(&x->identity, identity);
    snprintf(out, PATH_ROOM, "%s/%.32s-%.16s%s", s->folder, page, identity, ending);
}

static struct spill_entry *entry_make(const struct spill_head *h, uint64_t bytes)
{
    struct spill_entry *x = calloc(1, sizeof *x);
    struct digest *pages = calloc(h->n_pages, sizeof *pages);
    if (!x || !pages) {
        free(x);
        free(pages);
        return NULL;
    }
    memcpy(pages, h->pages, h->n_pages * sizeof *pages);
    *x = (struct spill_entry){
        .identity = h->identity,
        .n_pages = h->n_pages,
        .least = spill_file_least(h),
        .pages = pages,
        .bytes = bytes,
    };
    return x;
}

static void entry_free(struct spill_entry *x)
{
    spill_image_release(x->image);
    free(x->pages);
    free(x);
}

static void entry_remove(struct spill_shelf *s, struct spill_entry *x)
{
    char path[PATH_ROOM];
    size_t i = 0;
    while (s->entries[i] != x)
        i++;
    s->entries[i] = s->entries[--s->n_entries];
    *(x->image ? &s->memory_bytes : &s->disk_bytes) -= x->bytes;
    s->changed(s->ctx, x, !x->image, true);
    if (!x->image) {
        entry_path(s, x, path);
        unlink(path);
    }
    entry_free(x);
}

/* What was wanted longest ago, in memory or on disk; NULL: nothing is. */
static struct spill_entry *entry_oldest(const struct spill_shelf *s, bool disk)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; i < s->n_entries; i++)
        if (!s->entries[i]->image == disk && (!best || s->entries[i]->used < best->used))
            best = s->entries[i];
    return best;
}

static void disk_trim(struct spill_shelf *s, uint64_t limit)
{
    while (s->disk_bytes > limit)
        entry_remove(s, entry_oldest(s, true));
}

/* From memory into its file, for which older ones make room. False: it stays in memory. */
static bool entry_to_disk(struct spill_shelf *s, struct spill_entry *x)
{
    char path[PATH_ROOM];
    struct err e = {0};
    struct buffer *b = &x->image->b;
    if (x->bytes > s->disk_limit)
        return false;
    disk_trim(s, s->disk_limit - x->bytes);
    spill_file_seal(b->data, b->size); /* others read what stands before */
    entry_path(s, x, path);
    if (fs_file_write(path, b->data, b->size, 0600, &e) < 0) {
        log_warn_limited("agent", "spill_not_written", "text=\"%s\"", e.text);
        return false;
    }
    s->changed(s->ctx, x, false, true);
    s->memory_bytes -= x->bytes;
    spill_image_release(x->image);
    x->image = NULL;
    s->disk_bytes += x->bytes;
    s->changed(s->ctx, x, true, false);
    return true;
}

static void memory_trim(struct spill_shelf *s, uint64_t limit)
{
    while (s->memory_bytes > limit) {
        struct spill_entry *x = entry_oldest(s, false);
        if (!entry_to_disk(s, x))
            entry_remove(s, x);
    }
}

/* ---- what an earlier run left ---- */

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

static void file_adopt(struct spill_shelf *s, const char *name)
{
    char path[PATH_ROOM], named[PATH_ROOM];
    struct buffer b = {0};
    struct spill_head h;
    struct err e = {0};
    struct stat st;
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    if (stat(path, &st) < 0 || !S_ISREG(st.st_mode))
        return;
    int rc = head_read(path, &b, &h, &e);
    struct spill_entry *x = rc == 0 ? entry_make(&h, spill_file_bytes(&h)) : NULL;
    buffer_free(&b);
    if (x)
        entry_path(s, x, named);
    bool own = rc == 0 && (!x || strcmp(named, path) == 0);
    if (x && own && vector_push(s->entries, s->n_entries, s->room_entries, x)) {
        x->used = (uint64_t)st.st_mtime;
        s->clock = x->used > s->clock ? x->used : s->clock;
        s->disk_bytes += x->bytes;
        return;
    }
    if (x)
        entry_free(x);
    if (rc == HP_ENOMEM || own) /* the next start may find it */
        return;
    s->dropped++;
    log_warn_limited("agent", "spill_dropped", "text=\"%s\"", e.text[0] ? e.text : path);
    unlink(path);
}

int spill_shelf_open(struct spill_shelf *s, struct err *e)
{
    const struct dirent *file;
    int rc = fs_folder_make(s->folder, 0700, e);
    if (rc < 0)
        return rc;
    DIR *folder = opendir(s->folder);
    if (!folder)
        return fs_error(s->folder, "read", e);
    while ((file = readdir(folder)) != NULL)
        if (strcmp(file->d_name, ".") != 0 && strcmp(file->d_name, "..") != 0)
            file_adopt(s, file->d_name);
    closedir(folder);
    disk_trim(s, s->disk_limit);
    return 0;
}

/* What was wanted last, in memory; NULL: nothing is. */
static struct spill_entry *entry_newest(const struct spill_shelf *s)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; i < s->n_entries; i++)
        if (s->entries[i]->image && (!best || s->entries[i]->used > best->used))
            best = s->entries[i];
    return best;
}

/* Whether files that were wanted longer ago make room for it. */
static bool disk_takes(const struct spill_shelf *s, const struct spill_entry *x)
{
    const struct spill_entry *oldest = entry_oldest(s, true);
    return s->disk_bytes + x->bytes <= s->disk_limit || (oldest && oldest->used < x->used);
}

/* What was wanted last goes first. */
static void memory_save(struct spill_shelf *s)
{
    uint64_t until_ns = env_now_ns(&env_real) + s->save_most_ns, written = 0;
    struct spill_entry *x;
    while (env_now_ns(&env_real) < until_ns && (x = entry_newest(s)) != NULL) {
        uint64_t bytes = x->bytes;
        if (disk_takes(s, x) && entry_to_disk(s, x))
            written += bytes;
        else
            entry_remove(s, x);
    }
    if (s->memory_bytes)
        log_warn("agent", "spills_not_saved",
                 "written_bytes=%llu lost_bytes=%llu text=\"the time for it is over\"",
                 (unsigned long long)written, (unsigned long long)s->memory_bytes);
}

void spill_shelf_close(struct spill_shelf *s, bool save)
{
    if (save)
        memory_save(s);
    while (s->n_entries)
        entry_free(s->entries[--s->n_entries]);
    free(s->entries);
    s->entries = NULL;
}

/* ---- in and out ---- */

static bool entry_covers(const struct spill_entry *x, const struct digest *identity,
                         uint32_t n_pages, const struct digest *page)
{
    return x->n_pages >= n_pages && x->least <= n_pages &&
           memcmp(&x->identity, identity, sizeof *identity) == 0 &&
           memcmp(&x->pages[n_pages - 1], page, sizeof *page) == 0;
}

static struct spill_entry *entry_find(const struct spill_shelf *s, const struct digest *identity,
                                      uint32_t n_pages, const struct digest *page)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; n_pages && i < s->n_entries; i++)
        if (entry_covers(s->entries[i], identity, n_pages, page) && (!best || s->entries[i]->image))
            best = s->entries[i];
    return best;
}

void spill_shelf_put(struct spill_shelf *s, uint64_t slot, struct spill_image *i)
{
    struct spill_head h;
    size_t begin;
    if (spill_file_head(i->b.data, i->b.size, &h, &begin, NULL) < 0) {
        spill_image_release(i);
        return;
    }
    struct spill_entry *has = entry_find(s, &h.identity, h.n_pages, &h.pages[h.n_pages - 1]),
                       *x = has ? NULL : entry_make(&h, i->bytes);
    if (has) { /* who spills it does not know of it, or not any more: it is told anew */
        has->used = ++s->clock;
        has->slot = slot;
        s->changed(s->ctx, has, !has->image, true);
        s->changed(s->ctx, has, !has->image, false);
    }
    if (!x || !vector_push(s->entries, s->n_entries, s->room_entries, x)) {
        if (x)
            entry_free(x);
        spill_image_release(i);
        return;
    }
    x->image = i;
    x->slot = slot;
    x->used = ++s->clock;
    s->memory_bytes += x->bytes;
    s->changed(s->ctx, x, false, false);
    for (size_t k = s->n_entries; k-- > 0;) { /* what this one has more of */
        struct spill_entry *o = s->entries[k];
        if (o != x && entry_covers(x, &o->identity, o->n_pages, page_last(o)))
            entry_remove(s, o);
    }
    memory_trim(s, s->memory_limit);
}

/* The file's bytes, checked. */
static struct spill_image *entry_read(struct spill_shelf *s, const struct spill_entry *x,
                                      struct err *e)
{
    char path[PATH_ROOM];
    struct buffer b = {0};
    uint64_t from_ns = env_now_ns(&env_real);
    entry_path(s, x, path);
    int rc = fs_file_read(path, (size_t)x->bytes, &b, e);
    if (rc == 0)
        rc = spill_file_check(b.data, b.size, e);
    if (rc < 0) {
        buffer_free(&b);
        return NULL;
    }
    double took_s = (double)(env_now_ns(&env_real) - from_ns) * 1e-9,
           rate = (double)x->bytes / (took_s > 1e-6 ? took_s : 1e-6);
    s->disk_bytes_per_s = s->disk_bytes_per_s > 0 ? 0.5 * s->disk_bytes_per_s + 0.5 * rate : rate;
    struct spill_image *i = image_of(b, s->counted);
    if (!i)
        err_set(e, HP_ENOMEM, "no memory for what was spilled");
    return i;
}

struct spill_image *spill_shelf_get(struct spill_shelf *s, const struct digest *identity,
                                    uint32_t n_pages, const struct digest *page, struct err *e)
{
    struct spill_entry *x = entry_find(s, identity, n_pages, page);
    struct spill_head h;
    size_t begin;
    if (!x) {
        err_set(e, HP_ENOENT, "what was spilled of this prompt is not here any more");
        return NULL;
    }
    x->used = ++s->clock;
    if (x->image)
        return image_hold(x->image);
    struct spill_image *i = entry_read(s, x, e);
    if (i && (spill_file_head(i->b.data, i->b.size, &h, &begin, e) < 0 ||
              memcmp(&h.identity, identity, sizeof h.identity) != 0 || h.n_pages < n_pages ||
              memcmp(&h.pages[n_pages - 1], page, sizeof *page) != 0)) {
        spill_image_release(i);
        i = NULL;
        err_set(e, HP_EPARSE, "what was spilled is of another chain");
    }
    if (!i && e->code != HP_ENOMEM) { /* there may be memory the next time */
        s->dropped++;
        log_warn_limited("agent", "spill_dropped", "text=\"%s\"", e->text);
        entry_remove(s, x);
    }
    return i;
}
