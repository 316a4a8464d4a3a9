/* LD_PRELOAD: connections to the loopback ports that the file HP_DIVERT_FILE names ("FROM TO", a
 * pair a line, read anew each time) go to others, where a man in the middle listens. An agent waits
 * until some are named there before it connects to anybody but its coordinator and itself. */
#include <arpa/inet.h>
#include <dlfcn.h>
#include <netinet/in.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

enum { LOOK_US = 5000, LOOKS = 6000 };

static atomic_bool is_own[1 << 16]; /* ports at which this process listens */

static void *next_of(const char *name)
{
    return dlsym(RTLD_NEXT, name);
}

int listen(int fd, int backlog);
int listen(int fd, int backlog)
{
    int (*next)(int, int);
    void *found = next_of("listen");
    memcpy(&next, &found, sizeof next);
    struct sockaddr_in at = {0};
    socklen_t size = sizeof at;
    int rc = next(fd, backlog);
    if (rc == 0 && getsockname(fd, (struct sockaddr *)&at, &size) == 0 && at.sin_family == AF_INET)
        is_own[ntohs(at.sin_port)] = true;
    return rc;
}

/* Whether this is an agent, and the port neither its own nor the one that it joins at (--join
 * HOST:PORT). */
static bool is_of_others(in_port_t port)
{
    char line[4096], joined[32];
    if (is_own[ntohs(port)])
        return false;
    FILE *f = fopen("/proc/self/cmdline", "re");
    size_t n = f ? fread(line, 1, sizeof line - 1, f) : 0;
    if (f)
        fclose(f);
    line[n] = '\0';
    snprintf(joined, sizeof joined, ":%u", ntohs(port));
    for (char *word = line; word < line + n; word += strlen(word) + 1)
        if (strcmp(word, "--join") == 0) {
            const char *where = word + sizeof "--join", *at = strrchr(where, ':');
            return !at || strcmp(at, joined) != 0;
        }
    return false;
}

/* False: nobody is named yet. */
static bool divert(in_port_t *port)
{
    const char *file = getenv("HP_DIVERT_FILE");
    FILE *f = file ? fopen(file, "re") : NULL;
    unsigned from, to, asked = ntohs(*port);
    bool named = !f;
    while (f && fscanf(f, "%u %u", &from, &to) == 2) {
        named = true;
        if (from == asked)
            *port = htons((in_port_t)to);
    }
    if (f)
        fclose(f);
    return named;
}

int connect(int fd, const struct sockaddr *to, socklen_t size);
int connect(int fd, const struct sockaddr *to, socklen_t size)
{
    int (*next)(int, const struct sockaddr *, socklen_t);
    void *found = next_of("connect");
    memcpy(&next, &found, sizeof next);
    struct sockaddr_in v4;
    if (to->sa_family != AF_INET || size < sizeof v4)
        return next(fd, to, size);
    memcpy(&v4, to, sizeof v4);
    bool waits = is_of_others(v4.sin_port);
    for (int i = 0; !divert(&v4.sin_port) && waits && i < LOOKS; i++)
        usleep(LOOK_US);
    return next(fd, (struct sockaddr *)&v4, sizeof v4);
}
