#include "common/descriptors.h"

#include <sys/resource.h>

int descriptors_raise(struct err *e)
{
    struct rlimit files;
    if (getrlimit(RLIMIT_NOFILE, &files) != 0)
        return 0;
    rlim_t before = files.rlim_cur;
    files.rlim_cur = files.rlim_max;
    if (before == files.rlim_max || setrlimit(RLIMIT_NOFILE, &files) != 0)
        files.rlim_cur = before;
    if (files.rlim_cur >= DESCRIPTORS_LEAST)
        return 0;
    err_set(e, HP_ELIMIT, "this process may open %llu files at once, and needs %d at least",
            (unsigned long long)files.rlim_cur, DESCRIPTORS_LEAST);
    return err_hint(e, "`ulimit -Hn 1024` before it, or LimitNOFILE= of its service");
}
