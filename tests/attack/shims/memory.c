/* LD_PRELOAD: memory that runs out. Allocations of LEAST bytes and more fail, PERCENT of them, as
 * the file HP_MEMORY_FILE says (read anew each time): "PERCENT LEAST". Without such a line nothing
 * fails. */
#include <errno.h>
#include <fcntl.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { SMALL_BYTES = 4096 }; /* never fail: no file is read for each of these */

/* Two numbers of the file, without an allocation. */
static bool file_says(uint64_t *percent, uint64_t *least)
{
    const char *file = getenv("HP_MEMORY_FILE");
    char text[64];
    int fd = file ? open(file, O_RDONLY | O_CLOEXEC) : -1;
    ssize_t n = fd < 0 ? -1 : read(fd, text, sizeof text - 1);
    char *end;
    if (fd >= 0)
        close(fd);
    if (n <= 0)
        return false;
    text[n] = '\0';
    *percent = strtoull(text, &end, 10);
    *least = strtoull(end, NULL, 10);
    return *percent > 0;
}

static bool fails(size_t size)
{
    static _Atomic unsigned drawn;
    uint64_t percent, least;
    int before = errno;
    bool told = size >= SMALL_BYTES && file_says(&percent, &least) && size >= least;
    errno = before;
    /* A sequence that no two threads draw alike: Weyl's, by the golden ratio. */
    if (!told || (++drawn * UINT64_C(0x9E3779B9) & 0xFFFFFFFF) * 100 >> 32 >= percent)
        return false;
    errno = ENOMEM;
    return true;
}

void *__libc_malloc(size_t size);
void *__libc_calloc(size_t n, size_t size);
void *__libc_realloc(void *old, size_t size);
void *__libc_memalign(size_t alignment, size_t size);

void *malloc(size_t size)
{
    return fails(size) ? NULL : __libc_malloc(size);
}

void *calloc(size_t n, size_t size)
{
    size_t all;
    return __builtin_mul_overflow(n, size, &all) || fails(all) ? NULL : __libc_calloc(n, size);
}

void *realloc(void *old, size_t size)
{
    return fails(size) ? NULL : __libc_realloc(old, size);
}

void *aligned_alloc(size_t alignment, size_t size)
{
    return fails(size) ? NULL : __libc_memalign(alignment, size);
}

int posix_memalign(void **out, size_t alignment, size_t size)
{
    if (fails(size))
        return ENOMEM;
    *out = __libc_memalign(alignment, size);
    return *out ? 0 : ENOMEM;
}
