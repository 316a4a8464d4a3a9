#include "agent/engine/made_up.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#include "common/digest.h"
#include "common/log.h"
#include "model/dtype/dtype.h"

enum {
    BLOCKS = 256, /* different ones, in any order */
    ELEMENTS_MOST = SUPERBLOCK_ELEMENTS,
    PATTERN_LEAST = 1 << 17, /* bytes until all comes again */
    ROWS_LEAST = 128,        /* as many different ones: of few none stands out */
    MAPPINGS_MOST = 1024,
    LOOK_BYTES = 4096 /* that are zeros where all are */
};

static uint64_t random_next(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 33;
}

static bool all_zeros(const uint8_t *data, uint64_t bytes)
{
    return data[0] == 0 && memcmp(data, data + 1, bytes - 1) == 0;
}

/* Whole blocks of `w`, for `bytes`, a multiple of a block's. */
static void pattern_fill(const struct weight *w, uint8_t *out, uint64_t bytes)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    const size_t plain = info->block_elements == 1 ? ELEMENTS_MOST : 1,
                 elements = info->block_elements * plain, size = info->block_bytes * plain;
    const float most = w->n_dims == 1 ? 0 : sqrtf(3 / (float)w->shape[1]);
    const struct digest name = digest_of(w->name, strlen(w->name));
    uint64_t random, n = bytes / size < BLOCKS ? bytes / size : BLOCKS;
    memcpy(&random, name.bytes, sizeof random); /* matrices of one shape are different ones */
    for (uint64_t i = 0; i < n; i++) {
        float numbers[ELEMENTS_MOST];
        for (size_t k = 0; k < elements; k++)
            numbers[k] = w->n_dims == 1
                             ? 1
                             : most * ((float)random_next(&random) * 0x1p-30F - 1); /* 31 bits */
        info->from_f32(numbers, elements, out + i * size);
    }
    for (uint64_t i = n; i < bytes / size; i++)
        memcpy(out + i * size, out + random_next(&random) % BLOCKS * size, size);
}

static uint64_t greatest_divisor(uint64_t a, uint64_t b)
{
    while (b) {
        uint64_t rest = a % b;
        a = b;
        b = rest;
    }
    return a;
}

/* The pattern again and again, at `memory`, where `bytes`, a multiple of it, are reserved. */
static bool pattern_map(int file, uint64_t pattern, uint8_t *memory, uint64_t bytes)
{
    bool good = true;
    for (uint64_t at = 0; good && at < bytes; at += pattern)
        good =
            mmap(memory + at, pattern, PROT_READ, MAP_SHARED | MAP_FIXED, file, 0) == memory + at;
    return good;
}

static bool pattern_write(const struct weight *w, int file, uint64_t pattern)
{
    uint8_t *p = ftruncate(file, (off_t)pattern) == 0
                     ? mmap(NULL, pattern, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0)
                     : MAP_FAILED;
    if (p == MAP_FAILED)
        return false;
    pattern_fill(w, p, pattern);
    munmap(p, pattern);
    return true;
}

/* Bytes that are whole pages, whole blocks, and not too few to take few mappings. */
static uint64_t pattern_bytes(const struct weight *w)
{
    const struct dtype_info *info = dtype_info(w->dtype);
    const uint64_t page = (uint64_t)sysconf(_SC_PAGESIZE),
                   both = page / greatest_divisor(page, info->block_bytes) * info->block_bytes,
                   rows = w->bytes / w->shape[0] * ROWS_LEAST;
    uint64_t least =
        w->bytes / MAPPINGS_MOST > PATTERN_LEAST ? w->bytes / MAPPINGS_MOST : PATTERN_LEAST;
    least = w->n_dims == 2 && rows > least ? rows : least;
    return (least + both - 1) / both * both;
}

static bool needs_numbers(const struct weight *w)
{
    if (!w->data || !w->bytes || w->n_parts || w->stored != WEIGHT_PLAIN || w->dtype >= DTYPE_COUNT)
        return false;
    const struct dtype_info *info = dtype_info(w->dtype);
    return info->from_f32 && (w->n_dims == 1 || (w->n_dims == 2 && info->block_elements > 1)) &&
           all_zeros(w->data, w->bytes < LOOK_BYTES ? w->bytes : LOOK_BYTES);
}

void made_up_make(const struct weight *w, struct made_up *out)
{
    *out = (struct made_up){0};
    if (!needs_numbers(w))
        return;
    const uint64_t pattern = pattern_bytes(w), bytes = (w->bytes + pattern - 1) / pattern * pattern;
    int file = memfd_create("made up", MFD_CLOEXEC);
    uint8_t *memory = mmap(NULL, bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    bool reserved = memory != MAP_FAILED, good = reserved && file >= 0 &&
                                                 pattern_write(w, file, pattern) &&
                                                 pattern_map(file, pattern, memory, bytes);
    if (!good)
        log_info("engine", "no_numbers", "weight=%s why=\"%s\"", w->name, strerror(errno));
    if (file >= 0)
        close(file);
    if (!good && reserved)
        munmap(memory, bytes);
    if (!good)
        return;
    *out = (struct made_up){*w, memory, bytes};
    out->weight.data = memory;
    out->weight.file = -1;
}

void made_up_free(struct made_up *m)
{
    if (m->memory)
        munmap(m->memory, m->bytes);
    *m = (struct made_up){0};
}
