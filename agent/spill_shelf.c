#include "agent/spill_shelf.h"

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/spill_files.h"
#include "common/env.h"
#include "common/fs.h"
#include "common/log.h"
#include "common/vector.h"

/* ---- entries ---- */

/* The entry is wanted now, and so are those that it needs. */
static void entry_touch(struct spill_shelf *s, struct spill_entry *x)
{
    for (; x; x = x->parent)
        x->used = ++s->clock;
}

static void entry_unfile(struct spill_shelf *s, struct spill_entry *x)
{
    char path[SPILL_PATH_ROOM];
    if (!x->filed)
        return;
    spill_entry_path(s->folder, x, path);
    unlink(path);
    x->filed = false;
    s->disk_bytes -= x->bytes;
}

/* Removes an entry, and before it those that need it. */
static void entry_remove(struct spill_shelf *s, struct spill_entry *x)
{
    size_t i = s->n_entries;
    while (x->n_children) {
        i = i ? i - 1 : s->n_entries - 1;
        if (s->entries[i]->parent == x) {
            entry_remove(s, s->entries[i]);
            i = s->n_entries;
        }
    }
    for (i = 0; s->entries[i] != x;)
        i++;
    s->entries[i] = s->entries[--s->n_entries];
    s->memory_bytes -= x->image ? x->bytes : 0;
    entry_unfile(s, x);
    s->changed(s->ctx, x, !x->image, true);
    spill_entry_free(x);
}

/* The entry that was wanted longest ago, of those in memory or of those in files; NULL: none is. */
static struct spill_entry *entry_oldest(const struct spill_shelf *s, bool disk)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; i < s->n_entries; i++) {
        struct spill_entry *x = s->entries[i];
        if ((disk ? x->filed : x->image != NULL) && (!best || x->used < best->used))
            best = x;
    }
    return best;
}

/* Removes files, the oldest first, down to `limit` bytes; what was wanted `before` goes alone. */
static void disk_trim(struct spill_shelf *s, uint64_t limit, uint64_t before)
{
    struct spill_entry *x;
    while (s->disk_bytes > limit && (x = entry_oldest(s, true)) != NULL && x->used < before) {
        if (x->image)
            entry_unfile(s, x);
        else
            entry_remove(s, x);
    }
}

/* Writes an entry's file, for which older ones make room. False: it is not written. */
static bool entry_write(struct spill_shelf *s, struct spill_entry *x)
{
    char path[SPILL_PATH_ROOM];
    struct err e = {0};
    struct buffer *b = &x->image->b;
    if (x->bytes > s->disk_limit)
        return false;
    disk_trim(s, s->disk_limit - x->bytes, x->used);
    if (s->disk_bytes > s->disk_limit - x->bytes)
        return false;
    spill_file_seal(b->data, b->size); /* others read what stands before */
    spill_entry_path(s->folder, x, path);
    int rc = fs_folder_make(s->folder, 0700, &e); /* somebody may have removed it */
    if (rc == 0)
        rc = fs_file_write(path, b->data, b->size, 0600, &e);
    if (rc < 0) {
        log_warn_limited("agent", "spill_not_written", "text=\"%s\"", e.text);
        return false;
    }
    x->filed = true;
    s->disk_bytes += x->bytes;
    return true;
}

/* Before an entry's file those of what it needs: no file is ever without these. */
static bool entry_file(struct spill_shelf *s, struct spill_entry *x)
{
    while (!x->filed) {
        struct spill_entry *first = x;
        while (first->parent && !first->parent->filed)
            first = first->parent;
        if (!entry_write(s, first))
            return false;
    }
    return true;
}

/* An entry goes from memory into its file. False: it stays in memory. */
static bool entry_to_disk(struct spill_shelf *s, struct spill_entry *x)
{
    if (!entry_file(s, x))
        return false;
    s->changed(s->ctx, x, false, true);
    s->memory_bytes -= x->bytes;
    spill_image_release(x->image);
    x->image = NULL;
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

/* Takes the entry of a file. False: not readable now, and the next start may find it. */
static bool file_take(struct spill_shelf *s, const char *name)
{
    char path[SPILL_PATH_ROOM];
    struct err e = {0};
    struct spill_entry *x = spill_entry_of_file(s->folder, name, &e);
    if (x && vector_push(s->entries, s->n_entries, s->room_entries, x))
        return true;
    spill_entry_free(x);
    if (e.code != HP_EPARSE)
        return e.code == HP_ENOENT;
    s->dropped++;
    log_warn_limited("agent", "spill_dropped", "text=\"%s\"", e.text);
    snprintf(path, sizeof path, "%s/%s", s->folder, name);
    unlink(path);
    return true;
}

static int first_compare(const void *a, const void *b)
{
    const struct spill_entry *x = *(struct spill_entry *const *)a,
                             *y = *(struct spill_entry *const *)b;
    return (x->head.first > y->head.first) - (x->head.first < y->head.first);
}

/* Whether one of the first n entries could become the entry's parent, or it needs none. */
static bool entry_adopted(const struct spill_shelf *s, struct spill_entry *x, size_t n)
{
    bool joined = spill_entry_join(x, NULL);
    for (size_t i = 0; i < n && !joined; i++)
        joined = spill_entry_join(x, s->entries[i]);
    return joined;
}

/* Joins each entry to the one that has the pages before its own. What is left of chains whose
 * beginnings are gone is dropped; its files are removed, too, if the `whole` folder was read. */
static void entries_join(struct spill_shelf *s, bool whole)
{
    size_t n = 0;
    if (s->n_entries)
        qsort(s->entries, s->n_entries, sizeof(struct spill_entry *), first_compare);
    for (size_t i = 0; i < s->n_entries; i++) {
        struct spill_entry *x = s->entries[i];
        x->filed = true;
        s->disk_bytes += x->bytes;
        if (!entry_adopted(s, x, n)) {
            if (whole)
                entry_unfile(s, x);
            else
                s->disk_bytes -= x->bytes;
            spill_entry_free(x);
            continue;
        }
        s->entries[n++] = x;
        for (uint64_t used = x->used; (x = x->parent) != NULL && x->used <= used; used = x->used)
            x->used = used + 1;
    }
    s->n_entries = n;
    for (size_t i = 0; i < n; i++)
        s->clock = s->entries[i]->used > s->clock ? s->entries[i]->used : s->clock;
}

int spill_shelf_open(struct spill_shelf *s, struct err *e)
{
    const struct dirent *file;
    bool whole = true;
    int rc = fs_folder_make(s->folder, 0700, e);
    if (rc < 0)
        return rc;
    DIR *folder = opendir(s->folder);
    if (!folder)
        return fs_error(s->folder, "read", e);
    while ((file = readdir(folder)) != NULL)
        whole = file_take(s, file->d_name) && whole;
    closedir(folder);
    entries_join(s, whole);
    disk_trim(s, s->disk_limit, UINT64_MAX);
    return 0;
}

/* The entry in memory that was wanted last; NULL: none is there. */
static struct spill_entry *entry_newest(const struct spill_shelf *s)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; i < s->n_entries; i++)
        if (s->entries[i]->image && (!best || s->entries[i]->used > best->used))
            best = s->entries[i];
    return best;
}

/* Writes what is in memory into files, what was wanted last first, while there is time. */
static void memory_save(struct spill_shelf *s)
{
    uint64_t until_ns = env_now_ns(&env_real) + s->save_most_ns, written = 0;
    struct spill_entry *x;
    while (env_now_ns(&env_real) < until_ns && (x = entry_newest(s)) != NULL) {
        uint64_t bytes = x->bytes;
        if (entry_to_disk(s, x))
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
    for (size_t i = 0; i < s->n_entries; i++)
        s->entries[i]->parent = NULL;
    while (s->n_entries)
        spill_entry_free(s->entries[--s->n_entries]);
    free(s->entries);
    s->entries = NULL;
}

/* ---- in and out ---- */

static struct spill_entry *entry_find(const struct spill_shelf *s, const struct digest *identity,
                                      uint32_t n_pages, const struct digest *page)
{
    struct spill_entry *best = NULL;
    for (size_t i = 0; n_pages && i < s->n_entries; i++)
        if (spill_entry_covers(s->entries[i], identity, n_pages, page) &&
            (!best || s->entries[i]->image))
            best = s->entries[i];
    return best;
}

/* The entry whose pages leave least of a chain to keep; *h becomes the head of that. */
static struct spill_entry *parent_find(const struct spill_shelf *s, struct spill_head *h)
{
    struct spill_entry *best = NULL;
    struct spill_head whole = *h;
    for (size_t i = 0; i < s->n_entries; i++) {
        struct spill_head rest = spill_entry_rest(s->entries[i], &whole);
        if (spill_file_bytes(&rest) >= spill_file_bytes(h))
            continue;
        best = s->entries[i];
        *h = rest;
    }
    while (best && best->parent) { /* which need not be there for what it needs itself */
        struct spill_head rest = spill_entry_rest(best->parent, &whole);
        if (spill_file_bytes(&rest) > spill_file_bytes(h))
            break;
        best = best->parent;
        *h = rest;
    }
    return best;
}

/* Takes the image. NULL: no memory. */
static struct spill_entry *entry_begin(struct spill_shelf *s, struct spill_head *h,
                                       struct spill_image *i)
{
    struct spill_entry *parent = parent_find(s, h), *x;
    if (parent) {
        struct spill_image *rest = spill_image_cut(i, h);
        x = rest ? spill_entry_make(h) : NULL;
        spill_image_release(i);
        i = rest;
    } else {
        x = spill_entry_make(h);
    }
    if (x && spill_entry_join(x, parent) &&
        vector_push(s->entries, s->n_entries, s->room_entries, x)) {
        x->image = i;
        return x;
    }
    spill_entry_free(x);
    spill_image_release(i);
    return NULL;
}

void spill_shelf_put(struct spill_shelf *s, struct spill_image *i)
{
    struct spill_head h;
    size_t begin;
    struct spill_entry *x = NULL;
    bool good = spill_file_head(i->b.data, i->b.size, &h, &begin, NULL) == 0;
    struct spill_entry *has =
        good ? entry_find(s, &h.identity, h.n_pages, &h.pages[h.n_pages - 1]) : NULL;
    if (has || !good)
        spill_image_release(i);
    else
        x = entry_begin(s, &h, i);
    entry_touch(s, has ? has : x);
    for (struct spill_entry *o = has; o; o = o->parent) {
        /* who spills it does not know of it, or not any more: it is told anew */
        s->changed(s->ctx, o, !o->image, true);
        s->changed(s->ctx, o, !o->image, false);
    }
    if (!x)
        return;
    s->memory_bytes += x->bytes;
    s->changed(s->ctx, x, false, false);
    memory_trim(s, s->memory_limit);
}

/* Held for the caller. NULL: no memory (HP_ENOMEM), or the file is gone or changed; the entry goes.
 */
static struct spill_image *entry_image(struct spill_shelf *s, struct spill_entry *x, struct err *e)
{
    double took_s = 0;
    struct spill_image *i = x->image ? spill_image_hold(x->image)
                                     : spill_entry_read(s->folder, x, s->counted, &took_s, e);
    if (i && !x->image) {
        double rate = (double)x->bytes / (took_s > 1e-6 ? took_s : 1e-6);
        s->disk_bytes_per_s =
            s->disk_bytes_per_s > 0 ? 0.5 * s->disk_bytes_per_s + 0.5 * rate : rate;
    }
    if (!i && e->code != HP_ENOMEM) { /* there may be memory the next time */
        s->dropped++;
        log_warn_limited("agent", "spill_dropped", "text=\"%s\"", e->text);
        entry_remove(s, x);
    }
    return i;
}

/* Room for the images of an entry and of all that it needs. NULL: no memory. */
static struct spill_found *found_make(const struct spill_entry *x, struct err *e)
{
    size_t n = 0;
    for (; x; x = x->parent)
        n++;
    struct spill_found *f = calloc(1, sizeof *f + n * sizeof f->images[0]);
    if (!f)
        err_set(e, HP_ENOMEM, "no memory for what was spilled");
    return f;
}

struct spill_found *spill_shelf_get(struct spill_shelf *s, const struct digest *identity,
                                    uint32_t n_pages, const struct digest *page, uint32_t kept,
                                    struct err *e)
{
    struct spill_entry *x = entry_find(s, identity, n_pages, page);
    if (!x) {
        err_set(e, HP_ENOENT, "what was spilled of this prompt is not here any more");
        return NULL;
    }
    entry_touch(s, x);
    struct spill_wanted w = spill_wanted_of(&x->head.shape, n_pages, kept);
    struct spill_found *f = found_make(x, e);
    for (struct spill_entry *up; f && x; x = up) {
        up = x->parent;
        if (!spill_wanted_pass(&w, &x->head))
            continue;
        struct spill_image *i = entry_image(s, x, e);
        if (i) {
            f->images[f->n++] = i;
        } else {
            spill_found_release(f);
            return NULL;
        }
    }
    return f;
}
