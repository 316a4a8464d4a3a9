/* A shelf in a folder of its own, and chains whose contents follow from their names. */
#ifndef HP_TESTS_UNIT_AGENT_SPILL_FIXTURE_H
#define HP_TESTS_UNIT_AGENT_SPILL_FIXTURE_H

#include <dirent.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "agent/spill_shelf.h"
#include "common/fs.h"
#include "common/log.h"
#include "tests/test.h"

enum { PAGE_BYTES = KV_PAGE_TOKENS * 32 };
static const uint64_t plenty = 1 << 30;

struct spill_shelf_fixture {
    struct spill_shelf shelf;
    struct kv_shape shape;
    atomic_ullong counted;
    int come, gone;
    uint64_t told_bytes; /* in memory and on disk, as of the last that came or went */
    char folder[64];
};

static void changed(void *ctx, const struct spill_entry *x, bool disk, bool gone)
{
    struct spill_shelf_fixture *f = ctx;
    (void)x, (void)disk;
    *(gone ? &f->gone : &f->come) += 1;
    f->told_bytes = f->shelf.memory_bytes + f->shelf.disk_bytes;
}

static void shelf_open(struct spill_shelf_fixture *f, uint64_t memory, uint64_t disk)
{
    struct err e = {0};
    f->shelf = (struct spill_shelf){.memory_limit = memory,
                                    .disk_limit = disk,
                                    .save_most_ns = UINT64_C(60000000000),
                                    .counted = &f->counted,
                                    .changed = changed,
                                    .ctx = f};
    snprintf(f->shelf.folder, sizeof f->shelf.folder, "%s", f->folder);
    assert_int_equal(spill_shelf_open(&f->shelf, &e), 0);
}

static int setup(void **state)
{
    struct spill_shelf_fixture *f = calloc(1, sizeof *f);
    log_set_level(LOG_ERROR);
    f->shape = (struct kv_shape){.n_groups = 1, .groups = {{0, 1, 0, 32, KV_F16}}};
    snprintf(f->folder, sizeof f->folder, "/tmp/hp-spill-XXXXXX");
    assert_non_null(mkdtemp(f->folder));
    *state = f;
    return 0;
}

/* The path of the n-th file; returns how many there are. */
static int files_of(const struct spill_shelf_fixture *f, char path[400])
{
    DIR *d = opendir(f->folder);
    int n = 0;
    for (const struct dirent *e; (e = readdir(d)) != NULL;)
        if (e->d_name[0] != '.') {
            snprintf(path, 400, "%s/%s", f->folder, e->d_name);
            n++;
        }
    closedir(d);
    return n;
}

static int teardown(void **state)
{
    struct spill_shelf_fixture *f = *state;
    char path[400];
    assert_int_equal(f->counted, 0);
    while (files_of(f, path))
        unlink(path);
    rmdir(f->folder);
    free(f);
    return 0;
}

static const struct digest identity = {{7}};

/* What stands in a page of a block. */
static uint8_t content_of(const struct digest *page, const struct kv_range *r)
{
    return (uint8_t)(page->bytes[0] + 31 * r->group + 7 * r->first_block);
}

static struct spill_image *image_of(struct spill_shelf_fixture *f, const struct digest *pages,
                                    uint32_t n_pages)
{
    struct spill_head h = spill_head_whole(&identity, pages, n_pages, &f->shape);
    struct kv_cursor at = {0};
    struct kv_range r;
    uint8_t *keys;
    struct spill_image *i = spill_image_make(&h, &f->counted, &keys);
    for (; spill_file_next(&h, &at, &r); keys += PAGE_BYTES)
        memset(keys, content_of(&pages[r.first / KV_PAGE_TOKENS], &r), PAGE_BYTES);
    return i;
}

/* All that a sequence of so many pages sees is among what was found, but for what it has. */
static void found_is_all(const struct spill_shelf_fixture *f, const struct spill_found *found,
                         const struct digest *pages, uint32_t n_pages, uint32_t kept)
{
    struct spill_wanted w = spill_wanted_of(&f->shape, n_pages, kept);
    for (size_t k = 0; k < found->n; k++) {
        const struct buffer *b = &found->images[k]->b;
        struct spill_head h;
        struct kv_cursor at = {0};
        struct kv_range r;
        size_t from;
        assert_int_equal(spill_file_head(b->data, b->size, &h, &from, NULL), 0);
        for (; spill_file_next(&h, &at, &r); from += PAGE_BYTES)
            if (spill_wanted_has(&w, &r))
                for (int i = 0; i < PAGE_BYTES; i += PAGE_BYTES - 1)
                    assert_int_equal(b->data[from + (size_t)i],
                                     content_of(&pages[r.first / KV_PAGE_TOKENS], &r));
        assert_true(spill_wanted_pass(&w, &h));
    }
    for (uint32_t g = 0; g < f->shape.n_groups; g++)
        assert_true(w.upto[g] <= w.least[g]);
}

static bool has_of(struct spill_shelf_fixture *f, const struct digest *pages, uint32_t n_pages,
                   uint32_t kept)
{
    struct err e = {0};
    struct spill_found *found =
        spill_shelf_get(&f->shelf, &identity, n_pages, &pages[n_pages - 1], kept, &e);
    if (found)
        found_is_all(f, found, pages, n_pages, kept);
    spill_found_release(found);
    return found != NULL;
}

static void file_damage(const char *path, bool cut)
{
    struct buffer b = {0};
    struct err e = {0};
    assert_int_equal(fs_file_read(path, 1 << 20, &b, &e), 0);
    b.data[b.size / 2] ^= !cut;
    FILE *f = fopen(path, "wb");
    assert_int_equal(fwrite(b.data, 1, b.size - cut, f), b.size - cut);
    fclose(f);
    buffer_free(&b);
}

#endif
