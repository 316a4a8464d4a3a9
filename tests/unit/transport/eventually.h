/* Waits for what no condition variable tells: the state of sockets, counters of an endpoint. */
#ifndef HP_TESTS_EVENTUALLY_H
#define HP_TESTS_EVENTUALLY_H

#include <dirent.h>
#include <stdio.h>
#include <time.h>
#include <unistd.h>

#include "common/env.h"

enum { EVENTUALLY_SECONDS = 20, EVENTUALLY_STEP_NS = 5000000 };

/* True as soon as `condition` holds, looked at again and again; false when that takes too long. */
#define EVENTUALLY(condition)                                                                      \
    ({                                                                                             \
        bool held_ = false;                                                                        \
        uint64_t until_ns_ =                                                                       \
            env_now_ns(&env_real) + (uint64_t)(EVENTUALLY_SECONDS * 1e9 * env_time_scale());       \
        while (!(held_ = (condition)) && env_now_ns(&env_real) < until_ns_)                        \
            nanosleep(&(struct timespec){0, EVENTUALLY_STEP_NS}, NULL);                            \
        held_;                                                                                     \
    })

/* The inodes of all sockets of this process; returns how many there are. Names are read and no
 * descriptor is touched: other threads open and close theirs meanwhile. */
static inline size_t own_sockets(unsigned long *inodes, size_t max)
{
    size_t n = 0;
    DIR *dir = opendir("/proc/self/fd");
    for (struct dirent *entry; dir && (entry = readdir(dir));) {
        char name[64] = "";
        unsigned long inode;
        if (readlinkat(dirfd(dir), entry->d_name, name, sizeof name - 1) < 0 ||
            sscanf(name, "socket:[%lu]", &inode) != 1)
            continue;
        if (n < max)
            inodes[n] = inode;
        n++;
    }
    if (dir)
        closedir(dir);
    return n;
}

static inline size_t count_own_sockets(void)
{
    return own_sockets(NULL, 0);
}

/* What has come over the connection between these two ports of loopback and was not read at `local`
 * yet; -1 when there is no such connection. */
static inline long unread_bytes(uint16_t local, uint16_t remote)
{
    unsigned here, there, bytes;
    char line[512];
    long unread = -1;
    FILE *f = fopen("/proc/self/net/tcp", "r");
    while (f && unread < 0 && fgets(line, sizeof line, f))
        if (sscanf(line, " %*d: %*8x:%x %*8x:%x %*x %*x:%x", &here, &there, &bytes) == 3 &&
            here == local && there == remote)
            unread = bytes;
    if (f)
        fclose(f);
    return unread;
}

#endif
