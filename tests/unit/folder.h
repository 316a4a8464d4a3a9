/* A folder of its own for a test. */
#ifndef HP_TESTS_FOLDER_H
#define HP_TESTS_FOLDER_H

#include <ftw.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <unistd.h>

static inline void test_folder_make(char out[256])
{
    const char *base = getenv("TMPDIR");
    snprintf(out, 256, "%s/hp-test-XXXXXX", base && *base ? base : "/tmp");
    if (!mkdtemp(out))
        abort();
}

static inline int test_remove_entry(const char *path, const struct stat *st, int type,
                                    struct FTW *at)
{
    (void)st;
    (void)type;
    (void)at;
    return remove(path);
}

static inline void test_folder_remove(const char *path)
{
    nftw(path, test_remove_entry, 16, FTW_DEPTH | FTW_PHYS);
}

#endif
