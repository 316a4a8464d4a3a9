/* The shelf of what is spilled, at random: chains of a tree come, are asked for, damaged and found
 * again, in all sizes of memory and disk and with windows of all kinds. */
#include "common/env.h"
#include "tests/unit/agent/spill_fixture.h"

enum { DEPTH = 6, BRANCHES = 2, STEPS = 300 };

/* A chain of a tree: each page is one of BRANCHES behind those before it. */
static uint32_t chain_draw(uint64_t *r, struct digest pages[DEPTH])
{
    uint32_t n = 1 + (uint32_t)(random_next(r) % DEPTH);
    int words[DEPTH + 1] = {0};
    for (uint32_t i = 0; i < n; i++) {
        words[i] = 1 + (int)(random_next(r) % BRANCHES);
        pages[i] = digest_of(words, sizeof words);
    }
    return n;
}

static void shelf_is_sound(const struct spill_shelf_fixture *f)
{
    const struct spill_shelf *s = &f->shelf;
    uint64_t memory = 0, disk = 0;
    for (size_t i = 0; i < s->n_entries; i++) {
        const struct spill_entry *x = s->entries[i];
        memory += x->image ? x->bytes : 0;
        disk += x->filed ? x->bytes : 0;
        assert_true(x->image || x->filed);
        assert_true(!x->parent || (x->parent->used > x->used && (x->parent->filed || !x->filed)));
    }
    assert_int_equal(memory, s->memory_bytes);
    assert_int_equal(disk, s->disk_bytes);
    assert_int_equal(f->counted, memory);
    assert_true(memory <= s->memory_limit && disk <= s->disk_limit);
}

static void one_run(struct spill_shelf_fixture *f, uint64_t seed)
{
    uint64_t r = seed;
    uint32_t window = (uint32_t)(random_next(&r) % 8) * 40;
    uint64_t unit = 3 * PAGE_BYTES, memory = random_next(&r) % 40 * unit,
             disk = random_next(&r) % 30 * unit;
    unsigned found = 0;
    char path[400];
    f->shape = (struct kv_shape){
        .n_groups = 3,
        .groups = {{0, 1, 0, 32, KV_F16}, {0, 2, window, 32, KV_F16}, {0, 0, 0, 32, KV_F16}}};
    f->shape.n_groups -= (uint32_t)(random_next(&r) % 2);
    if (random_next(&r) % 4 == 0)
        f->shape.groups[0].window = window / 2; /* each layer has one */
    f->come = f->gone = 0;
    f->told_bytes = 0;
    shelf_open(f, memory, disk);
    for (int step = 0; step < STEPS; step++) {
        struct digest pages[DEPTH];
        uint32_t n = chain_draw(&r, pages);
        uint64_t what = random_next(&r) % 40;
        if (what < 20) {
            spill_shelf_put(&f->shelf, image_of(f, pages, n));
            uint64_t damaged =
                f->shelf
                    .dropped; /* of what it needs a file may be; there is room for several chains */
            assert_true(memory < 30 * unit || has_of(f, pages, n, 0) || f->shelf.dropped > damaged);
        } else if (what < 37) {
            found += has_of(f, pages, n, (uint32_t)(random_next(&r) % n));
        } else if (what == 37 && files_of(f, path)) {
            file_damage(path, random_next(&r) % 2);
        } else if (what > 37) {
            size_t n_filed = 0;
            for (size_t i = 0; i < f->shelf.n_entries; i++)
                n_filed += f->shelf.entries[i]->filed;
            bool save = what == 38;
            uint64_t dropped = f->shelf.dropped;
            spill_shelf_close(&f->shelf, save);
            shelf_open(f, memory, disk);
            assert_true(save || f->shelf.dropped || dropped || f->shelf.n_entries <= n_filed);
            f->come = (int)f->shelf.n_entries, f->gone = 0;
            f->told_bytes = f->shelf.memory_bytes + f->shelf.disk_bytes;
        }
        shelf_is_sound(f);
        assert_int_equal(f->come - f->gone, f->shelf.n_entries);
        assert_int_equal(f->told_bytes, f->shelf.memory_bytes + f->shelf.disk_bytes);
    }
    assert_true(found || disk < 10 * unit);
    spill_shelf_close(&f->shelf, false);
    while (files_of(f, path))
        unlink(path);
}

TEST(whatever_comes_and_goes_what_is_found_is_what_was_put)
{
    const char *only = getenv("HP_SEED");
    uint64_t first = only ? strtoull(only, NULL, 10) : 1, n = only ? 1 : 40;
    printf("# seeds %llu to %llu\n", (unsigned long long)first,
           (unsigned long long)(first + n - 1));
    for (uint64_t seed = first; seed < first + n; seed++)
        one_run(*state, seed);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test_setup_teardown(whatever_comes_and_goes_what_is_found_is_what_was_put,
                                        setup, teardown),
    };
    return cmocka_run_group_tests_name("spill_shelf_random", tests, NULL, NULL);
}
